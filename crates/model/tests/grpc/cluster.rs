//! Clusters.

use crowfly_model::grpc::{
    Cluster,
    cluster::{EndpointPolicy, LbPolicy},
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, LoadBalancingPolicy,
                cluster::{
                    ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig,
                    LbPolicy as PbLbPolicy,
                },
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
    messages::{ads, any, cluster, file_source, self_source},
};

#[test]
fn eds_cluster() {
    let mut proto = cluster();
    let parsed = accept::<Cluster>(&proto);
    assert_eq!(parsed.eds_name(), Some("payments"));
    assert_eq!(parsed.eds_service_name, None);
    assert_eq!(
        parsed.lb_policy,
        LbPolicy::WrrLocality(EndpointPolicy::RoundRobin)
    );
    assert!(!parsed.load_reporting);

    eds(&mut proto).service_name = "payments-eds".to_owned();
    eds(&mut proto).eds_config = Some(self_source());
    proto.lrs_server = Some(self_source());
    let parsed = accept::<Cluster>(&proto);
    assert_eq!(parsed.eds_name(), Some("payments-eds"));
    assert!(parsed.load_reporting);
}

/// S3-05, and every other rule of this step: all problems of the resource, each with its path.
#[test]
fn what_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "no type",
            |p| p.cluster_discovery_type = None,
            &["type: expected EDS, got none"],
        ),
        (
            "known type",
            |p| set_type(p, DiscoveryType::StrictDns as i32),
            &["type: expected EDS, got STRICT_DNS"],
        ),
        (
            "unknown type",
            |p| set_type(p, 77),
            &["type: expected EDS, got 77"],
        ),
        (
            "extension",
            |p| {
                let custom = CustomClusterType {
                    name: "envoy.clusters.fancy".to_owned(),
                    typed_config: None,
                };
                p.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(custom));
            },
            &["cluster_type: expected type EDS, got envoy.clusters.fancy"],
        ),
        (
            "xdstp name without EDS name",
            |p| p.name = "xdstp://a/envoy.config.cluster.v3.Cluster/payments".to_owned(),
            &[
                "eds_cluster_config.service_name: expected it for a cluster with an xdstp name, got none",
            ],
        ),
        (
            "no EDS config",
            |p| p.eds_cluster_config = None,
            &["eds_cluster_config: expected it with type EDS, got none"],
        ),
        (
            "EDS source",
            |p| eds(p).eds_config = None,
            &["eds_cluster_config.eds_config: expected ads or self, got none"],
        ),
        (
            "everything at once",
            |p| {
                p.name.clear();
                eds(p).eds_config = Some(file_source());
                p.lb_policy = PbLbPolicy::RingHash as i32;
                p.lrs_server = Some(ads());
            },
            &[
                "name: expected a non-empty string, got none",
                "eds_cluster_config.eds_config: expected ads or self, got path_config_source",
                "lb_policy: expected ROUND_ROBIN, got RING_HASH",
                "lrs_server: expected self, got ads",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(cluster, cases);
}

/// S3-16 (part): the first supported policy is taken, and wins over `lb_policy`.
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
        (vec![round_robin()], flat),
        (vec![wrr_locality(vec![round_robin()])], by_locality),
        (
            vec![wrr_locality(vec![fancy(), round_robin()])],
            by_locality,
        ),
        (vec![fancy(), round_robin(), wrr_locality(vec![])], flat),
    ];
    for (list, expected) in cases {
        let mut proto = cluster();
        proto.lb_policy = PbLbPolicy::RingHash as i32;
        proto.load_balancing_policy = Some(policies(list));
        assert_eq!(accept::<Cluster>(&proto).lb_policy, expected);
    }
}

/// S3-16 (part): no supported policy is a NACK.
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

fn eds(cluster: &mut pb::Cluster) -> &mut EdsClusterConfig {
    cluster.eds_cluster_config.as_mut().unwrap()
}

fn set_type(cluster: &mut pb::Cluster, kind: i32) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind));
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
