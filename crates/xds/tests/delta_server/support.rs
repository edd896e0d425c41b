//! One delta stream with short methods, so that a test reads like the conversation on it.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use crowfly_xds::{ClientNode, DeltaSubscription, RequestOutcome, Snapshot, StreamSettings};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc;

pub(crate) const CDS: &str = Cluster::TYPE_URL;
pub(crate) const EDS: &str = Endpoints::TYPE_URL;
pub(crate) const LDS: &str = Listener::TYPE_URL;
pub(crate) const RDS: &str = RouteConfig::TYPE_URL;

/// Endpoints of the given names and ports.
pub(crate) fn eds(resources: &[(&str, u16)]) -> Arc<Snapshot> {
    let mut all = Resources::new();
    for (name, port) in resources {
        all = all.with(endpoints(name).locality("r", 1, [&*format!("10.0.0.1:{port}")]));
    }
    all.snapshot()
}

/// Clusters and endpoints of the given names; a cluster changes with the number after it.
pub(crate) fn clusters(resources: &[(&str, u32)]) -> Resources {
    let mut all = Resources::new();
    for (name, number) in resources {
        let changed = cluster(name).edit(|proto| proto.alt_stat_name = number.to_string());
        all = all
            .with(changed.eds(&format!("{name}-eds")))
            .with(endpoints(&format!("{name}-eds")).locality("r", 1, ["10.0.0.1:1"]));
    }
    all
}

/// A listener, its routes, its cluster and its endpoints, all of one name.
pub(crate) fn service(name: &str) -> Resources {
    Resources::new()
        .with(listener(name).rds(name))
        .with(routes(name).host("*").route("/", name))
        .with(cluster(name))
        .with(endpoints(name).locality("r", 1, ["10.0.0.1:1"]))
}

/// The content of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) type_url: String,
    pub(crate) resources: Vec<String>,
    pub(crate) removed: Vec<String>,
}

pub(crate) fn said(type_url: &str, resources: &[&str], removed: &[&str]) -> Said {
    Said {
        type_url: type_url.to_owned(),
        resources: strings(resources),
        removed: strings(removed),
    }
}

/// One stream of a server.
pub(crate) struct Stream {
    server: DeltaSubscription,
}

impl Stream {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            server: DeltaSubscription::new(snapshot),
        }
    }

    /// A stream on which an empty request asks for nothing of this type.
    pub(crate) fn named_only(type_url: &str, snapshot: Arc<Snapshot>) -> Self {
        let settings = StreamSettings {
            named_only: [type_url.to_owned()].into(),
        };
        Self {
            server: DeltaSubscription::with_settings(snapshot, settings.into()),
        }
    }

    pub(crate) fn send(&mut self, request: DeltaDiscoveryRequest) -> RequestOutcome {
        self.server.handle_request(request)
    }

    /// Subscribes, and returns the responses.
    pub(crate) fn subscribe(&mut self, type_url: &str, names: &[&str]) -> Vec<Said> {
        self.send(request(type_url, names, &[]));
        self.said()
    }

    /// Unsubscribes, and returns the responses.
    pub(crate) fn unsubscribe(&mut self, type_url: &str, names: &[&str]) -> Vec<Said> {
        self.send(request(type_url, &[], names));
        self.said()
    }

    /// Subscribes on a new stream as a client that has these versions.
    pub(crate) fn resume(
        &mut self,
        type_url: &str,
        names: &[&str],
        has: &[(&str, &str)],
    ) -> Vec<Said> {
        let has = has.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        self.send(DeltaDiscoveryRequest {
            initial_resource_versions: has.collect(),
            ..request(type_url, names, &[])
        });
        self.said()
    }

    /// Serves another snapshot, and returns the responses.
    pub(crate) fn set(&mut self, snapshot: Arc<Snapshot>) -> Vec<Said> {
        self.server.handle_snapshot(snapshot);
        self.said()
    }

    pub(crate) fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.server.handle_snapshot(snapshot);
    }

    pub(crate) fn node_id(&self) -> Option<String> {
        self.server.node().map(ClientNode::id)
    }

    pub(crate) fn next(&mut self) -> Option<DeltaDiscoveryResponse> {
        let response = self.server.poll_response()?;
        Some(response.to_message().unwrap())
    }

    /// All responses that are due.
    pub(crate) fn responses(&mut self) -> Vec<DeltaDiscoveryResponse> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn said(&mut self) -> Vec<Said> {
        let responses = self.responses().into_iter();
        responses
            .map(|response| Said {
                type_url: response.type_url,
                resources: response.resources.into_iter().map(|r| r.name).collect(),
                removed: response.removed_resources,
            })
            .collect()
    }
}

pub(crate) fn request(
    type_url: &str,
    subscribe: &[&str],
    unsubscribe: &[&str],
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names_subscribe: strings(subscribe),
        resource_names_unsubscribe: strings(unsubscribe),
        ..DeltaDiscoveryRequest::default()
    }
}

pub(crate) fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        response_nonce: response.nonce.clone(),
        ..request(&response.type_url, &[], &[])
    }
}

pub(crate) fn nack(response: &DeltaDiscoveryResponse, message: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        error_detail: Some(rpc::Status {
            code: 3,
            message: message.to_owned(),
            ..rpc::Status::default()
        }),
        ..ack(response)
    }
}

/// The version of a resource.
pub(crate) fn version<'a>(snapshot: &'a Snapshot, type_url: &str, name: &str) -> &'a str {
    &snapshot.resource(type_url, name).unwrap().version
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}
