//! Treats both protocols as one: it sends responses, and reads what the server learns from
//! requests. So one model serves for both.

use std::collections::{BTreeMap, BTreeSet};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{Script, delta, garbled, report, response};
use crowfly_xds::{Protocol, Request};
use envoy_types::pb::google::protobuf::Any;

use crate::model::{Kind, Said, Sent};

/// Sends `said` to the client.
pub(crate) fn send(
    script: &mut Script,
    protocol: Protocol,
    kind: Kind,
    said: &Said,
    version: &str,
) {
    match kind {
        Kind::Cluster => send_as::<Cluster>(script, protocol, kind, said, version),
        Kind::Endpoints => send_as::<Endpoints>(script, protocol, kind, said, version),
    }
}

fn send_as<R: ResourceType>(
    script: &mut Script,
    protocol: Protocol,
    kind: Kind,
    said: &Said,
    version: &str,
) {
    let resource_errors = said.reports.iter();
    let resource_errors = resource_errors.map(|(name, code)| report(name, *code, "reported"));
    let resources = said.resources.iter();
    let resources = resources.map(|(name, sent)| (*name, resource(kind, name, *sent)));
    let unreadable = said.garbled.then(|| ("", garbled::<R>()));
    let resources = resources.chain(unreadable);
    if protocol == Protocol::Delta {
        let resources = resources.map(|(name, any)| (name, version, any));
        let mut response = delta::<R>(version, resources);
        response.resource_errors = resource_errors.collect();
        response.removed_resources = said.removed.iter().map(|name| (*name).into()).collect();
        script.receive(response);
    } else {
        let mut response = response::<R>(version, version, resources.map(|(_, any)| any));
        response.resource_errors = resource_errors.collect();
        script.receive(response);
    }
}

fn resource(kind: Kind, name: &str, sent: Sent) -> Any {
    match (kind, sent) {
        (Kind::Cluster, Sent::Good(value)) => cluster(name).eds(&value.to_string()).any(),
        (Kind::Cluster, Sent::Bad) => cluster(name).invalid().any(),
        (Kind::Endpoints, Sent::Good(value)) => {
            let address = format!("10.0.0.1:{}", 1 + u16::from(value));
            endpoints(name).locality("r", 1, [&*address]).any()
        }
        (Kind::Endpoints, Sent::Bad) => endpoints(name).invalid().any(),
    }
}

/// The knowledge of the server from this stream.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The names it takes for wanted.
    pub(crate) names: BTreeMap<Kind, BTreeSet<String>>,
    /// The types that were asked for.
    asked: BTreeSet<Kind>,
    /// The versions of the first request of a type, since this was last emptied (delta only).
    pub(crate) versions: BTreeMap<Kind, BTreeMap<String, String>>,
    /// The nonces that were answered, with whether the response was refused, since this was last
    /// emptied.
    pub(crate) answers: Vec<(String, bool)>,
}

impl Heard {
    pub(crate) fn take(&mut self, request: Request) {
        match request {
            Request::Delta(request) => {
                let kind = kind_of(&request.type_url);
                let names = self.names.entry(kind).or_default();
                names.extend(request.resource_names_subscribe);
                for name in request.resource_names_unsubscribe {
                    names.remove(&name);
                }
                if self.asked.insert(kind) {
                    let versions = request.initial_resource_versions.into_iter();
                    self.versions.insert(kind, versions.collect());
                }
                self.answer(request.response_nonce, request.error_detail.is_some());
            }
            Request::Sotw(request) => {
                let kind = kind_of(&request.type_url);
                let names = request.resource_names.into_iter();
                self.names.insert(kind, names.collect());
                self.answer(request.response_nonce, request.error_detail.is_some());
            }
        }
    }

    fn answer(&mut self, nonce: String, refused: bool) {
        if !nonce.is_empty() {
            self.answers.push((nonce, refused));
        }
    }
}

fn kind_of(type_url: &str) -> Kind {
    match type_url {
        Cluster::TYPE_URL => Kind::Cluster,
        Endpoints::TYPE_URL => Kind::Endpoints,
        other => panic!("nobody asked for {other}"),
    }
}
