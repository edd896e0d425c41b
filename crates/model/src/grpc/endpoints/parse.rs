//! From the proto to [`Endpoints`].
//!
//! The proto is a flat list; here it becomes priorities without gaps, each with localities in order.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    num::NonZeroU32,
};

use envoy_types::pb::{
    envoy::config::{
        core::v3::{Address, HealthStatus, Metadata},
        endpoint::v3::{self as pb, lb_endpoint::HostIdentifier},
    },
    google::protobuf::{UInt32Value, value::Kind},
};

use super::{EdsEndpoint, EdsLocality, Endpoints, Health, LocalityId, address, drops, locality_id};
use crate::Validator;

/// Reads an endpoints resource. The result is valid only if `v` has no errors.
pub(super) fn parse(proto: pb::ClusterLoadAssignment, v: &mut Validator) -> Endpoints {
    let (priorities, unsupported) = v.take_unsupported(|v| {
        v.field("endpoints", |v| {
            let mut priorities = Priorities::default();
            for (i, locality) in proto.endpoints.into_iter().enumerate() {
                v.index(i, |v| priorities.add(locality, v));
            }
            priorities.finish(v)
        })
    });
    let overloads = proto.policy.map(|policy| policy.drop_overloads);
    let drops = v.field("policy.drop_overloads", |v| {
        let overloads = overloads.unwrap_or_default().into_iter().enumerate();
        overloads
            .filter_map(|(i, overload)| v.index(i, |v| drops::parse(overload, v)))
            .collect()
    });
    Endpoints {
        name: proto.cluster_name,
        priorities,
        drops,
        unsupported,
    }
}

/// The localities read so far, and all their addresses, because an address may be there only once.
#[derive(Default)]
struct Priorities {
    by_number: BTreeMap<u32, BTreeMap<LocalityId, EdsLocality>>,
    addresses: HashSet<SocketAddr>,
}

impl Priorities {
    fn add(&mut self, proto: pb::LocalityLbEndpoints, v: &mut Validator) {
        // gRFC A27: a locality without a weight gets no calls, so it is not validated (S3-11).
        let Some(weight) = proto.load_balancing_weight.and_then(non_zero) else {
            return;
        };
        let endpoints = v.field("lb_endpoints", |v| {
            let endpoints = proto.lb_endpoints.into_iter().enumerate();
            let mut endpoints = endpoints
                .filter_map(|(i, endpoint)| v.index(i, |v| self.parse_endpoint(endpoint, v)))
                .collect::<Vec<_>>();
            // The endpoints were collected in the allocation of the protos, which are ten times as large.
            endpoints.shrink_to_fit();
            if let Some(message) = sum_error(endpoints.iter().map(|endpoint| endpoint.weight)) {
                v.error(message);
            }
            endpoints
        });
        let Some(id) = proto.locality.as_ref().map(locality_id) else {
            v.error_at("locality", "expected a locality, got none");
            return;
        };
        let localities = self.by_number.entry(proto.priority).or_default();
        if localities.contains_key(&id) {
            let priority = proto.priority;
            v.error_at(
                "locality",
                format!("expected it once in priority {priority}, got {id} again"),
            );
            return;
        }
        let locality = EdsLocality {
            id: id.clone(),
            weight,
            endpoints,
        };
        localities.insert(id, locality);
    }

    /// The endpoint; `None` if its health allows no calls, or after an error.
    fn parse_endpoint(&mut self, proto: pb::LbEndpoint, v: &mut Validator) -> Option<EdsEndpoint> {
        let health = match HealthStatus::try_from(proto.health_status) {
            Ok(HealthStatus::Unknown) => Health::Unknown,
            Ok(HealthStatus::Healthy) => Health::Healthy,
            Ok(HealthStatus::Draining) => Health::Draining,
            _ => return None,
        };
        let weight = match proto.load_balancing_weight {
            None => Some(NonZeroU32::MIN),
            Some(weight) => non_zero(weight),
        };
        if weight.is_none() {
            v.error_at("load_balancing_weight", "expected at least 1, got 0");
        }
        let hash_key = proto.metadata.as_ref().and_then(hash_key);
        let mut hostname = None;
        let addresses = v.field("endpoint", |v| match proto.host_identifier {
            Some(HostIdentifier::Endpoint(mut endpoint)) => {
                let name = std::mem::take(&mut endpoint.hostname);
                hostname = (!name.is_empty()).then(|| name.into());
                self.parse_addresses(endpoint, v)
            }
            Some(HostIdentifier::EndpointName(name)) => {
                v.error(format!("expected an endpoint, got endpoint_name {name:?}"));
                None
            }
            None => {
                v.error("expected an endpoint, got none");
                None
            }
        });
        Some(EdsEndpoint {
            addresses: addresses?,
            weight: weight?,
            health,
            hash_key,
            hostname,
        })
    }

    fn parse_addresses(
        &mut self,
        proto: pb::Endpoint,
        v: &mut Validator,
    ) -> Option<Vec<SocketAddr>> {
        let main = self.unique(proto.address.as_ref(), v);
        let additional = v.field("additional_addresses", |v| {
            let additional = proto.additional_addresses.into_iter().enumerate();
            additional
                .map(|(i, other)| v.index(i, |v| self.unique(other.address.as_ref(), v)))
                .collect::<Vec<_>>()
        });
        let addresses: Option<Vec<SocketAddr>> = std::iter::once(main).chain(additional).collect();
        let mut addresses = addresses?;
        // The list is allocated for four addresses, but nearly always holds one.
        addresses.shrink_to_fit();
        Some(addresses)
    }

    /// An address that no other endpoint of the resource has.
    fn unique(&mut self, proto: Option<&Address>, v: &mut Validator) -> Option<SocketAddr> {
        let address = address::parse(proto, v)?;
        if !self.addresses.insert(address) {
            v.error_at(
                "address",
                format!("expected a unique address, got {address} again"),
            );
            return None;
        }
        Some(address)
    }

    /// The localities by priority. A gap between priorities is an error. A priority whose localities all lack
    /// a weight is such a gap.
    fn finish(self, v: &mut Validator) -> Vec<Vec<EdsLocality>> {
        for (expected, priority) in (0..).zip(self.by_number.keys()) {
            if expected != *priority {
                v.error(format!(
                    "expected priorities without a gap, got {priority} without {expected}"
                ));
                break;
            }
        }
        let priorities = self.by_number.into_iter();
        priorities
            .map(|(priority, localities)| {
                let localities = localities.into_values().collect::<Vec<_>>();
                if let Some(message) = sum_error(localities.iter().map(|locality| locality.weight))
                {
                    v.error(format!("priority {priority}: {message}"));
                }
                localities
            })
            .collect()
    }
}

/// The `hash_key` of the metadata that Envoy's balancers read (gRFC A76).
fn hash_key(metadata: &Metadata) -> Option<Box<str>> {
    let lb = metadata.filter_metadata.get("envoy.lb")?;
    match lb.fields.get("hash_key")?.kind.as_ref()? {
        Kind::StringValue(key) if !key.is_empty() => Some(key.as_str().into()),
        _ => None,
    }
}

/// The error if the weights add up to more than 32 bits, because balancing policies keep the sum in 32.
fn sum_error(weights: impl Iterator<Item = NonZeroU32>) -> Option<String> {
    let sum: u64 = weights.map(|weight| u64::from(weight.get())).sum();
    let limit = u32::MAX;
    (sum > u64::from(limit))
        .then(|| format!("expected weights that add up to at most {limit}, got {sum}"))
}

fn non_zero(value: UInt32Value) -> Option<NonZeroU32> {
    NonZeroU32::new(value.value)
}
