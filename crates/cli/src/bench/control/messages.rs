//! The fields of responses that the clients of the benchmark look at.
//!
//! They skip all others, because reading a response must cost a client much less than sending it costs the server.

use bytes::Bytes;
use prost::Message;

use super::resources::{CLUSTERS, ENDPOINTS};

/// A response of state of the world.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SotwResponse {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Body>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// A response of delta.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeltaResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Named>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// A resource of delta.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, optional, tag = "2")]
    pub(super) body: Option<Body>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// The bytes of a resource.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Body {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct NumberedCluster {
    #[prost(string, tag = "28")]
    alt_stat_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct NumberedEndpoints {
    #[prost(message, optional, tag = "4")]
    policy: Option<Policy>,
}

#[derive(Clone, PartialEq, Message)]
struct Policy {
    #[prost(message, optional, tag = "3")]
    overprovisioning_factor: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(uint32, tag = "1")]
    value: u32,
}

/// The number of the change that made a resource; `None` if it has none.
pub(super) fn number_in(type_url: &str, value: Bytes) -> Option<u32> {
    match type_url {
        CLUSTERS => {
            let cluster = NumberedCluster::decode(value).ok()?;
            cluster.alt_stat_name.parse().ok()
        }
        ENDPOINTS => {
            let endpoints = NumberedEndpoints::decode(value).ok()?;
            Some(endpoints.policy?.overprovisioning_factor?.value)
        }
        _ => None,
    }
}
