//! Tests of the rules that Crowfly follows where gRPC C-core reads a resource otherwise.

use crowfly_model::grpc::{
    Cluster, Endpoints,
    cluster::{ClusterKind, EndpointPolicy, LbPolicy},
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, LoadBalancingPolicy, OutlierDetection,
                cluster::{LbConfig, LbPolicy as Enum, RingHashLbConfig},
                load_balancing_policy::Policy,
            },
            core::v3::TypedExtensionConfig,
            endpoint::v3::cluster_load_assignment::{self, policy::DropOverload},
        },
        extensions::load_balancing_policies::{
            ring_hash::v3::RingHash, wrr_locality::v3::WrrLocality,
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::{Any, UInt32Value, UInt64Value},
};

use crate::{
    accept,
    messages::{aggregate, any, assignment, cluster, endpoint},
    reject,
};

/// gRFC A75: the policy of an aggregate counts for nothing, hence none is wrong. Envoy requires
/// CLUSTER_PROVIDED there, and one server has to serve both; C-core refuses it.
#[test]
fn an_aggregate_may_say_cluster_provided() {
    let mut proto = aggregate();
    proto.lb_policy = Enum::ClusterProvided as i32;
    let kind = accept::<Cluster>(&proto).kind;
    assert!(matches!(kind, ClusterKind::Aggregate(_)));
}

/// Envoy's `FractionalPercent` is a share, and no share is above all of it. C-core scales it in 32
/// bits, in which 429,497 percent are 0.27 percent.
#[test]
fn drops_over_100_percent_drop_all_calls() {
    let mut proto = assignment();
    proto.policy = Some(cluster_load_assignment::Policy {
        drop_overloads: vec![DropOverload {
            category: "overload".to_owned(),
            drop_percentage: Some(FractionalPercent {
                numerator: 429_497,
                denominator: DenominatorType::Hundred as i32,
            }),
        }],
        ..cluster_load_assignment::Policy::default()
    });
    assert_eq!(accept::<Endpoints>(&proto).drops[0].per_million, 1_000_000);
}

/// gRFC A27: weights that do not add up in 32 bits are a NACK. It says so of localities; a picker
/// weighs endpoints in the same way, where C-core lets the sum wrap.
#[test]
fn weights_of_endpoints_add_up_to_32_bits() {
    let mut proto = assignment();
    let mut heavy = [endpoint("10.1.0.1", 80), endpoint("10.1.0.2", 80)];
    for one in &mut heavy {
        one.load_balancing_weight = Some(UInt32Value { value: 1 << 31 });
    }
    proto.endpoints[0].lb_endpoints = heavy.to_vec();
    assert_eq!(
        reject::<Endpoints>(&proto),
        ["endpoints[0].lb_endpoints: \
             expected weights that add up to at most 4294967295, got 4294967296"]
    );
}

/// gRFC A42: `minimum_ring_size` is 1024 unless it is given, and no ring has at least 1024 entries and
/// at most 1023. C-core misses that in the settings beside `lb_policy`.
#[test]
fn a_ring_cannot_be_smaller_than_its_default_minimum() {
    let max = Some(UInt64Value { value: 1023 });
    let mut listed = cluster();
    listed.load_balancing_policy = Some(one(any(&RingHash {
        maximum_ring_size: max,
        ..RingHash::default()
    })));
    let mut classic = cluster();
    classic.lb_policy = Enum::RingHash as i32;
    classic.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
        maximum_ring_size: max,
        ..RingHashLbConfig::default()
    }));
    let path = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
    for (proto, path) in [(listed, path), (classic, "ring_hash_lb_config")] {
        assert_eq!(
            reject::<Cluster>(&proto),
            [format!(
                "{path}.minimum_ring_size: expected at most maximum_ring_size (1023), got 1024"
            )]
        );
    }
}

/// gRFC A50: the success-rate rule is off if its enforcement "is set to 0", so it is on if the field is not
/// set. C-core has it off in that case.
#[test]
fn success_rate_is_on_unless_it_is_turned_off() {
    let mut proto: pb::Cluster = cluster();
    proto.outlier_detection = Some(OutlierDetection::default());
    let ClusterKind::Leaf(leaf) = accept::<Cluster>(&proto).kind else {
        panic!("expected a leaf");
    };
    let rule = leaf.outlier_detection.unwrap().success_rate.unwrap();
    assert_eq!(rule.enforcement_percentage, 100);
}

/// gRFC A50: `failure_percentage_threshold` is at most 100. C-core looks at another field for that.
#[test]
fn a_failure_threshold_is_at_most_100() {
    let mut proto: pb::Cluster = cluster();
    proto.outlier_detection = Some(OutlierDetection {
        enforcing_failure_percentage: Some(UInt32Value { value: 1 }),
        failure_percentage_threshold: Some(UInt32Value { value: 101 }),
        ..OutlierDetection::default()
    });
    assert_eq!(
        reject::<Cluster>(&proto),
        ["outlier_detection.failure_percentage_threshold: expected at most 100, got 101"]
    );
}

/// gRFC A52: `wrr_locality` holds any policy that chooses an endpoint, ring_hash like others.
#[test]
fn ring_hash_may_be_inside_wrr_locality() {
    let mut proto: pb::Cluster = cluster();
    let inner = one(any(&RingHash::default()));
    proto.load_balancing_policy = Some(one(any(&WrrLocality {
        endpoint_picking_policy: Some(inner),
    })));
    let ClusterKind::Leaf(leaf) = accept::<Cluster>(&proto).kind else {
        panic!("expected a leaf");
    };
    assert!(matches!(
        leaf.lb_policy,
        LbPolicy::WrrLocality(EndpointPolicy::RingHash(_))
    ));
}

fn one(config: Any) -> LoadBalancingPolicy {
    LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: String::new(),
                typed_config: Some(config),
            }),
        }],
    }
}
