//! Tests of the choice of a cluster's load-balancing policy. A cluster lists several, because
//! clients differ in the ones that they support.

use crowfly_model::grpc::{
    Cluster,
    cluster::{ClusterKind, EndpointPolicy, LbPolicy},
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, LoadBalancingPolicy, cluster::LbPolicy as PbLbPolicy,
                load_balancing_policy::Policy,
            },
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::{
            round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
        },
    },
    google::protobuf::Any,
};

use crate::{
    Case, accept, check_rejections,
    messages::{any, cluster, logical_dns},
    reject,
};

/// S3-16: the first supported policy is taken, and wins over `lb_policy`.
#[test]
fn load_balancing_policy_wins() {
    let round_robin = || any(&RoundRobin::default());
    let wrr_locality = |inner: Vec<Any>| {
        any(&WrrLocality {
            endpoint_picking_policy: Some(policies(inner)),
        })
    };
    let by_locality = LbPolicy::WrrLocality(EndpointPolicy::RoundRobin);
    let flat = LbPolicy::Endpoints(EndpointPolicy::RoundRobin);
    let cases = [
        (vec![round_robin()], &flat),
        (vec![wrr_locality(vec![round_robin()])], &by_locality),
        (
            vec![wrr_locality(vec![fancy(), round_robin()])],
            &by_locality,
        ),
        (vec![fancy(), round_robin(), wrr_locality(vec![])], &flat),
        (
            vec![wrr_locality(vec![wrr_locality(vec![round_robin()])])],
            &by_locality,
        ),
    ];
    for (list, expected) in cases {
        let mut proto = cluster();
        proto.lb_policy = PbLbPolicy::RingHash as i32;
        proto.load_balancing_policy = Some(policies(list));
        assert_eq!(policy_of(&proto), *expected);
    }
}

/// S3-16: no supported policy is a NACK.
#[test]
fn load_balancing_policy_without_a_supported_entry() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "empty",
            |p| p.load_balancing_policy = Some(policies(vec![])),
            &["load_balancing_policy.policies: expected a supported policy, got none"],
        ),
        (
            "unknown",
            |p| p.load_balancing_policy = Some(policies(vec![fancy(), fancy()])),
            &[
                "load_balancing_policy.policies: expected a supported policy, got lb.Fancy, lb.Fancy",
            ],
        ),
        (
            "unknown inside",
            |p| {
                let wrr_locality = WrrLocality {
                    endpoint_picking_policy: Some(policies(vec![fancy()])),
                };
                p.load_balancing_policy = Some(policies(vec![any(&wrr_locality)]));
            },
            &[
                "load_balancing_policy.policies[0].typed_extension_config.typed_config\
               .endpoint_picking_policy.policies: expected a supported policy, got lb.Fancy",
            ],
        ),
        (
            "nothing inside",
            |p| p.load_balancing_policy = Some(policies(vec![any(&WrrLocality::default())])),
            &[
                "load_balancing_policy.policies[0].typed_extension_config.typed_config\
               .endpoint_picking_policy: expected a policy, got none",
            ],
        ),
        (
            "no config",
            |p| {
                let policies = vec![Policy::default()];
                p.load_balancing_policy = Some(LoadBalancingPolicy { policies });
            },
            &["load_balancing_policy.policies[0].typed_extension_config: \
               expected a typed_config, got none"],
        ),
    ];
    check_rejections::<Cluster, _>(cluster, cases);
}

/// S3-16: 16 lists of policies inside each other are read, 17 are a NACK that says where.
#[test]
fn policies_may_be_nested_16_deep() {
    let mut proto = cluster();
    proto.load_balancing_policy = Some(nested(16));
    let expected = LbPolicy::WrrLocality(EndpointPolicy::RoundRobin);
    assert_eq!(policy_of(&proto), expected);

    let inside = ".policies[0].typed_extension_config.typed_config.endpoint_picking_policy";
    let path = format!("load_balancing_policy{}", inside.repeat(16));
    for depth in [17, 40] {
        proto.load_balancing_policy = Some(nested(depth));
        let expected = format!("{path}: expected at most 16 policies inside each other, got more");
        assert_eq!(reject::<Cluster>(&proto), [expected], "{depth}");
    }
}

/// S3-16: a policy that is never used is not looked into, however deep it is.
#[test]
fn depth_counts_only_where_a_policy_is_read() {
    let mut proto = cluster();
    let mut list = policies(vec![any(&RoundRobin::default())]);
    list.policies.extend(nested(17).policies);
    proto.load_balancing_policy = Some(list);

    assert_eq!(
        policy_of(&proto),
        LbPolicy::Endpoints(EndpointPolicy::RoundRobin)
    );
}

/// A cluster by logical DNS balances like any other (gRFC A61).
#[test]
fn logical_dns_has_a_policy_as_well() {
    let mut proto = logical_dns();
    assert_eq!(
        policy_of(&proto),
        LbPolicy::WrrLocality(EndpointPolicy::RoundRobin)
    );

    proto.lb_policy = PbLbPolicy::Maglev as i32;
    let errors = reject::<Cluster>(&proto);
    assert_eq!(
        errors,
        ["lb_policy: expected LEAST_REQUEST, RING_HASH or ROUND_ROBIN, got MAGLEV"]
    );
}

fn policy_of(proto: &pb::Cluster) -> LbPolicy {
    match accept::<Cluster>(proto).kind {
        ClusterKind::Leaf(leaf) => leaf.lb_policy,
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}

/// `depth` lists inside each other, with `round_robin` in the innermost.
fn nested(depth: usize) -> LoadBalancingPolicy {
    let innermost = policies(vec![any(&RoundRobin::default())]);
    (1..depth).fold(innermost, |inner, _| {
        policies(vec![any(&WrrLocality {
            endpoint_picking_policy: Some(inner),
        })])
    })
}

fn fancy() -> Any {
    Any {
        type_url: "type.googleapis.com/lb.Fancy".to_owned(),
        value: vec![],
    }
}

fn policies(configs: Vec<Any>) -> LoadBalancingPolicy {
    let policies = configs
        .into_iter()
        .map(|config| Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: String::new(),
                typed_config: Some(config),
            }),
        })
        .collect();
    LoadBalancingPolicy { policies }
}
