//! How calls are spread over a cluster's endpoints.
//!
//! `load_balancing_policy` (gRFC A52) wins over the older `lb_policy` enum, whose ROUND_ROBIN means
//! `wrr_locality` with `round_robin` inside.

use envoy_types::pb::{
    envoy::{
        config::cluster::v3::{self as pb, LoadBalancingPolicy, cluster},
        extensions::load_balancing_policies::{
            round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
        },
    },
    google::protobuf::Any,
};
use prost::{Message, Name};

use crate::{Validator, grpc::any::type_name};

/// How calls are spread inside one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbPolicy {
    /// A locality by its weight, then an endpoint in it: `wrr_locality`.
    WrrLocality(EndpointPolicy),
    /// Any endpoint of the priority, whatever its locality's weight.
    Endpoints(EndpointPolicy),
}

/// How calls are spread over a list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointPolicy {
    /// One after the other.
    RoundRobin,
}

/// The policy of a cluster, or `None` after an error.
pub(super) fn parse(proto: &pb::Cluster, v: &mut Validator) -> Option<LbPolicy> {
    if let Some(list) = &proto.load_balancing_policy {
        return v.field("load_balancing_policy", |v| parse_list(list, v));
    }
    if proto.lb_policy == cluster::LbPolicy::RoundRobin as i32 {
        return Some(LbPolicy::WrrLocality(EndpointPolicy::RoundRobin));
    }
    let got = cluster::LbPolicy::try_from(proto.lb_policy).map_or_else(
        |_| proto.lb_policy.to_string(),
        |policy| policy.as_str_name().to_owned(),
    );
    v.error_at("lb_policy", format!("expected ROUND_ROBIN, got {got}"));
    None
}

fn parse_list(list: &LoadBalancingPolicy, v: &mut Validator) -> Option<LbPolicy> {
    first_supported(list, v, |name, any, v| {
        if name == WrrLocality::full_name() {
            let policy = parse_wrr_locality(any, v);
            return Some(policy.map(LbPolicy::WrrLocality));
        }
        Some(parse_endpoint_policy(name, any, v)?.map(LbPolicy::Endpoints))
    })
}

fn parse_wrr_locality(any: &Any, v: &mut Validator) -> Option<EndpointPolicy> {
    let proto: WrrLocality = decode_config(any, v)?;
    v.field("endpoint_picking_policy", |v| {
        let Some(list) = proto.endpoint_picking_policy else {
            v.error("expected a policy, got none");
            return None;
        };
        first_supported(&list, v, parse_endpoint_policy)
    })
}

/// `None` if the policy is not one of these; `Some(None)` after an error.
fn parse_endpoint_policy(
    name: &str,
    any: &Any,
    v: &mut Validator,
) -> Option<Option<EndpointPolicy>> {
    if name != RoundRobin::full_name() {
        return None;
    }
    let decoded = decode_config::<RoundRobin>(any, v);
    Some(decoded.map(|_| EndpointPolicy::RoundRobin))
}

/// Reads the first entry that `parse` knows; entries after it are fallbacks for older clients.
fn first_supported<T>(
    list: &LoadBalancingPolicy,
    v: &mut Validator,
    mut parse: impl FnMut(&str, &Any, &mut Validator) -> Option<Option<T>>,
) -> Option<T> {
    v.field("policies", |v| {
        let mut others = Vec::new();
        for (i, policy) in list.policies.iter().enumerate() {
            let config = policy.typed_extension_config.as_ref();
            let Some(any) = config.and_then(|config| config.typed_config.as_ref()) else {
                v.index(i, |v| {
                    v.error_at(
                        "typed_extension_config",
                        "expected a typed_config, got none",
                    );
                });
                return None;
            };
            let name = type_name(&any.type_url).unwrap_or(&any.type_url);
            let parsed = v.index(i, |v| {
                v.field("typed_extension_config.typed_config", |v| {
                    parse(name, any, v)
                })
            });
            match parsed {
                Some(policy) => return policy,
                None => others.push(name),
            }
        }
        let got = if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        };
        v.error(format!("expected a supported policy, got {got}"));
        None
    })
}

fn decode_config<P: Message + Default>(any: &Any, v: &mut Validator) -> Option<P> {
    P::decode(any.value.as_slice())
        .inspect_err(|error| v.error(format!("cannot be decoded: {error}")))
        .ok()
}
