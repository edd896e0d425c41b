//! Golden tests: YAML in, xDS out.
//!
//! The expected xDS is written out, so that a reader can check it without the code.

use serde_json::{Map, Value};

use crowfly_model::Features;

use super::*;
use crate::catalog::ConfigFile;
use crate::descriptors;
use crate::references::dangling;

mod fallback;
mod resilience;
mod routes;

fn catalog(text: &str) -> Catalog {
    let file = ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    Catalog::read(&[file]).unwrap()
}

fn snapshot(text: &str) -> Snapshot {
    translate(&catalog(text)).unwrap()
}

/// Every resource, by the last part of its type and its name.
fn yaml(snapshot: &Snapshot) -> String {
    let mut shown = Map::new();
    for (type_url, of) in snapshot.types() {
        let kind = type_url.rsplit('.').next().unwrap();
        for (name, resource) in of.resources() {
            let mut value = descriptors::to_json(&resource.any);
            value.as_object_mut().unwrap().remove("@type");
            shown.insert(format!("{kind} {name}"), value);
        }
    }
    serde_saphyr::to_string(&Value::Object(shown)).unwrap()
}

fn endpoints_only(snapshot: &Snapshot) -> Snapshot {
    snapshot.filter(|type_url, _, _| type_url == Endpoints::TYPE_URL)
}

#[test]
fn a_service_becomes_listener_routes_cluster_and_endpoints() {
    let snapshot =
        snapshot("services: [{ name: payments, endpoints: [{ address: 10.0.0.1:80 }] }]");
    insta::assert_snapshot!(yaml(&snapshot));
}

#[test]
fn localities_keep_their_weights_priorities_and_health() {
    let snapshot = snapshot(
        r#"
services:
- name: payments
  localities:
  - region: eu
    zone: a
    weight: 3
    endpoints:
    - { address: "10.0.0.1:80", weight: 2, health: healthy }
    - { address: "10.0.0.2:80", health: draining }
  - region: eu
    zone: b
    sub_zone: rack-7
    endpoints:
    - { address: "[2001:db8::1]:80", health: unhealthy }
  - { region: us, zone: c, priority: 1, endpoints: [{ address: 10.2.0.1:80 }] }
"#,
    );
    insta::assert_snapshot!(yaml(&endpoints_only(&snapshot)));
}

/// gRPC refuses an assignment with a gap between its priorities (gRFC A27).
#[test]
fn a_locality_of_weight_zero_is_left_out_and_priorities_close_up() {
    let snapshot = snapshot(
        r#"
services:
- name: payments
  localities:
  - { zone: a, priority: 0, weight: 0, endpoints: [{ address: 10.0.0.1:80 }] }
  - { zone: b, priority: 5, endpoints: [{ address: 10.0.0.2:80 }] }
  - { zone: c, priority: 9, endpoints: [{ address: 10.0.0.3:80 }] }
"#,
    );
    insta::assert_snapshot!(yaml(&endpoints_only(&snapshot)));
}

#[test]
fn a_service_without_endpoints_is_served_as_such() {
    let snapshot = snapshot("services: [{ name: payments }]");
    let endpoints = snapshot.resource(Endpoints::TYPE_URL, "payments").unwrap();
    let parsed = Endpoints::parse(&endpoints.any.value, &Features::ALL)
        .value
        .unwrap();
    assert!(parsed.priorities.is_empty());
}

/// `no` is a zone in Norway, not a boolean; and files are written by people, who use anchors and
/// several documents.
#[test]
fn yaml_means_what_people_expect() {
    let snapshot = snapshot(
        r#"
services:
- name: a
  localities:
  - &north { region: no, zone: "1", endpoints: [{ address: 10.0.0.1:80 }] }
  - { <<: *north, zone: on, endpoints: [{ address: 10.0.0.2:80 }] }
---
services:
- { name: b, endpoints: [{ address: 10.0.0.3:80 }] }
"#,
    );
    let localities = |name| {
        let resource = snapshot.resource(Endpoints::TYPE_URL, name).unwrap();
        let parsed = Endpoints::parse(&resource.any.value, &Features::ALL)
            .value
            .unwrap();
        let priority = parsed.priorities[0].iter();
        let ids = priority.map(|l| (l.id.region().to_owned(), l.id.zone().to_owned()));
        ids.collect::<Vec<_>>()
    };
    let text = |region: &str, zone: &str| (region.to_owned(), zone.to_owned());
    assert_eq!(localities("a"), [text("no", "1"), text("no", "on")]);
    assert_eq!(localities("b"), [text("", "")]);
}

#[test]
fn raw_resources_are_served_as_they_are() {
    let snapshot = snapshot(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: ingress
  address: { socket_address: { address: 127.0.0.1, port_value: 8080 } }
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        stat_prefix: in
        rds: { config_source: { ads: {} }, route_config_name: payments }
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  clusterName: payments
"#,
    );
    insta::assert_snapshot!(yaml(&snapshot));
}

#[test]
fn a_resource_without_a_name_of_its_own_is_wrapped() {
    let snapshot = snapshot(
        r#"
resources:
- name: limits
  resource:
    "@type": type.googleapis.com/envoy.config.core.v3.RuntimeUInt32
    default_value: 7
    runtime_key: limits.default
"#,
    );
    let url = "type.googleapis.com/envoy.config.core.v3.RuntimeUInt32";
    let resource = snapshot.resource(url, "limits").unwrap();
    assert!(resource.wrapped);
    assert_eq!(descriptors::to_json(&resource.any)["default_value"], 7);
}

/// The version is a hash of the bytes: it must be the same after a reload, and on every replica.
#[test]
fn the_same_file_gives_the_same_bytes() {
    let text = r#"
services: [{ name: payments, endpoints: [{ address: 10.0.0.1:80 }] }]
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  metadata: { filter_metadata: { a: { x: 1, y: 2, z: [{ p: 1, q: 2, r: 3 }] }, b: {}, c: {}, d: {} } }
  filter_chains:
  - filters:
    - name: f
      typed_config:
        "@type": type.googleapis.com/google.protobuf.Struct
        value: { a: 1, b: 2, c: 3, d: 4, e: 5, f: { g: 1, h: 2 } }
"#;
    let first = snapshot(text);
    for _ in 0..20 {
        assert_eq!(snapshot(text), first);
    }
    // And they still mean the same.
    let listener = first.resource(Listener::TYPE_URL, "l").unwrap();
    let shown = descriptors::to_json(&listener.any);
    assert_eq!(shown["metadata"]["filter_metadata"]["a"]["z"][0]["r"], 3.0);
    let config = &shown["filter_chains"][0]["filters"][0]["typed_config"];
    assert_eq!(config["value"]["f"]["h"], 2.0);
}

/// A new field of services must not change those that do not have it. Otherwise every client of a
/// fleet gets everything again when the control plane is upgraded.
#[test]
fn versions_stay_from_one_release_to_the_next() {
    let snapshot = snapshot(
        r#"
services:
- name: a
  policy: { least_request: { choices: 3 } }
  limits: { max_requests: 7 }
  tls: { ca: mesh, san: any }
  retry: { attempts: 3 }
  fault: { delay: { fixed: 1s } }
  routes: [{ match: { path: /a.A/B }, split: { a: 1, b: 2 }, timeout: 1s }]
  localities: [{ zone: a, endpoints: [{ address: 10.0.0.1:80, health: draining }] }]
  fallback: [b, { dns: "example.com:443" }]
  fallback_as: resource
- { name: b, policy: { pick_first: { shuffle: true } }, fallback: [{ dns: "example.com:443" }] }
"#,
    );
    let versions = snapshot.types().map(|(url, of)| {
        let kind = url.rsplit('.').next().unwrap();
        format!("{kind} {}", of.version())
    });
    insta::assert_snapshot!(versions.collect::<Vec<_>>().join("\n"), @r"
    Cluster ce9578bd2f976825
    ClusterLoadAssignment ffaef99316fc5831
    Listener cff54e80c1854780
    RouteConfiguration 0e128b9ecf443dca
    ClusterConfig 9bf968e902775148
    ");
}

#[test]
fn a_name_that_a_service_and_a_resource_claim_is_an_error() {
    let catalog = catalog(
        r#"
services: [{ name: payments }]
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: payments
"#,
    );
    insta::assert_snapshot!(translate(&catalog).unwrap_err(), @"control.yaml:4:3: resources[0]: resource `payments` of type type.googleapis.com/envoy.config.cluster.v3.Cluster is defined twice; first at control.yaml:2:12: services[0]");
}

#[test]
fn references_that_lead_nowhere_are_found() {
    let snapshot = snapshot(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  api_listener:
    api_listener:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      rds: { config_source: { ads: {} }, route_config_name: nowhere }
      http_filters: [{ name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: r
  virtual_hosts:
  - name: v
    domains: ["*"]
    routes:
    - { match: { prefix: /a }, route: { cluster: c } }
    - { match: { prefix: /b }, route: { cluster: lost } }
    - { match: { prefix: /c }, route: { weighted_clusters: { clusters: [{ name: lost-too }] } } }
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  type: EDS
  eds_cluster_config: { service_name: c-eds }
"#,
    );
    let found: Vec<String> = dangling(&snapshot)
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    listener `l` refers to route configuration `nowhere`, which does not exist
    route configuration `r` refers to cluster `lost`, which does not exist
    route configuration `r` refers to cluster `lost-too`, which does not exist
    cluster `c` refers to endpoints `c-eds`, which does not exist
    "#);
}
