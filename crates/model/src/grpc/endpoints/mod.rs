//! `envoy.config.endpoint.v3.ClusterLoadAssignment`: the endpoints of a cluster, grouped by
//! priority and locality.
//!
//! The groups are kept, because balancing policies choose a priority first, and a locality in it.

mod address;
mod drops;
mod parse;

use std::{net::SocketAddr, num::NonZeroU32};

pub use crowfly_names::LocalityId;
use envoy_types::pb::envoy::config::{core::v3 as core, endpoint::v3 as pb};

pub use self::drops::DropOverload;
use super::decode::decode;
use crate::{Decoded, Features, ResourceType, Unsupported};

/// The endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The resource's name.
    pub name: String,
    /// The localities of each priority, highest priority first. Every priority has a locality.
    ///
    /// An empty list is valid; calls of such a cluster fail (S3-13). Localities are sorted, because
    /// their order in the resource has no meaning.
    pub priorities: Vec<Vec<EdsLocality>>,
    /// The shares of calls to be dropped, in the order in which they are tried.
    pub drops: Vec<DropOverload>,
    /// Fields of the resource that are set and have no effect.
    pub unsupported: Box<[Unsupported]>,
}

impl ResourceType for Endpoints {
    type Parsed = Self;
    type Context = Features;

    const TYPE_URL: &'static str =
        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    const NOUN: &'static str = "endpoints";
    const ALL_IN_SOTW: bool = false;

    fn parse(bytes: &[u8], _: &Features) -> Decoded<Self> {
        decode(
            bytes,
            "cluster_name",
            |proto: &pb::ClusterLoadAssignment| &proto.cluster_name,
            |proto, v| Some(parse::parse(proto, v)),
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

/// The endpoints of one locality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdsLocality {
    /// Region, zone and sub-zone; unique in the priority.
    pub id: LocalityId,
    /// The locality's share of calls; the weights of a priority add up to at most `u32::MAX`.
    pub weight: NonZeroU32,
    /// The endpoints that may get calls; empty if the server reports all of them as unhealthy.
    pub endpoints: Vec<EdsEndpoint>,
}

/// The locality that a proto names.
pub(crate) fn locality_id(proto: &core::Locality) -> LocalityId {
    LocalityId::new(&proto.region, &proto.zone, &proto.sub_zone)
}

/// The proto that names a locality.
pub(crate) fn locality_proto(id: &LocalityId) -> core::Locality {
    core::Locality {
        region: id.region().to_owned(),
        zone: id.zone().to_owned(),
        sub_zone: id.sub_zone().to_owned(),
    }
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdsEndpoint {
    /// The addresses of the backend, at least one; the first is the main one (gRFC A61).
    pub addresses: Vec<SocketAddr>,
    /// The backend's share of calls, for policies that weigh endpoints.
    pub weight: NonZeroU32,
    /// The health of the endpoint, as the xDS server reports it.
    pub health: Health,
    /// The text that is hashed for the endpoint's place on a hash ring; `None` if it is the main address (gRFC A76).
    pub hash_key: Option<Box<str>>,
    /// The name of the backend, for `:authority` and for TLS; `None` if it has none (gRFC A81).
    pub hostname: Option<Box<str>>,
}

/// The health of an endpoint, as the xDS server reports it. Endpoints of any other health are left out,
/// because they must get no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// The server does not report the health. The endpoint is used like a healthy one.
    Unknown,
    /// The endpoint is healthy.
    Healthy,
    /// The endpoint will go away soon. The endpoint gets new calls only from its own sessions (gRFC A55).
    Draining,
}
