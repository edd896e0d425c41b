//! xDS resources by the rules of gRPC (gRFC A27 and those that amend it).
//!
//! Each type here is the valid form of one resource and, as a [`ResourceType`](crate::ResourceType),
//! knows how to read it. Fields that gRPC gives no meaning to are ignored, as A27 asks. A field that
//! has a meaning which this crate cannot honour yet is an error, takes its route out of the list, or
//! is among what is [`Unsupported`](crate::Unsupported): calls never go where the resource keeps them
//! from going, and what is not done is said.

pub mod cluster;
pub mod endpoints;
pub mod listener;
pub mod route;

mod any;
mod cluster_config;
mod config_source;
mod decode;
mod json;
mod socket_address;

pub use cluster::Cluster;
pub use cluster_config::ClusterConfig;
pub use endpoints::Endpoints;
pub use listener::Listener;
pub use route::RouteConfig;
