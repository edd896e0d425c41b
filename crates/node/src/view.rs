//! The state of an agent, as data. Text and JSON are made from it at the edge, because both must have the same
//! facts.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// An agent's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The name of the node, if it was given.
    pub node: Option<String>,
    /// The zone of the node, if it was given.
    pub zone: Option<String>,
    /// The sources, the one that wins first.
    pub sources: Vec<SourceView>,
    /// The services that are too large to be routed.
    #[serde(default)]
    pub refused: Vec<RefusedView>,
    /// The frontends, in the order of their addresses.
    pub frontends: Vec<FrontendView>,
}

/// A source of services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// `silent`, `listing`, `synced`, or `failed` with the reason.
    pub status: String,
    /// The number of its services.
    pub services: usize,
    /// Its last failure, even if it has recovered.
    pub last_error: Option<ErrorView>,
}

/// A service that is not routed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedView {
    /// The service, as `namespace/name`.
    pub service: String,
    /// The source that it is from.
    pub source: String,
    /// The reason.
    pub reason: String,
}

/// A failure of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorView {
    /// The reason.
    pub reason: String,
    /// Its time (RFC 3339).
    pub at: String,
}

/// A frontend with its backends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontendView {
    /// Its address.
    pub address: SocketAddr,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// The service, as `namespace/name`.
    pub service: String,
    /// The name of the service's port; it may be empty.
    pub port: String,
    /// The source that it is from.
    pub source: String,
    /// Shadowed services: they claim the ClusterIP, and another service has it.
    pub shadowed: Vec<ShadowedView>,
    /// The timeout of session affinity, if there is affinity.
    pub affinity_seconds: Option<u64>,
    /// True if connections are routed as shown here.
    pub programmed: bool,
    /// The reason why they are not.
    pub error: Option<String>,
    /// Sources that were not heard yet. Until they are, the frontend is as a former agent left it.
    pub waits_for: Vec<String>,
    /// The error of connections, if there is no backend: `refused` or `unreachable`.
    pub without: Option<String>,
    /// The backends that get connections.
    pub backends: Vec<BackendView>,
    /// The backends that get none.
    pub left_out: Vec<LeftOutView>,
}

/// A shadowed service: it claims a ClusterIP, and another service has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowedView {
    /// The service, as `namespace/name`.
    pub service: String,
    /// The source that it is from.
    pub source: String,
    /// The reason why another service has the ClusterIP.
    pub reason: String,
}

/// A backend that gets connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendView {
    /// Its address.
    pub address: SocketAddr,
    /// The cluster that it is in, if that is not the cluster of the agent.
    pub cluster: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Its share of new connections, from 0 to 1.
    pub share: f64,
    /// Connections since the maps exist.
    pub opened: u64,
    /// Connections that are open.
    pub active: u64,
    /// Connections that the backend did not accept.
    pub failed: u64,
}

/// A backend that gets no connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOutView {
    /// Its address. The port is missing if it has none for the frontend.
    pub address: String,
    /// The cluster that it is in, if that is not the cluster of the agent.
    pub cluster: Option<String>,
    /// The reason.
    pub reason: String,
}
