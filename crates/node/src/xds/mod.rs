//! An xDS server as a source of services (CFP-30235).
//!
//! Listeners say the addresses of services, clusters their names and rules, and endpoints their
//! backends. The agent reads the same type URLs as gRPC does, but by rules of its own. `docs/xds-mapping.md`
//! has them field by field:
//!
//! ```text
//! XdsClient -> NodeListener, NodeCluster, NodeEndpoints -> ResourceJoiner -> ServiceEvents
//! ```
//!
//! - [`NodeListener`], [`NodeCluster`], [`NodeEndpoints`]: the readings. A resource that asks for what cannot
//!   be done at `connect()` is refused, with the path of the field and the reason.
//! - [`ResourceJoiner`]: all three together as services. It is free of I/O.
//! - [`XdsSource`]: the driver.

mod address;
mod chain;
mod cluster;
mod endpoints;
mod envoy_policy;
mod join;
mod listener;
mod mapping;
mod metadata;
mod source;
mod traffic_policy;
mod weights;

pub use chain::{Chain, ChainProtocol, ClusterShare};
pub use cluster::{EndpointsFrom, NodeCluster};
pub use endpoints::{NodeEndpoint, NodeEndpoints, Share};
pub use join::{Joined, ResourceJoiner};
pub use listener::NodeListener;
pub use mapping::{METADATA_NAMESPACE, Mapping, Pods};
pub use source::{XdsOptions, XdsSource, XdsSourceError};
pub use traffic_policy::TrafficPolicy;
