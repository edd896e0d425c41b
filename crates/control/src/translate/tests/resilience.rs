//! Golden tests of limits, drops, outlier detection, session affinity and load reports.

use super::routes::{cluster, filters, made, resource, routes};
use super::*;

/// gRFC A32: gRPC obeys the limit of calls, and Envoys obey all of them.
#[test]
fn limits_are_circuit_breakers() {
    insta::assert_snapshot!(cluster("limits: { max_requests: 7, max_connections: 2, max_pending: 3, max_retries: 4 }"), @r"
    circuit_breakers:
      thresholds:
      - max_connections: 2
        max_pending_requests: 3
        max_requests: 7
        max_retries: 4
    common_lb_config:
      locality_weighted_lb_config: {}
    ");
}

/// A share keeps its precision.
#[test]
fn drops_are_in_the_endpoints() {
    let made = made("services: [{ name: a, drops: { throttle: 10%, lb: 0.25%, rare: 0.0001% } }]");
    let endpoints = resource::<Endpoints>(&made);
    insta::assert_snapshot!(endpoints["policy"], @r#"{"drop_overloads":[{"category":"throttle","drop_percentage":{"numerator":10}},{"category":"lb","drop_percentage":{"denominator":"TEN_THOUSAND","numerator":25}},{"category":"rare","drop_percentage":{"denominator":"MILLION","numerator":1}}]}"#);
}

/// gRFC A50: an algorithm that is not given is off, in so many words, because clients differ on what an
/// absent value means.
#[test]
fn outlier_detection_turns_every_algorithm_on_or_off() {
    insta::assert_snapshot!(cluster("outlier_detection: { success_rate: {} }"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    outlier_detection:
      always_eject_one_host: true
      enforcing_consecutive_5xx: 0
      enforcing_consecutive_gateway_failure: 0
      enforcing_failure_percentage: 0
      enforcing_success_rate: 100
    ");
    insta::assert_snapshot!(cluster("outlier_detection: { failure_percentage: {} }"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    outlier_detection:
      always_eject_one_host: true
      enforcing_consecutive_5xx: 0
      enforcing_consecutive_gateway_failure: 0
      enforcing_failure_percentage: 100
      enforcing_success_rate: 0
    ");
    let all = "outlier_detection: {
        interval: 5s, ejection: { base: 10s, max: 1m, max_percent: 50% },
        success_rate: { stdev_factor: 1.5, enforce: 90%, min_endpoints: 3, min_calls: 10 },
        failure_percentage: { threshold: 40%, enforce: 80%, min_endpoints: 4, min_calls: 20 } }";
    insta::assert_snapshot!(cluster(all), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    outlier_detection:
      always_eject_one_host: true
      base_ejection_time: 10s
      enforcing_consecutive_5xx: 0
      enforcing_consecutive_gateway_failure: 0
      enforcing_failure_percentage: 80
      enforcing_success_rate: 90
      failure_percentage_minimum_hosts: 4
      failure_percentage_request_volume: 20
      failure_percentage_threshold: 40
      interval: 5s
      max_ejection_percent: 50
      max_ejection_time: 60s
      success_rate_minimum_hosts: 3
      success_rate_request_volume: 10
      success_rate_stdev_factor: 1500
    ");
}

/// gRFC A27 and A85: reports go to the server that the cluster came from.
#[test]
fn load_reports_are_asked_for_in_the_cluster() {
    insta::assert_snapshot!(cluster("load_reports: true"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    lrs_server:
      resource_api_version: V3
      self: {}
    ");
    let metrics =
        "load_reports: { metrics: [cpu_utilization, named_metrics.queue, named_metrics.*] }";
    insta::assert_snapshot!(cluster(metrics), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    lrs_report_endpoint_metrics:
    - cpu_utilization
    - named_metrics.queue
    - named_metrics.*
    lrs_server:
      resource_api_version: V3
      self: {}
    ");
    assert_eq!(cluster("load_reports: false"), cluster(""));
}

/// Calls to a DNS name are load of the service that has it as a fallback.
#[test]
fn the_dns_names_of_a_service_report_their_load_too() {
    let snapshot = snapshot(
        r#"
services:
- { name: a, load_reports: true, fallback: [b, { dns: "example.com:443" }] }
- { name: b, fallback: [{ dns: "example.com:443" }] }
"#,
    );
    let reports = |name: &str| {
        let cluster = snapshot.resource(Cluster::TYPE_URL, name).unwrap();
        descriptors::to_json(&cluster.any)["lrs_server"].is_object()
    };
    let clusters = [
        "a",
        "a/endpoints",
        "a/dns:example.com:443",
        "b/endpoints",
        "dns:example.com:443",
    ];
    assert_eq!(clusters.map(reports), [false, true, true, false, false]);
}

/// gRFC A55, A75: the endpoints of a service with sessions.
#[test]
fn the_health_and_the_idle_timeout_of_sessions_are_in_the_cluster() {
    insta::assert_snapshot!(cluster("session_affinity: { health: [healthy, draining], idle_timeout: 10m }"), @r#"
    common_lb_config:
      locality_weighted_lb_config: {}
      override_host_status:
        statuses:
        - HEALTHY
        - DRAINING
    upstream_config:
      name: envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options:
          idle_timeout: 600s
    "#);
    let with_pick_first = cluster("policy: pick_first, session_affinity: { health: [unknown] }");
    let common = with_pick_first
        .split("load_balancing_policy")
        .next()
        .unwrap();
    insta::assert_snapshot!(common, @r"
    common_lb_config:
      override_host_status:
        statuses:
        - UNKNOWN
    ");
    assert_eq!(
        cluster("session_affinity: { cookie: { name: s } }"),
        cluster("")
    );
}

/// gRFC A55: cookies are in the routes, and the filter is in the listener.
#[test]
fn cookies_are_in_the_routes_that_have_them() {
    let text = r#"
services:
- name: shop
  session_affinity: { cookie: { name: shop-session, path: /shop.Cart, ttl: 2h } }
  fault: { abort: { status: unavailable } }
  routes:
  - { match: { path: /shop.Cart/Add }, fault: none }
  - { match: { path: /shop.Cart/Remove }, fault: none, session_affinity: { cookie: { name: mine } } }
  - { match: { path: /shop.Cart/Clear }, fault: none, session_affinity: none }
"#;
    insta::assert_snapshot!(routes(text));
    let names = [
        "envoy.filters.http.fault",
        "envoy.filters.http.stateful_session",
        "router",
    ];
    assert_eq!(filters(text), names);
}

/// gRFC A39: a client that does not know the filter refuses the listener.
#[test]
fn a_listener_has_the_session_filter_only_if_a_route_has_a_cookie() {
    let cookie = "session_affinity: { cookie: { name: s } }";
    for (service, expected) in [
        ("", false),
        ("session_affinity: { idle_timeout: 1m }", false),
        (cookie, true),
        (
            &format!("routes: [{{ match: {{ path: /a.A/B }}, {cookie} }}]"),
            true,
        ),
        // No call comes to the setting of the service.
        (
            &format!("{cookie}, routes: [{{ session_affinity: none }}]"),
            false,
        ),
    ] {
        let text = format!("services: [{{ name: shop, {service} }}]");
        assert_eq!(filters(&text).len() == 2, expected, "{service}");
    }
}

/// A route with two filters has them in a map, which has no order of its own.
#[test]
fn a_route_with_two_filters_has_the_same_bytes_every_time() {
    let text = "services: [{ name: shop, session_affinity: { cookie: { name: s } }, fault: { delay: { fixed: 1s } } }]";
    let first = made(text);
    for _ in 0..20 {
        assert_eq!(made(text), first);
    }
}
