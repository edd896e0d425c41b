//! The server half of one ADS stream: it decides which resources a client is sent next.
//!
//! It compares what the client asked for and was sent with the current [`Snapshot`]. The comparison
//! is made when the driver asks for the next response. So a client that is too slow for every
//! snapshot is sent only the newest. [`Subscription`] speaks state of the world, and
//! [`DeltaSubscription`] the incremental variant. A driver uses either through [`ServerHalf`].

mod client_node;
mod delta;
mod early;
mod interest;
mod lifetime;
mod missing;
mod response;
mod settings;
mod sotw;
mod types;
mod wish;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::names::canonical;
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message;

pub use client_node::ClientNode;
pub use delta::DeltaSubscription;
pub use response::{Response, Written};
pub use settings::StreamSettings;
pub use sotw::Subscription;
pub use wish::{Delivery, Wanted, Wish};

use crate::snapshot::Snapshot;

/// The order in which types are sent. Clusters and endpoints come before the lists and routes that
/// use them, because a route to a missing cluster would fail calls. (xDS protocol: Eventual
/// consistency considerations.)
const ORDER: [&str; 5] = [
    Cluster::TYPE_URL,
    Endpoints::TYPE_URL,
    ClusterConfig::TYPE_URL,
    Listener::TYPE_URL,
    RouteConfig::TYPE_URL,
];

/// The types that routes or clusters may still refer to, so their removals are sent after
/// everything else. Clusters are removed before the endpoints that they use (xDS protocol: Eventual
/// consistency considerations).
const REMOVED_LAST: [&str; 2] = [Cluster::TYPE_URL, Endpoints::TYPE_URL];

const WILDCARD: &str = "*";

/// The server half of one ADS stream, of either variant of the protocol.
///
/// After each input, call [`poll_response`](Self::poll_response) until it returns `None`.
pub trait ServerHalf {
    /// A request of the client.
    type Request;

    /// A stream that has just been opened, to be served from `snapshot`.
    fn new(snapshot: Arc<Snapshot>, settings: Arc<StreamSettings>) -> Self;
    /// The identity of the client; `None` until its first request.
    fn node(&self) -> Option<&ClientNode>;
    /// Takes a request, and returns its meaning.
    fn handle_request(&mut self, request: Self::Request) -> RequestOutcome;
    /// True if the last request did nothing but answer a response, and was the first to answer it.
    /// There are no more of these than responses, so a server need not limit them.
    fn was_answer_alone(&self) -> bool;
    /// The number of resources that the last request makes the server look at although it did not name them, because it
    /// asked for all. Its bytes say nothing about that work, so a server may limit it by this number.
    fn listed(&self) -> usize;
    /// The amount that the stream holds because the client asked for it.
    fn held(&self) -> Held;
    /// The wish of the client for a type; `None` if it did not ask for the type.
    fn wish(&self, type_url: &str) -> Option<Wish>;
    /// True if a resource of a type is to be looked at before the next response, as in
    /// [`Wish::waiting`]. It costs next to nothing, because it counts nothing. A driver may ask after
    /// each request, even if the client has named thousands of resources.
    fn is_waiting(&self, type_url: &str) -> bool;
    /// Each resource of a type that the client wants, ordered by name.
    fn wanted(&self, type_url: &str) -> Vec<Wanted>;
    /// True if the client wants a resource that exists.
    fn serves(&self, type_url: &str, name: &str) -> bool;
    /// Serves from `snapshot` from now on.
    fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>);
    /// Tells the time. Without it nothing is due by time alone.
    fn handle_time(&mut self, now: Instant);
    /// The next time at which a response may be due, if nothing else happens before.
    fn next_timeout(&self) -> Option<Instant>;
    /// The next response that is due; `None` if there is none now.
    fn poll_response(&mut self) -> Option<Response>;

    /// The identity of the client, as a request has it.
    fn node_in(request: &Self::Request) -> Option<&Node>;
    /// The nonce of the response that a request answers; empty if it answers none.
    fn nonce_in(request: &Self::Request) -> &str;
    /// The number of names in the longest list of a request.
    fn names_in(request: &Self::Request) -> usize;
    /// The type that a request is about.
    fn type_of(request: &mut Self::Request) -> &mut String;
}

/// The amount that a stream holds because its client asked for it. A server compares it with its
/// limits after each request.
///
/// ```
/// use std::sync::Arc;
/// use crowfly_xds::{Held, ServerHalf, Snapshot, Subscription};
/// use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
///
/// let mut stream = Subscription::new(Arc::new(Snapshot::default()));
/// stream.handle_request(DiscoveryRequest {
///     type_url: "type.googleapis.com/x.Y".into(),
///     resource_names: vec!["ab".into(), "c".into()],
///     ..Default::default()
/// });
/// assert_eq!(stream.held(), Held { types: 1, names: 2, all_names: 2, bytes: 3 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The number of types.
    pub types: usize,
    /// The number of names of the type that has most of them.
    pub names: usize,
    /// The number of names of all types.
    pub all_names: usize,
    /// The bytes of the names of all types.
    pub bytes: usize,
}

impl Held {
    /// The sum over all types, each with its number of names and their bytes.
    fn of(types: impl Iterator<Item = (usize, usize)>) -> Self {
        types.fold(Self::default(), |held, (names, bytes)| Self {
            types: held.types + 1,
            names: held.names.max(names),
            all_names: held.all_names + names,
            bytes: held.bytes + bytes,
        })
    }
}

/// The meaning of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The client accepted a response, or changed its names.
    Ack {
        /// The type that the request is about.
        type_url: String,
        /// The version the client now has.
        version: String,
    },
    /// The client refused a response. The same version is not sent again.
    Nack {
        /// The type that the request is about.
        type_url: String,
        /// The version that was refused.
        version: String,
        /// The client's reason.
        message: String,
    },
    /// The request answers a response for which no answer is expected. In state of the world, the
    /// response is not the newest of its type, and the whole request is ignored. In the incremental
    /// variant, the response was answered before, but changes of names in the request still count.
    Stale {
        /// The type that the request is about.
        type_url: String,
    },
    /// The client asked for resources without answering a response. It is the first request for its
    /// type or, in the incremental variant, a change of names.
    Subscribed {
        /// The type that the request is about.
        type_url: String,
    },
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
    let name = service_name.unwrap_or_else(|| cluster.to_owned());
    Some(same_spelling(&name).into_owned())
}

/// True for types where absence means deletion, so that each response lists all resources (gRFC
/// A53).
fn all_in_one_response(type_url: &str) -> bool {
    type_url == Listener::TYPE_URL || type_url == Cluster::TYPE_URL
}

/// A type URL as a stream keeps it.
type TypeUrl = Cow<'static, str>;

/// A type URL to keep. Nearly all are known, and take no memory.
///
/// ```
/// let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
/// assert!(matches!(crowfly_xds::shared_type_url(&url), std::borrow::Cow::Borrowed(_)));
/// assert_eq!(crowfly_xds::shared_type_url("type.googleapis.com/x.Y"), "type.googleapis.com/x.Y");
/// ```
pub fn shared_type_url(type_url: &str) -> Cow<'static, str> {
    let known = ORDER.into_iter().find(|known| *known == type_url);
    known.map_or_else(|| Cow::Owned(type_url.to_owned()), Cow::Borrowed)
}

/// The spelling by which snapshots hold a name (xRFC TP1). A malformed name is held as it is.
fn same_spelling(name: &str) -> Cow<'_, str> {
    canonical(name).unwrap_or(Cow::Borrowed(name))
}
