//! The policy by which a cluster spreads calls over its endpoints.
//!
//! A cluster can name the policy in two fields, which become one type here. `load_balancing_policy` (gRFC A52) wins
//! over the older `lb_policy` enum. ROUND_ROBIN of that enum means `wrr_locality` with `round_robin` inside. RING_HASH
//! of that enum sees all localities at once (gRFC A42).

use envoy_types::pb::{
    envoy::{
        config::cluster::v3::{self as pb, LoadBalancingPolicy, cluster},
        extensions::load_balancing_policies::wrr_locality::v3::WrrLocality,
    },
    google::protobuf::Any,
};
use prost::Name;

use super::{
    CustomPolicies,
    endpoint_policy::{self, EndpointPolicy},
    named_policy,
};
use crate::{
    Features, Validator,
    grpc::any::{type_name, typed_struct},
};

/// The policy by which calls are spread inside one priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LbPolicy {
    /// A locality by its weight, then an endpoint in it: `wrr_locality`.
    WrrLocality(EndpointPolicy),
    /// An endpoint of the priority, without regard to the weight of its locality.
    Endpoints(EndpointPolicy),
}

impl LbPolicy {
    /// The policy inside `wrr_locality`.
    ///
    /// `wrr_locality` in `wrr_locality` is the inner one, because the outer has chosen the only locality
    /// that the inner can choose.
    pub(super) fn by_locality(self) -> Self {
        let (Self::WrrLocality(policy) | Self::Endpoints(policy)) = self;
        Self::WrrLocality(policy)
    }
}

/// The greatest number of policy lists inside each other, the outermost included (gRFC A52).
const MAX_DEPTH: usize = 16;

/// The policy of a cluster, or `None` after an error.
pub(super) fn parse(
    proto: &pb::Cluster,
    features: &Features,
    v: &mut Validator,
) -> Option<LbPolicy> {
    if let Some(list) = &proto.load_balancing_policy {
        let custom = &features.custom_policies;
        return v.field("load_balancing_policy", |v| parse_list(list, custom, 1, v));
    }
    use cluster::{LbConfig, LbPolicy as Classic};
    match Classic::try_from(proto.lb_policy) {
        Ok(Classic::RoundRobin) => Some(LbPolicy::WrrLocality(EndpointPolicy::RoundRobin)),
        Ok(Classic::LeastRequest) => {
            let config = match &proto.lb_config {
                Some(LbConfig::LeastRequestLbConfig(config)) => Some(config),
                _ => None,
            };
            endpoint_policy::classic_least_request(config, v).map(LbPolicy::WrrLocality)
        }
        Ok(Classic::RingHash) => {
            let config = match &proto.lb_config {
                Some(LbConfig::RingHashLbConfig(config)) => Some(config),
                _ => None,
            };
            endpoint_policy::classic_ring_hash(config, v).map(LbPolicy::Endpoints)
        }
        other => {
            let got = other.map_or_else(
                |_| proto.lb_policy.to_string(),
                |policy| policy.as_str_name().to_owned(),
            );
            v.error_at(
                "lb_policy",
                format!("expected LEAST_REQUEST, RING_HASH or ROUND_ROBIN, got {got}"),
            );
            None
        }
    }
}

/// Reads a list at `depth`, which counts the lists around it and itself.
///
/// The first entry of a known type is the policy. Later entries are not read, because they are fallbacks
/// for older clients. Entries of unknown types are not read either.
fn parse_list(
    list: &LoadBalancingPolicy,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Option<LbPolicy> {
    if is_too_deep(depth, v) {
        return None;
    }
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
            let parsed = v.index(i, |v| {
                v.field("typed_extension_config.typed_config", |v| {
                    parse_policy(any, custom, depth, v)
                })
            });
            match parsed {
                Ok(policy) => return policy,
                Err(Unknown::Message(name)) => {
                    let message = format!("{name} is not supported: a later one is used");
                    v.index(i, |v| v.unsupported(message));
                    others.push(name);
                }
                Err(Unknown::Named(name)) => others.push(format!("{name} (not registered)")),
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

/// Records an error if a list at `depth` is inside too many others.
pub(super) fn is_too_deep(depth: usize, v: &mut Validator) -> bool {
    let deep = depth > MAX_DEPTH;
    if deep {
        v.error(format!(
            "expected at most {MAX_DEPTH} policies inside each other, got more"
        ));
    }
    deep
}

/// A policy of a list that this client does not have.
enum Unknown {
    /// One of xDS, by the name of its message.
    Message(String),
    /// A policy that programs register by this name; the list names it for clients that have it.
    Named(String),
}

/// `None` after an error.
fn parse_policy(
    any: &Any,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Result<Option<LbPolicy>, Unknown> {
    let name = type_name(&any.type_url).unwrap_or(&any.type_url);
    if name == WrrLocality::full_name() {
        return Ok(parse_wrr_locality(any, custom, depth, v));
    }
    match typed_struct(any) {
        Some(Ok((name, config))) => {
            named_policy::parse(&name, config, custom, depth, v).ok_or(Unknown::Named(name))
        }
        Some(Err(why)) => {
            v.error(why);
            Ok(None)
        }
        None => endpoint_policy::parse(name, any, v)
            .map(|policy| policy.map(LbPolicy::Endpoints))
            .ok_or_else(|| Unknown::Message(name.to_owned())),
    }
}

fn parse_wrr_locality(
    any: &Any,
    custom: &CustomPolicies,
    depth: usize,
    v: &mut Validator,
) -> Option<LbPolicy> {
    let proto: WrrLocality = endpoint_policy::decode(any, v)?;
    let inner = v.field("endpoint_picking_policy", |v| {
        let Some(list) = proto.endpoint_picking_policy else {
            v.error("expected a policy, got none");
            return None;
        };
        parse_list(&list, custom, depth + 1, v)
    })?;
    Some(inner.by_locality())
}
