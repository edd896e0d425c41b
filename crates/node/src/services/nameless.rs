//! Services that want backends on this node, while the node does not know its name. No backend is on such a node.

use std::collections::BTreeSet;

use crate::model::{InternalTraffic, Place, Service, ServiceName};

/// The most names in one warning, because a listing may have thousands.
const MOST_NAMES: usize = 10;

/// The services of which that was logged, by source, and those of which it is to be.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    logged: BTreeSet<(usize, ServiceName)>,
    new: Vec<ServiceName>,
}

impl Nameless {
    /// Takes note of a service that was told, or that is gone.
    pub(super) fn note(
        &mut self,
        (source, name): (usize, &ServiceName),
        service: Option<&Service>,
        place: &Place,
    ) {
        let is_local = service.is_some_and(|service| {
            let mut policies = service.ports.iter().map(|port| &port.policy);
            let wants_local = policies.any(|it| it.internal_traffic == InternalTraffic::Local);
            wants_local && !service.cluster_ips().is_empty()
        });
        let key = (source, name.clone());
        if !is_local || place.node.is_some() {
            self.logged.remove(&key);
        } else if self.logged.insert(key) {
            self.new.push(name.clone());
        }
    }

    /// A warning of the services since the last call.
    pub(super) fn warning(&mut self) -> Option<String> {
        let new = std::mem::take(&mut self.new);
        if new.is_empty() {
            return None;
        }
        let names = new.iter().take(MOST_NAMES).map(ToString::to_string);
        let names = names.collect::<Vec<_>>().join(", ");
        let more = match new.len().saturating_sub(MOST_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{names}{more}: internalTrafficPolicy is Local, and this node has no name: connections to it end with \
             EHOSTUNREACH; --node-name gives a name"
        ))
    }
}
