//! Endpoints: the backends of a cluster, with their health, weights and places.
//!
//! A weight is an exact fraction here, because the weight of a locality is divided among its endpoints.

mod packed;

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::grpc::steps;
use crowfly_model::{Decoded, ResourceType, Unsupported, Validator};
use crowfly_names::LocalityId;
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3 as pb;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;

use super::address;
use super::mapping::Mapping;
use super::metadata;
use crate::model::Health;
use packed::Packed;

/// The largest priority, as in Envoy.
const MAX_PRIORITY: u32 = 128;

/// The endpoints of a cluster, as the agent reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoints {
    endpoints: Packed,
    /// Fields that are set and have no effect.
    pub unsupported: Box<[Unsupported]>,
}

impl NodeEndpoints {
    /// These endpoints.
    pub fn new(endpoints: &[NodeEndpoint]) -> Self {
        Self {
            endpoints: Packed::new(endpoints),
            unsupported: Box::default(),
        }
    }

    /// The endpoints, in the order of the resource.
    pub fn endpoints(&self) -> impl Iterator<Item = NodeEndpoint> {
        self.endpoints.iter()
    }
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Its addresses, at most a few: those of other families are alternatives.
    pub addresses: Vec<SocketAddr>,
    /// Its health.
    pub health: Health,
    /// The node that it is on, if the resource says it.
    pub node: Option<Arc<str>>,
    /// The locality that it is in.
    pub locality: LocalityId,
    /// Only endpoints of the lowest number that has usable ones get connections.
    pub priority: u32,
    /// Its share of new connections.
    pub share: Share,
}

/// An exact weight: a fraction, because the weight of a locality is divided among its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The numerator. 0 takes the endpoint out of use.
    pub numerator: u64,
    /// The denominator, at least 1.
    pub denominator: u64,
}

impl ResourceType for NodeEndpoints {
    type Parsed = Self;
    type Context = Mapping;

    const TYPE_URL: &'static str =
        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    const NOUN: &'static str = "endpoints";
    const ALL_IN_SOTW: bool = false;
    const KEEPS_BYTES: bool = false;

    fn parse(bytes: &[u8], mapping: &Mapping) -> Decoded<Self> {
        steps::decode(
            bytes,
            "cluster_name",
            |proto: &pb::ClusterLoadAssignment| &proto.cluster_name,
            |proto, v| {
                let (endpoints, unsupported) = v.take_unsupported(|v| parse(&proto, mapping, v));
                Some(Self {
                    unsupported,
                    ..endpoints
                })
            },
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

/// Reads endpoints. They are valid only if `v` has no errors.
pub(super) fn parse(
    proto: &pb::ClusterLoadAssignment,
    mapping: &Mapping,
    v: &mut Validator,
) -> NodeEndpoints {
    check_policy(proto, v);
    // Envoy's weights of localities are optional. If one has a weight, those without one get nothing.
    let localities = || proto.endpoints.iter();
    let is_weighted = localities().any(|locality| locality.load_balancing_weight.is_some());
    let mut endpoints = Vec::new();
    v.field("endpoints", |v| {
        for (i, locality) in localities().enumerate() {
            v.index(i, |v| {
                let mut read = read_locality(locality, mapping, v);
                if is_weighted {
                    let weight = locality.load_balancing_weight.map_or(0, |it| it.value);
                    divide(weight, &mut read);
                }
                endpoints.append(&mut read);
            });
        }
    });
    NodeEndpoints::new(&endpoints)
}

fn check_policy(proto: &pb::ClusterLoadAssignment, v: &mut Validator) {
    if !proto.named_endpoints.is_empty() {
        v.error_at("named_endpoints", "expected none, got some");
    }
    let Some(policy) = &proto.policy else { return };
    v.field("policy", |v| {
        let mut drops = policy.drop_overloads.iter();
        let is_dropping = drops.any(|drop| {
            let share = drop.drop_percentage.as_ref();
            share.is_some_and(|share| share.numerator > 0)
        });
        if is_dropping {
            v.error_at("drop_overloads", "cannot be done at connect()");
        }
        if policy.overprovisioning_factor.is_some() {
            let message = "a priority is used while it has a usable endpoint";
            v.unsupported_at("overprovisioning_factor", message);
        }
        if policy.endpoint_stale_after.is_some() {
            let message = "endpoints are used until the server takes them away";
            v.unsupported_at("endpoint_stale_after", message);
        }
    });
}

fn read_locality(
    proto: &pb::LocalityLbEndpoints,
    mapping: &Mapping,
    v: &mut Validator,
) -> Vec<NodeEndpoint> {
    if proto.priority > MAX_PRIORITY {
        let message = format!("expected at most {MAX_PRIORITY}, got {}", proto.priority);
        v.error_at("priority", message);
    }
    if proto.lb_config.is_some() {
        v.error("expected lb_endpoints, got load_balancer_endpoints or LEDS");
    }
    let node = metadata::read(proto.metadata.as_ref(), mapping, v, |fields, v| {
        metadata::name(fields, "node_name", v)
    });
    let locality = proto
        .locality
        .as_ref()
        .filter(|id| !id.region.is_empty() || !id.zone.is_empty() || !id.sub_zone.is_empty())
        .map(|id| LocalityId::new(&id.region, &id.zone, &id.sub_zone));
    let locality = locality.unwrap_or_default();
    v.field("lb_endpoints", |v| {
        let endpoints = proto.lb_endpoints.iter().enumerate();
        let read = |(i, endpoint)| {
            v.index(i, |v| {
                let endpoint = read_endpoint(endpoint, mapping, v)?;
                Some(NodeEndpoint {
                    node: endpoint.node.clone().or_else(|| node.clone()),
                    locality: locality.clone(),
                    priority: proto.priority,
                    ..endpoint
                })
            })
        };
        endpoints.filter_map(read).collect()
    })
}

/// Reads an endpoint, still without its locality.
fn read_endpoint(
    proto: &pb::LbEndpoint,
    mapping: &Mapping,
    v: &mut Validator,
) -> Option<NodeEndpoint> {
    let weight = proto.load_balancing_weight.map_or(1, |weight| weight.value);
    if weight == 0 {
        v.error_at("load_balancing_weight", "expected at least 1, got 0");
    }
    let node = metadata::read(proto.metadata.as_ref(), mapping, v, |fields, v| {
        metadata::name(fields, "node_name", v)
    });
    let health = health(proto.health_status, v);
    let addresses = v.field("endpoint", |v| match &proto.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => addresses(endpoint, v),
        Some(HostIdentifier::EndpointName(name)) => {
            v.error(format!("expected an endpoint, got endpoint_name {name:?}"));
            None
        }
        None => {
            v.error("expected an endpoint, got none");
            None
        }
    });
    Some(NodeEndpoint {
        addresses: addresses?,
        health: health?,
        node,
        locality: LocalityId::default(),
        priority: 0,
        share: Share {
            numerator: weight.into(),
            denominator: 1,
        },
    })
}

fn health(status: i32, v: &mut Validator) -> Option<Health> {
    Some(match HealthStatus::try_from(status) {
        Ok(HealthStatus::Unknown | HealthStatus::Healthy) => Health::Healthy,
        Ok(HealthStatus::Draining) => Health::Draining,
        Ok(HealthStatus::Degraded) => Health::Degraded,
        Ok(HealthStatus::Unhealthy | HealthStatus::Timeout) => Health::Unhealthy,
        Err(_) => {
            v.error_at("health_status", format!("expected 0 to 5, got {status}"));
            return None;
        }
    })
}

fn addresses(proto: &pb::Endpoint, v: &mut Validator) -> Option<Vec<SocketAddr>> {
    let main = address::endpoint(proto.address.as_ref(), v);
    let others = v.field("additional_addresses", |v| {
        let others = proto.additional_addresses.iter().enumerate();
        let read: Vec<_> = others
            .map(|(i, other)| v.index(i, |v| address::endpoint(other.address.as_ref(), v)))
            .collect();
        read.into_iter().collect::<Option<Vec<_>>>()
    });
    let mut addresses = vec![main?];
    addresses.append(&mut others?);
    Some(addresses)
}

/// Divides the weight of a locality among its endpoints, by their own weights.
///
/// Fallbacks get connections only while no other endpoint does. So each of the two kinds has the whole weight,
/// and an endpoint that begins to drain does not take its locality's share with it.
fn divide(weight: u32, endpoints: &mut [NodeEndpoint]) {
    let tier = |endpoint: &NodeEndpoint| match endpoint.health {
        Health::Healthy => 0,
        Health::Degraded | Health::Draining => 1,
        Health::Unhealthy => 2,
    };
    let mut sums = [0_u64; 3];
    for endpoint in &*endpoints {
        sums[tier(endpoint)] += endpoint.share.numerator;
    }
    for endpoint in endpoints {
        endpoint.share = Share {
            // Both factors have 32 bits.
            numerator: endpoint.share.numerator * u64::from(weight),
            denominator: sums[tier(endpoint)].max(1),
        };
    }
}
