//! `envoy.config.endpoint.v3.ClusterLoadAssignment`: the endpoints of a cluster, grouped by
//! priority and locality.

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
    /// The localities of each priority, highest priority first; none is without a locality.
    ///
    /// Empty is valid: such a cluster has nowhere to send a call (S3-13). Localities are sorted,
    /// so that a server that lists them in another order changes nothing.
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

/// The endpoints of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdsLocality {
    /// Where; unique in its priority.
    pub id: LocalityId,
    /// Its share of calls; the weights of a priority add up to at most `u32::MAX`.
    pub weight: NonZeroU32,
    /// Those that may get calls; empty if the server calls all of them unhealthy.
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
    /// Its addresses, at least one; the first is the main one (gRFC A61).
    pub addresses: Vec<SocketAddr>,
    /// Its share of calls, for policies that weigh endpoints.
    pub weight: NonZeroU32,
    /// What the server says of its health.
    pub health: Health,
    /// What decides its place on a hash ring, if it is not its main address (gRFC A76).
    pub hash_key: Option<Box<str>>,
}

/// What the server says of an endpoint's health; endpoints in any other state are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// It does not say; as good as healthy.
    Unknown,
    /// Healthy.
    Healthy,
    /// It is about to go: no new calls but those of sessions that stick to it (gRFC A55).
    Draining,
}
