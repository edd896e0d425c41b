//! Golden tests of routes and of everything that a route does to its calls.

use super::*;
use crate::descriptors::to_json;

/// The resources of the first service in a file, before gRPC's opinion of them.
pub(super) fn made(text: &str) -> Vec<Made> {
    let catalog = catalog(text);
    let (_, definition, _) = catalog.written().swap_remove(0);
    Translated::new(&definition).resources
}

pub(super) fn resource<R: ResourceType>(made: &[Made]) -> Value {
    let mut made = made.iter().filter(|made| made.key.type_url == R::TYPE_URL);
    to_json(&made.next().unwrap().resource.any)
}

pub(super) fn routes(text: &str) -> String {
    let mut config = resource::<RouteConfig>(&made(text));
    serde_saphyr::to_string(&config["virtual_hosts"][0]["routes"].take()).unwrap()
}

/// gRFC A28, A63: each way to match a call.
#[test]
fn matches_become_conditions_of_routes() {
    let text = r#"
services:
- name: payments
  routes:
  - match: { path: /pay.Pay/Charge, ignore_case: true, fraction: 12.5% }
  - match: { prefix: /pay.Pay/ }
  - match: { regex: '/pay\.\w+/(Charge|Refund)' }
  - match:
      headers:
      - { name: X-Tier, exact: gold, ignore_case: true }
      - { name: x-tier, prefix: go }
      - { name: x-tier, suffix: ld }
      - { name: x-tier, contains: ol }
      - { name: x-tier, regex: 'g.*', not: true }
      - { name: x-age, range: { from: -1, below: 10 } }
      - { name: x-test, present: false }
"#;
    insta::assert_snapshot!(routes(text));
}

/// gRFC A28: targets of routes. The calls that no route is for go to the service itself.
#[test]
fn calls_go_to_other_services_and_are_split() {
    let text = r#"
services:
- name: payments
  routes:
  - { match: { path: /pay.Pay/Report }, to: reports }
  - { match: { path: /pay.Pay/Charge }, split: { payments-v2: 90, payments: 10 } }
  - { match: { path: /pay.Pay/Refund }, split: { payments-v2: 0.5%, payments: 99.5% } }
- name: reports
- name: payments-v2
"#;
    insta::assert_snapshot!(routes(text));
}

/// gRFC A31, A42, A44: a setting of a route replaces that of the service, and `none` takes it away.
#[test]
fn routes_have_the_settings_of_their_service_or_their_own() {
    let text = r#"
services:
- name: payments
  timeout: 2s
  retry: { attempts: 3 }
  hash: [{ header: x-user, rewrite: { regex: '^([^@]*)@.*', with: '\1' }, terminal: true }, { channel: true }]
  routes:
  - match: { path: /pay.Pay/Charge }
    timeout: 1m30s
    retry: { attempts: 2, when: [cancelled, deadline_exceeded, internal, resource_exhausted], backoff: { base: 25ms, max: 1s } }
    hash: [{ header: X-Shop }]
  - { match: { path: /pay.Pay/Report }, timeout: none, retry: none, hash: none }
"#;
    insta::assert_snapshot!(routes(text));
}

/// gRFC A33: faults are in the routes, and the filter is in the listener.
#[test]
fn faults_are_in_the_routes_that_have_them() {
    let text = r#"
services:
- name: payments
  fault: { abort: { status: unavailable, fraction: 0.01% } }
  routes:
  - match: { path: /pay.Pay/Charge }
    fault: { delay: { fixed: 100ms, fraction: 5% }, max_active: 7 }
  - match: { path: /pay.Pay/Refund }
    fault: { delay: { by_header: true }, abort: { by_header: true, fraction: 50% } }
  - { match: { path: /pay.Pay/Report }, fault: none }
"#;
    insta::assert_snapshot!(routes(text));
    assert_eq!(filters(text), ["envoy.filters.http.fault", "router"]);
}

/// gRFC A39: a client that does not know a filter refuses its listener, so only listeners that need
/// the fault filter have it.
#[test]
fn a_listener_has_the_fault_filter_only_if_a_route_has_faults() {
    let route = "match: { path: /a.A/B }, fault: { abort: { status: internal } }";
    for (service, expected) in [
        ("", false),
        ("fault: none", false),
        ("fault: { abort: { status: internal } }", true),
        (&format!("routes: [{{ {route} }}]"), true),
        // No call comes to the setting of the service.
        (
            "fault: { abort: { status: internal } }, routes: [{ fault: none }]",
            false,
        ),
    ] {
        let text = format!("services: [{{ name: payments, {service} }}]");
        let has_filter = filters(&text).len() == 2;
        assert_eq!(has_filter, expected, "{service}");
    }
}

pub(super) fn filters(text: &str) -> Vec<String> {
    let listener = resource::<Listener>(&made(text));
    let filters = &listener["api_listener"]["api_listener"]["http_filters"];
    let names = filters.as_array().unwrap().iter();
    names
        .map(|filter| filter["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Every call has one route, and no route is useless.
#[test]
fn a_route_for_all_calls_is_the_last_one() {
    for last in [
        "{ timeout: 1s }",
        "{ match: { prefix: / } }",
        "{ match: { fraction: 100% } }",
    ] {
        let text = format!(
            "services: [{{ name: payments, routes: [{{ match: {{ path: /a.A/B }} }}, {last}] }}]"
        );
        assert_eq!(
            routes(&text).matches("cluster: payments").count(),
            2,
            "{last}"
        );
    }
}

/// The parts of a service's cluster that its settings decide.
pub(super) fn cluster(settings: &str) -> String {
    let made = made(&format!("services: [{{ name: payments, {settings} }}]"));
    let mut cluster = resource::<Cluster>(&made);
    let shown = cluster.as_object_mut().unwrap();
    let usual = [
        "@type",
        "name",
        "type",
        "eds_cluster_config",
        "typed_extension_protocol_options",
    ];
    shown.retain(|key, _| !usual.contains(&key.as_str()));
    serde_saphyr::to_string(&cluster).unwrap()
}

/// gRFC A42, A48 and A61: policies of endpoints.
#[test]
fn the_policy_is_in_the_cluster() {
    insta::assert_snapshot!(cluster("policy: round_robin"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    ");
    insta::assert_snapshot!(cluster("policy: least_request"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    lb_policy: LEAST_REQUEST
    ");
    insta::assert_snapshot!(cluster("policy: { least_request: { choices: 5 } }, limits: { max_requests: 7 }"), @r"
    circuit_breakers:
      thresholds:
      - max_requests: 7
    common_lb_config:
      locality_weighted_lb_config: {}
    lb_policy: LEAST_REQUEST
    least_request_lb_config:
      choice_count: 5
    ");
    insta::assert_snapshot!(cluster("policy: ring_hash"), @r"
    common_lb_config:
      locality_weighted_lb_config: {}
    lb_policy: RING_HASH
    ring_hash_lb_config: {}
    ");
    insta::assert_snapshot!(cluster("policy: { ring_hash: { min_ring_size: 16, max_ring_size: 32 } }"), @r#"
    common_lb_config:
      locality_weighted_lb_config: {}
    lb_policy: RING_HASH
    ring_hash_lb_config:
      maximum_ring_size: "32"
      minimum_ring_size: "16"
    "#);
    insta::assert_snapshot!(cluster("policy: { pick_first: { shuffle: true } }"), @r#"
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.pick_first
          typed_config:
            "@type": >-
              type.googleapis.com/envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst
            shuffle_address_list: true
      - typed_extension_config:
          name: envoy.load_balancing_policies.round_robin
          typed_config:
            "@type": >-
              type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
            locality_lb_config:
              locality_weighted_lb_config: {}
    "#);
}

/// gRFC A29: TLS by the names of certificate providers.
#[test]
fn tls_is_in_the_cluster() {
    insta::assert_snapshot!(cluster(r#"tls: { ca: mesh, identity: mine, san: ["spiffe://prod/payments", { suffix: .example.com, ignore_case: true }], sni: pay.example.com }"#), @r#"
    common_lb_config:
      locality_weighted_lb_config: {}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificate_provider_instance:
            instance_name: mine
          validation_context:
            ca_certificate_provider_instance:
              instance_name: mesh
            match_subject_alt_names:
            - exact: spiffe://prod/payments
            - ignore_case: true
              suffix: .example.com
        sni: pay.example.com
    "#);
}

/// The settings of a service with fallbacks are those of its own endpoints. A DNS name stands in
/// for these, so it is not reached in plaintext either.
#[test]
fn settings_of_a_service_with_fallbacks_are_those_of_its_endpoints() {
    let snapshot = snapshot(
        r#"
services:
- name: payments
  policy: ring_hash
  limits: { max_requests: 7 }
  tls: { ca: mesh, san: any }
  fallback: [spare, { dns: "example.com:443" }]
- { name: spare, fallback: [{ dns: "example.com:443" }] }
"#,
    );
    let cluster = |name: &str| to_json(&snapshot.resource(Cluster::TYPE_URL, name).unwrap().any);
    let own = cluster("payments/endpoints");
    assert_eq!(own["lb_policy"], "RING_HASH");
    assert_eq!(own["circuit_breakers"]["thresholds"][0]["max_requests"], 7);
    assert!(own["transport_socket"].is_object());
    assert!(cluster("payments/dns:example.com:443")["transport_socket"].is_object());
    assert!(cluster("dns:example.com:443")["transport_socket"].is_null());
    let aggregate = cluster("payments");
    assert!(aggregate["transport_socket"].is_null(), "{aggregate}");
    let list = &aggregate["cluster_type"]["typed_config"]["clusters"];
    assert_eq!(list[2], "payments/dns:example.com:443");
}
