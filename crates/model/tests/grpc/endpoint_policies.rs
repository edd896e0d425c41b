//! Tests of the policies that choose an endpoint. A cluster names them by an enum or by a list of
//! policies, and the two have settings of their own.

use crowfly_model::grpc::{
    Cluster,
    cluster::{ClusterKind, EndpointPolicy, LbPolicy, RingSizeBounds},
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, LoadBalancingPolicy,
                cluster::{
                    LbConfig, LbPolicy as PbLbPolicy, LeastRequestLbConfig, RingHashLbConfig,
                    ring_hash_lb_config,
                },
                load_balancing_policy::Policy,
            },
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::{
            least_request::v3::LeastRequest,
            pick_first::v3::PickFirst,
            ring_hash::v3::{RingHash, ring_hash},
        },
    },
    google::protobuf::{Any, UInt32Value, UInt64Value},
};

use crate::{
    accept,
    messages::{any, cluster},
    reject,
};

/// S3-16: every policy is read with its settings, and settings that are not given have defaults.
#[test]
fn policies_have_settings_and_defaults() {
    let sized =
        |min, max| LbPolicy::Endpoints(EndpointPolicy::RingHash(RingSizeBounds { min, max }));
    let least = |choice_count| LbPolicy::Endpoints(EndpointPolicy::LeastRequest { choice_count });
    let first = |shuffle| LbPolicy::Endpoints(EndpointPolicy::PickFirst { shuffle });
    let cases = [
        (any(&RingHash::default()), sized(1024, 8 << 20)),
        (any(&ring(10, 20)), sized(10, 20)),
        (any(&LeastRequest::default()), least(2)),
        (any(&choices(5)), least(5)),
        (any(&choices(99)), least(10)),
        (any(&PickFirst::default()), first(false)),
        (any(&shuffled()), first(true)),
    ];
    for (policy, expected) in cases {
        assert_eq!(policy_of(&with(policy.clone())), expected, "{policy:?}");
    }
}

/// The older enum: least_request is by locality (gRFC A48), ring_hash is not (gRFC A42).
#[test]
fn the_enum_has_settings_of_its_own() {
    let mut proto = cluster();
    proto.lb_policy = PbLbPolicy::LeastRequest as i32;
    let least = |choice_count| LbPolicy::WrrLocality(EndpointPolicy::LeastRequest { choice_count });
    assert_eq!(policy_of(&proto), least(2));
    proto.lb_config = Some(LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
        choice_count: Some(UInt32Value { value: 3 }),
        ..LeastRequestLbConfig::default()
    }));
    assert_eq!(policy_of(&proto), least(3));

    proto.lb_policy = PbLbPolicy::RingHash as i32;
    let sized =
        |min, max| LbPolicy::Endpoints(EndpointPolicy::RingHash(RingSizeBounds { min, max }));
    assert_eq!(policy_of(&proto), sized(1024, 8 << 20));
    proto.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
        minimum_ring_size: Some(UInt64Value { value: 7 }),
        maximum_ring_size: Some(UInt64Value { value: 9 }),
        ..RingHashLbConfig::default()
    }));
    assert_eq!(policy_of(&proto), sized(7, 9));
}

/// Settings out of their limits are refused, each with its path.
#[test]
fn settings_have_limits() {
    let at = |field: &str| {
        format!(
            "load_balancing_policy.policies[0].typed_extension_config.typed_config.{field}: expected "
        )
    };
    let murmur = RingHash {
        hash_function: ring_hash::HashFunction::MurmurHash2 as i32,
        ..RingHash::default()
    };
    let cases = [
        (
            any(&ring(0, 20)),
            at("minimum_ring_size") + "1 to 8388608, got 0",
        ),
        (
            any(&ring(1, 9 << 20)),
            at("maximum_ring_size") + "1 to 8388608, got 9437184",
        ),
        (
            any(&ring(30, 20)),
            at("minimum_ring_size") + "at most maximum_ring_size (20), got 30",
        ),
        (any(&murmur), at("hash_function") + "XX_HASH, got another"),
        (any(&choices(1)), at("choice_count") + "at least 2, got 1"),
    ];
    for (policy, expected) in cases {
        assert_eq!(reject::<Cluster>(&with(policy)), [expected]);
    }

    let mut proto = cluster();
    proto.lb_policy = PbLbPolicy::RingHash as i32;
    proto.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
        hash_function: ring_hash_lb_config::HashFunction::MurmurHash2 as i32,
        ..RingHashLbConfig::default()
    }));
    assert_eq!(
        reject::<Cluster>(&proto),
        ["ring_hash_lb_config.hash_function: expected XX_HASH, got another"]
    );
}

fn ring(min: u64, max: u64) -> RingHash {
    RingHash {
        minimum_ring_size: Some(UInt64Value { value: min }),
        maximum_ring_size: Some(UInt64Value { value: max }),
        ..RingHash::default()
    }
}

fn choices(value: u32) -> LeastRequest {
    LeastRequest {
        choice_count: Some(UInt32Value { value }),
        ..LeastRequest::default()
    }
}

fn shuffled() -> PickFirst {
    PickFirst {
        shuffle_address_list: true,
    }
}

fn with(policy: Any) -> pb::Cluster {
    let mut proto = cluster();
    proto.load_balancing_policy = Some(LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: "policy".to_owned(),
                typed_config: Some(policy),
            }),
        }],
    });
    proto
}

fn policy_of(proto: &pb::Cluster) -> LbPolicy {
    match accept::<Cluster>(proto).kind {
        ClusterKind::Leaf(leaf) => leaf.lb_policy,
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}
