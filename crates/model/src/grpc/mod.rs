//! xDS resources by the rules of gRPC (gRFC A27 and those that amend it).
//!
//! Each type here is the valid form of one resource and, as a [`ResourceType`](crate::ResourceType),
//! knows how to read it. Fields that gRPC gives no meaning to are ignored, as A27 asks.
//!
//! A field with a meaning that this crate does not support is never ignored without a record. Otherwise calls might go
//! where the resource forbids them to go. Such a field is an error, or its route is left out, or it is recorded as
//! [`Unsupported`](crate::Unsupported).

pub mod cluster;
pub mod endpoints;
pub mod filter;
pub mod listener;
pub mod plain;
pub mod route;

mod any;
mod cluster_config;
mod config_source;
mod decode;
mod duration;
mod fraction;
mod json;
mod safe_regex;
mod socket_address;
mod string_matcher;

/// Steps that the readings of other data planes share with those of gRPC.
pub mod steps {
    pub use super::any::{message, to_typed_struct, type_name, typed_struct};
    pub use super::config_source::{require_ads_or_self, require_self};
    pub use super::decode::decode;
    pub use super::socket_address::field as socket_address;
    pub use super::string_matcher::parse as string_matcher;
}

pub use cluster::Cluster;
pub use cluster_config::ClusterConfig;
pub use endpoints::Endpoints;
pub use fraction::Fraction;
pub use listener::Listener;
pub use route::RouteConfig;
pub use safe_regex::{InvalidRegex, SafeRegex};
pub use string_matcher::{StringMatcher, StringPattern};
