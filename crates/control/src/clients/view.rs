//! The clients as values. The page `/clients`, `crowfly clients --json` and the tables of `crowfly clients` are
//! made from them, because all three must have the same facts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The clients that are connected.
///
/// ```
/// let list: crowfly_control::clients::ClientList = serde_json::from_str(r#"{ "clients": [] }"#)?;
/// assert!(list.clients.is_empty());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientList {
    /// One entry for each stream, the oldest first.
    pub clients: Vec<ClientView>,
}

/// One stream of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientView {
    /// The number of the stream.
    pub stream: u64,
    /// The variant of the protocol.
    pub protocol: Protocol,
    /// The address of the client.
    pub peer: Option<SocketAddr>,
    /// The names in the certificate of the client; none without one.
    #[serde(default)]
    pub identity: Vec<String>,
    /// The time at which the stream was opened, in seconds since 1970.
    pub connected_at: u64,
    /// The identity of the client; `None` before its first request.
    pub node: Option<NodeView>,
    /// The view that it is served; `None` if it is served the base.
    pub view: Option<String>,
    /// The types that it asked for, by type URL.
    pub types: BTreeMap<String, TypeView>,
    /// The time since which it does not take a response, in seconds since 1970; `None` if it does.
    #[serde(default)]
    pub slow_since: Option<u64>,
    /// The limits that it has reached, by the name of the limit.
    #[serde(default)]
    pub limits_reached: BTreeMap<String, LimitView>,
    /// The resources that it wants; `None` unless one node was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceView>>,
}

/// A limit that a client has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitView {
    /// The number of times.
    pub times: u64,
    /// The last time, in seconds since 1970.
    pub last_at: u64,
}

/// The variant of xDS that a stream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// State of the world.
    #[default]
    StateOfTheWorld,
    /// Incremental.
    Delta,
}

/// The identity that a client gave in its first request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// The id of the node.
    pub id: String,
    /// The cluster of the node.
    pub cluster: String,
    /// The family of the client: `envoy`, `grpc` or `node`; `None` if it is not known.
    pub kind: Option<String>,
    /// The program and its version, such as `envoy 1.40.0`.
    pub user_agent: String,
    /// The locality, such as `eu/a`; empty if it has none.
    pub locality: String,
}

/// The state of a resource, or of the worst resource of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The client accepted the newest version.
    Acked,
    /// The client wants a resource that does not exist.
    Missing,
    /// The newest version was sent, and is not answered yet.
    Sent,
    /// The newest version is not sent yet.
    #[default]
    Waiting,
    /// The client refused the newest version that it was sent.
    Nacked,
}

/// One type on a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TypeView {
    /// The state of the type.
    pub state: State,
    /// True if the client wants all resources of the type.
    pub wildcard: bool,
    /// The number of resources that the client wants.
    pub resources: usize,
    /// The number of resources that may have to be sent.
    pub waiting: usize,
    /// The number of resources that were sent and not answered yet.
    pub unanswered: usize,
    /// The number of resources that were refused, or of those of which one was.
    pub refused: usize,
    /// The version of the newest response.
    pub sent_version: Option<String>,
    /// The time of the newest response, in seconds since 1970.
    pub sent_at: Option<u64>,
    /// The newest version that the client accepted.
    pub acked_version: Option<String>,
    /// The time of its newest ACK, in seconds since 1970.
    pub acked_at: Option<u64>,
    /// The seconds since the oldest change that the client has not accepted; `None` if there is none.
    pub lag_seconds: Option<f64>,
    /// The newest refusal, which may be over.
    pub last_nack: Option<NackView>,
}

/// One resource that a client wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceView {
    /// The type of the resource.
    pub type_url: String,
    /// The name of the resource.
    pub name: String,
    /// The state of the resource.
    pub state: State,
    /// The version that is served; `None` if the resource does not exist.
    pub version: Option<String>,
    /// The version that the client was sent last.
    pub sent_version: Option<String>,
    /// The time at which it was sent, in seconds since 1970; `None` if it is not known any more.
    pub sent_at: Option<u64>,
    /// The newest version that the client accepted, or said it has.
    pub acked_version: Option<String>,
    /// The seconds since a change that the client has not accepted; `None` if there is none.
    pub lag_seconds: Option<f64>,
    /// The refusal, if the client has not accepted another version since.
    pub nack: Option<NackView>,
}

/// A refusal of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NackView {
    /// The version that was refused.
    pub version: String,
    /// The client's reason. A very long one is cut.
    pub message: String,
    /// The time of the refusal, in seconds since 1970.
    pub at: u64,
    /// The number of resources that it may be about: a refusal is of a response, and this one names
    /// none of the resources in it. It is 1 if it names them.
    pub one_of: usize,
}
