//! Policies of Envoy. Those that are accepted spread connections by weight, as the agent does. What they ask for beside
//! that has no effect, and is noted.

use crowfly_model::Validator;
use crowfly_model::grpc::steps;
use envoy_types::pb::envoy::config::cluster::v3::LoadBalancingPolicy;
use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster};
use envoy_types::pb::envoy::extensions::load_balancing_policies::common::v3::{
    LocalityLbConfig, locality_lb_config::LocalityConfigSpecifier,
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::maglev::v3::Maglev;
use envoy_types::pb::envoy::extensions::load_balancing_policies::random::v3::Random;
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::google::protobuf::Any;
use prost::Name;

pub(super) const AT_RANDOM: &str = "backends are chosen at random by weight: nothing is hashed";
const NO_ZONES: &str = "the zone of a client counts by traffic_distribution alone";
const NO_PANIC: &str = "an unhealthy endpoint gets no connections, however few are healthy";
const NO_SLOW_START: &str = "a new endpoint has its whole weight at once";
const NO_CHILD: &str =
    "backends are chosen at random by weight: expected Random or RoundRobin in it";

/// Reads a policy. False if it is not known.
pub(super) fn read(any: &Any, v: &mut Validator) -> bool {
    let name = steps::type_name(&any.type_url).unwrap_or_default();
    if name == WrrLocality::full_name() {
        let policy: Option<WrrLocality> = steps::message(any, v);
        let child = policy.and_then(|policy| policy.endpoint_picking_policy);
        if let Some(child) = child {
            v.field("endpoint_picking_policy.policies", |v| picks(&child, v));
        }
        return true;
    }
    if name == Maglev::full_name() {
        v.unsupported(AT_RANDOM);
        return true;
    }
    is_at_random(name, any, v)
}

/// Reads the policy inside a locality: the first of the list that chooses at random.
fn picks(list: &LoadBalancingPolicy, v: &mut Validator) {
    let is_read = list.policies.iter().enumerate().any(|(i, policy)| {
        let config = policy.typed_extension_config.as_ref();
        let any = config.and_then(|config| config.typed_config.as_ref());
        any.is_some_and(|any| {
            let name = steps::type_name(&any.type_url).unwrap_or_default();
            v.index(i, |v| {
                v.field("typed_extension_config.typed_config", |v| {
                    is_at_random(name, any, v)
                })
            })
        })
    });
    if !is_read {
        v.unsupported(NO_CHILD);
    }
}

/// Reads a policy that chooses among all endpoints alike. False if it is none.
fn is_at_random(name: &str, any: &Any, v: &mut Validator) -> bool {
    if name == Random::full_name() {
        let policy: Option<Random> = steps::message(any, v);
        check_locality(policy.and_then(|policy| policy.locality_lb_config), v);
        return true;
    }
    if name != RoundRobin::full_name() {
        return false;
    }
    if let Some(policy) = steps::message::<RoundRobin>(any, v) {
        if policy.slow_start_config.is_some() {
            v.unsupported_at("slow_start_config", NO_SLOW_START);
        }
        check_locality(policy.locality_lb_config, v);
    }
    true
}

fn check_locality(config: Option<LocalityLbConfig>, v: &mut Validator) {
    let specifier = config.and_then(|config| config.locality_config_specifier);
    // Weights of localities always count, so `locality_weighted_lb_config` has what it asks for.
    if let Some(LocalityConfigSpecifier::ZoneAwareLbConfig(_)) = specifier {
        v.unsupported_at("locality_lb_config.zone_aware_lb_config", NO_ZONES);
    }
}

/// Notes the same wishes in the fields that Envoy had for them before policies.
pub(super) fn check_cluster(proto: &pb::Cluster, v: &mut Validator) {
    if let Some(common) = &proto.common_lb_config {
        let threshold = common.healthy_panic_threshold;
        // None is Envoy's 50 %, which no operator has asked for.
        if threshold.is_some_and(|threshold| threshold.value > 0.0) {
            v.unsupported_at("common_lb_config.healthy_panic_threshold", NO_PANIC);
        }
        if let Some(cluster::common_lb_config::LocalityConfigSpecifier::ZoneAwareLbConfig(_)) =
            common.locality_config_specifier
        {
            v.unsupported_at("common_lb_config.zone_aware_lb_config", NO_ZONES);
        }
    }
    if let Some(cluster::LbConfig::RoundRobinLbConfig(config)) = &proto.lb_config
        && config.slow_start_config.is_some()
    {
        v.unsupported_at("round_robin_lb_config.slow_start_config", NO_SLOW_START);
    }
}
