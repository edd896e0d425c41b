//! Reads the resources of node agents as an agent does, because agents follow other rules than gRPC clients.

use std::collections::BTreeSet;

use crowfly_control::{Checked, ConfigError, ForAgents, Severity};
use crowfly_model::{Errors, ResourceType};
use crowfly_node::xds::{EndpointsFrom, Mapping, NodeCluster, NodeEndpoints, NodeListener};
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message;

use super::findings::{ClientKind, Finding};

/// The findings of node agents, and the number of resources that were read.
pub(super) fn check(checked: &Checked) -> (Vec<Finding>, usize) {
    let mut findings: Vec<Finding> = Vec::new();
    let mut read = 0;
    for served in checked.for_agents() {
        let mut reading = Reading {
            checked,
            served: &served,
            mapping: Mapping::default(),
            findings: Vec::new(),
            read: 0,
        };
        reading.listeners();
        // A view has most resources of the base, and the same problems with them.
        for finding in reading.findings {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        if served.view.is_none() {
            read = reading.read;
        }
    }
    (findings, read)
}

struct Reading<'a> {
    checked: &'a Checked,
    served: &'a ForAgents,
    mapping: Mapping,
    findings: Vec<Finding>,
    read: usize,
}

impl Reading<'_> {
    /// Reads all listeners, and the resources that they lead to. Each resource has the severity of the listener above
    /// it.
    fn listeners(&mut self) {
        let Some(listeners) = self.served.snapshot.of(NodeListener::TYPE_URL) else {
            return;
        };
        let mut clusters = [BTreeSet::new(), BTreeSet::new()];
        for (name, resource) in listeners.resources() {
            let is_theirs = self.served.is_theirs_alone || has_no_address(&resource.any.value);
            if let Some(listener) = self.read::<NodeListener>(name, is_theirs) {
                let chains = listener.chains.into_iter();
                let names = chains.flat_map(|chain| chain.clusters);
                clusters[usize::from(is_theirs)].extend(names.map(|share| share.cluster));
            }
        }
        let [others, theirs] = clusters;
        let others = others.difference(&theirs).map(|name| (name, false));
        let all = theirs.iter().map(|name| (name, true)).chain(others);
        for (name, is_theirs) in all {
            if let Some(cluster) = self.read::<NodeCluster>(name, is_theirs)
                && let EndpointsFrom::Eds(endpoints) = cluster.endpoints
            {
                self.read::<NodeEndpoints>(&endpoints, is_theirs);
            }
        }
    }

    /// Reads a resource; `None` if it does not exist, or if an agent refuses it.
    fn read<R: ResourceType<Context = Mapping>>(
        &mut self,
        name: &str,
        is_theirs: bool,
    ) -> Option<R::Parsed> {
        let resource = self.served.snapshot.resource(R::TYPE_URL, name)?;
        self.read += 1;
        match R::parse(&resource.any.value, &self.mapping).value {
            Ok(parsed) => Some(parsed),
            Err(errors) => {
                self.refuse::<R>(name, is_theirs, &errors);
                None
            }
        }
    }

    fn refuse<R: ResourceType>(&mut self, name: &str, is_theirs: bool, errors: &Errors) {
        let (severity, end) = if is_theirs {
            (Severity::Error, "")
        } else {
            (Severity::Note, ", which may be for Envoys")
        };
        let says = format!("a node agent refuses this {}{end}", R::NOUN);
        let view = self.served.view.as_deref();
        for error in errors.iter() {
            let resource = (R::TYPE_URL, name);
            let problem: ConfigError = self.checked.problem(view, resource, error, &says);
            let finding = Finding::new(severity, Some(ClientKind::Node), &problem);
            self.findings.push(finding);
        }
    }
}

/// True if a listener is for agents alone, because it has no address that an Envoy could listen on.
fn has_no_address(bytes: &[u8]) -> bool {
    Listener::decode(bytes).is_ok_and(|listener| listener.address.is_none())
}
