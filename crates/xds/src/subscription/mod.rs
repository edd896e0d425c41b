//! The server half of one ADS stream: what one client asked for, and what it was sent.
//!
//! The difference between that and the current [`Snapshot`] is what is due; it is worked out when
//! the driver asks for the next response, so a client too slow for every snapshot is sent the newest
//! only. [`Subscription`] speaks state of the world, [`DeltaSubscription`] the incremental variant,
//! and [`ServerHalf`] is what a driver needs of either.

mod delta;
mod interest;
mod sotw;

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::Resource;
use prost::Message;

pub use delta::DeltaSubscription;
pub use sotw::Subscription;

use crate::snapshot::{Snapshot, SnapshotResource};

/// Make before break: a client hears of clusters and endpoints before the lists and the routes that
/// use them (xDS protocol: Eventual consistency considerations).
const ORDER: [&str; 5] = [
    Cluster::TYPE_URL,
    Endpoints::TYPE_URL,
    ClusterConfig::TYPE_URL,
    Listener::TYPE_URL,
    RouteConfig::TYPE_URL,
];

const WILDCARD: &str = "*";

/// The version of a type that has no resources.
const EMPTY_VERSION: &str = "empty";

/// The server half of one ADS stream, of either variant of the protocol.
///
/// After each input, call [`poll_response`](Self::poll_response) until it returns `None`.
pub trait ServerHalf {
    /// What the client sends.
    type Request;
    /// What it is sent.
    type Response;

    /// A stream that has just been opened, to be served from `snapshot`.
    fn new(snapshot: Arc<Snapshot>) -> Self;
    /// The client, once its first request has come.
    fn node(&self) -> Option<&Node>;
    /// Takes a request, and tells what it was.
    fn handle_request(&mut self, request: Self::Request) -> RequestOutcome;
    /// Serves from `snapshot` from now on.
    fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>);
    /// The next response that is due.
    fn poll_response(&mut self) -> Option<Self::Response>;

    /// The type that a request is about.
    fn requested_type(request: &Self::Request) -> &str;
    /// The type and the version of a response.
    fn type_and_version(response: &Self::Response) -> (&str, &str);
}

/// What a request turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The client accepted what it was sent, or changed its names.
    Ack {
        /// The type it is about.
        type_url: String,
        /// The version the client now has.
        version: String,
    },
    /// The client refused what it was sent; the same version is not sent again.
    Nack {
        /// The type it is about.
        type_url: String,
        /// The version that was refused.
        version: String,
        /// The client's reason.
        message: String,
    },
    /// It answers a response that no answer is expected to: in state of the world one that is not
    /// the newest of its type, which makes the whole request void; in the incremental variant one
    /// that was answered before, and the names it changes count all the same.
    Stale {
        /// The type it is about.
        type_url: String,
    },
    /// The client asked, without an answer to a response: the first request for its type, or, in the
    /// incremental variant, any change of names.
    Subscribed {
        /// The type it is about.
        type_url: String,
    },
}

/// A resource under its name and version.
fn wrapped(name: &str, resource: &SnapshotResource) -> Resource {
    Resource {
        name: name.to_owned(),
        version: resource.version.to_string(),
        resource: Some(resource.any.clone()),
        ..Resource::default()
    }
}

/// The name of the endpoints of a cluster that is in the snapshot.
///
/// Envoy keeps a changed cluster warming until it is sent that cluster's endpoints again, even if
/// they are the same (xDS protocol: Resource warming).
fn endpoints_of(snapshot: &Snapshot, cluster: &str) -> Option<String> {
    let resource = snapshot.resource(Cluster::TYPE_URL, cluster)?;
    let service_name = ClusterProto::decode(resource.any.value.as_slice())
        .ok()
        .and_then(|cluster| cluster.eds_cluster_config)
        .map(|eds| eds.service_name)
        .filter(|name| !name.is_empty());
    Some(service_name.unwrap_or_else(|| cluster.to_owned()))
}
