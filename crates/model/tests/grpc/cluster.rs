//! Tests of clusters: their kinds, EDS, and the settings for their calls. Settings with a message
//! of their own have test files of their own.

use std::{collections::BTreeSet, time::Duration};

use crowfly_model::grpc::{
    Cluster,
    cluster::{ClusterKind, EndpointPolicy, EndpointSource, LbPolicy, LeafCluster},
    endpoints::Health,
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, CircuitBreakers,
                circuit_breakers::Thresholds,
                cluster::{
                    ClusterDiscoveryType, CommonLbConfig, CustomClusterType, DiscoveryType,
                    EdsClusterConfig, LbPolicy as PbLbPolicy,
                },
            },
            core::v3::{
                HealthStatus, HealthStatusSet, HttpProtocolOptions as CommonOptions,
                RoutingPriority, TypedExtensionConfig,
            },
        },
        extensions::upstreams::http::v3::HttpProtocolOptions,
    },
    google::protobuf::{self, UInt32Value},
};

use crate::{
    Case, accept, check_rejections,
    messages::{ads, aggregate, any, cluster, file_source, self_source},
};

#[test]
fn eds_cluster() {
    let mut proto = cluster();
    let parsed = accept::<Cluster>(&proto);
    assert_eq!(parsed.eds_name(), Some("payments"));
    let expected = LeafCluster {
        source: EndpointSource::Eds { service_name: None },
        lb_policy: LbPolicy::WrrLocality(EndpointPolicy::RoundRobin),
        max_concurrent_requests: 1024,
        load_reporting: None,
        session_health: BTreeSet::from([Health::Unknown, Health::Healthy]),
        session_idle_timeout: Duration::from_secs(3600),
        outlier_detection: None,
        security: None,
    };
    assert_eq!(parsed.kind, ClusterKind::Leaf(expected));

    eds(&mut proto).service_name = "payments-eds".to_owned();
    eds(&mut proto).eds_config = Some(self_source());
    assert_eq!(accept::<Cluster>(&proto).eds_name(), Some("payments-eds"));
}

/// S3-05: an unknown type, and EDS that is not from the stream; all problems of the resource, each with its path.
#[test]
fn what_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "no type",
            |p| p.cluster_discovery_type = None,
            &["type: expected EDS or LOGICAL_DNS, got none"],
        ),
        (
            "known type",
            |p| set_type(p, DiscoveryType::StrictDns as i32),
            &["type: expected EDS or LOGICAL_DNS, got STRICT_DNS"],
        ),
        (
            "unknown type",
            |p| set_type(p, 77),
            &["type: expected EDS or LOGICAL_DNS, got 77"],
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
            &["cluster_type.typed_config: expected \
               envoy.extensions.clusters.aggregate.v3.ClusterConfig or \
               envoy.extensions.clusters.aggregate.v3.AggregateClusterResource, got none"],
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
                p.lb_policy = PbLbPolicy::Maglev as i32;
                p.lrs_server = Some(ads());
            },
            &[
                "name: expected a non-empty string, got none",
                "eds_cluster_config.eds_config: expected ads or self, got path_config_source",
                "lb_policy: expected LEAST_REQUEST, RING_HASH or ROUND_ROBIN, got MAGLEV",
                "lrs_server: expected self, got ads",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(cluster, cases);
}

/// S3-08: the first threshold of DEFAULT priority is the limit, 0 is one, and 1024 the default.
#[test]
fn limit_of_concurrent_requests() {
    let (default, high) = (RoutingPriority::Default, RoutingPriority::High);
    let cases: &[(&[Limit], u32)] = &[
        (&[], 1024),
        (&[(high, Some(5))], 1024),
        (&[(default, None)], 1024),
        (&[(default, Some(7))], 7),
        (&[(default, Some(0))], 0),
        (&[(high, Some(5)), (default, Some(7))], 7),
        (&[(default, Some(7)), (default, Some(8))], 7),
        // The first one counts, also if it says nothing of requests.
        (&[(default, None), (default, Some(8))], 1024),
    ];
    assert_eq!(leaf(&cluster()).max_concurrent_requests, 1024);
    for (thresholds, expected) in cases {
        let threshold = |(priority, limit): &Limit| Thresholds {
            priority: *priority as i32,
            max_requests: limit.map(|value| UInt32Value { value }),
            ..Thresholds::default()
        };
        let mut proto = cluster();
        proto.circuit_breakers = Some(CircuitBreakers {
            thresholds: thresholds.iter().map(threshold).collect(),
            ..CircuitBreakers::default()
        });
        let limit = leaf(&proto).max_concurrent_requests;
        assert_eq!(limit, *expected, "{thresholds:?}");
    }
}

/// A threshold: for which calls, and how many of them.
type Limit = (RoutingPriority, Option<u32>);

/// gRFC A55: the health of endpoints that sessions may stick to. Values that no endpoint with calls has are ignored,
/// and an empty set is not the default.
#[test]
fn health_for_sessions() {
    use HealthStatus::{Degraded, Draining, Healthy, Timeout, Unhealthy, Unknown};
    let well = BTreeSet::from([Health::Unknown, Health::Healthy]);
    let mut proto = cluster();
    proto.common_lb_config = Some(CommonLbConfig::default());
    assert_eq!(leaf(&proto).session_health, well);

    let cases: &[(&[HealthStatus], &[Health])] = &[
        (&[], &[]),
        (&[Draining], &[Health::Draining]),
        (&[Unknown, Healthy], &[Health::Unknown, Health::Healthy]),
        (
            &[Healthy, Draining, Healthy],
            &[Health::Healthy, Health::Draining],
        ),
        (&[Degraded, Timeout, Unhealthy], &[]),
    ];
    for (statuses, expected) in cases {
        proto.common_lb_config = Some(CommonLbConfig {
            override_host_status: Some(HealthStatusSet {
                statuses: statuses.iter().map(|status| *status as i32).collect(),
            }),
            ..CommonLbConfig::default()
        });
        let health = leaf(&proto).session_health;
        assert_eq!(health, expected.iter().copied().collect(), "{statuses:?}");
        let ignored = accept::<Cluster>(&proto).unsupported.len();
        assert_eq!(
            ignored,
            if expected.is_empty() {
                statuses.len()
            } else {
                0
            }
        );
    }
}

/// S3-15: the idle timeout of the HTTP options, an hour wherever it is not set.
#[test]
fn idle_timeout_of_sessions() {
    let hour = Duration::from_secs(3600);
    let longest = Duration::new(315_576_000_000, 999_999_999);
    let cases = [
        (HttpProtocolOptions::default(), hour),
        (options(None), hour),
        (options(Some((0, 0))), Duration::ZERO),
        (options(Some((90, 5))), Duration::new(90, 5)),
        (options(Some((315_576_000_000, 999_999_999))), longest),
    ];
    for (options, expected) in cases {
        let mut proto = cluster();
        set_upstream(&mut proto, &options);
        let timeout = leaf(&proto).session_idle_timeout;
        assert_eq!(timeout, expected, "{options:?}");
    }
}

/// S3-15: gRFC A75 reads `upstream_config` only, whatever else Envoy looks at.
#[test]
fn other_places_of_http_options_are_not_read() {
    let mut proto = cluster();
    let key = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned();
    let config = any(&options(Some((-1, 0))));
    proto.typed_extension_protocol_options.insert(key, config);

    assert_eq!(leaf(&proto).session_idle_timeout, Duration::from_secs(3600));
}

/// S3-15: an idle timeout out of range, or options of another type; also in an aggregate.
#[test]
fn upstream_config_that_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "no config",
            |p| p.upstream_config = Some(TypedExtensionConfig::default()),
            &["upstream_config.typed_config: expected \
               envoy.extensions.upstreams.http.v3.HttpProtocolOptions, got none"],
        ),
        (
            "another type",
            |p| upstream(p, any(&CommonOptions::default())),
            &["upstream_config.typed_config: expected \
               envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
               got envoy.config.core.v3.HttpProtocolOptions"],
        ),
        (
            "garbled",
            |p| {
                let mut any = any(&options(None));
                any.value = vec![0x0f];
                upstream(p, any);
            },
            &["upstream_config.typed_config: \
               envoy.extensions.upstreams.http.v3.HttpProtocolOptions cannot be decoded: \
               failed to decode Protobuf message: invalid wire type value: 7"],
        ),
        (
            "no type",
            |p| upstream(p, protobuf::Any::default()),
            &["upstream_config.typed_config: \
               expected a type_url such as type.googleapis.com/NAME, got \"\""],
        ),
        (
            "too small",
            |p| set_upstream(p, &options(Some((-1, -1)))),
            &[
                "upstream_config.typed_config.common_http_protocol_options.idle_timeout.seconds: \
                 expected 0 to 315576000000, got -1",
                "upstream_config.typed_config.common_http_protocol_options.idle_timeout.nanos: \
                 expected 0 to 999999999, got -1",
            ],
        ),
        (
            "too large",
            |p| set_upstream(p, &options(Some((315_576_000_001, 1_000_000_000)))),
            &[
                "upstream_config.typed_config.common_http_protocol_options.idle_timeout.seconds: \
                 expected 0 to 315576000000, got 315576000001",
                "upstream_config.typed_config.common_http_protocol_options.idle_timeout.nanos: \
                 expected 0 to 999999999, got 1000000000",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(cluster, cases);
    check_rejections::<Cluster, _>(aggregate, cases);
}

fn leaf(proto: &pb::Cluster) -> LeafCluster {
    match accept::<Cluster>(proto).kind {
        ClusterKind::Leaf(leaf) => leaf,
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}

/// HTTP options with an idle timeout, in seconds and nanoseconds.
fn options(timeout: Option<(i64, i32)>) -> HttpProtocolOptions {
    let idle_timeout = timeout.map(|(seconds, nanos)| protobuf::Duration { seconds, nanos });
    HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout,
            ..CommonOptions::default()
        }),
        ..HttpProtocolOptions::default()
    }
}

fn set_upstream(cluster: &mut pb::Cluster, options: &HttpProtocolOptions) {
    upstream(cluster, any(options));
}

fn upstream(cluster: &mut pb::Cluster, config: protobuf::Any) {
    cluster.upstream_config = Some(TypedExtensionConfig {
        name: "whatever".to_owned(),
        typed_config: Some(config),
    });
}

fn eds(cluster: &mut pb::Cluster) -> &mut EdsClusterConfig {
    cluster.eds_cluster_config.as_mut().unwrap()
}

fn set_type(cluster: &mut pb::Cluster, kind: i32) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind));
}
