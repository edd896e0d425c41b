//! Tests of services with fallbacks.
//!
//! They are apart from the other translations, because fallbacks turn clusters into aggregates.

use super::*;

const SERVICES: &str = r#"
services:
- name: payments
  endpoints: [{ address: 10.0.0.1:80 }]
  fallback: [payments-eu, { dns: "payments.example.com:443" }]
- name: payments-eu
  endpoints: [{ address: 10.1.0.1:80 }]
"#;

/// The clusters and their lists.
fn clusters_only(snapshot: &Snapshot) -> Snapshot {
    let types = [Cluster::TYPE_URL, ClusterConfig::TYPE_URL];
    snapshot.filter(|type_url, _, _| types.contains(&type_url))
}

fn without_clusters(snapshot: &Snapshot) -> Snapshot {
    snapshot.filter(|type_url, _, _| type_url != Cluster::TYPE_URL)
}

#[test]
fn a_service_with_fallbacks_becomes_an_aggregate() {
    let snapshot = snapshot(SERVICES);
    insta::assert_snapshot!(yaml(&clusters_only(&snapshot)));
    assert_eq!(dangling(&snapshot), []);
}

/// gRFC A99: the list is a resource of its own, which has no name but that of its wrapper.
#[test]
fn a_list_of_fallbacks_can_be_a_resource_of_its_own() {
    let text = SERVICES.replace("  fallback:", "  fallback_as: resource\n  fallback:");
    let snapshot = snapshot(&text);
    let of_payments = snapshot.filter(|_, name, _| name == "payments");
    insta::assert_snapshot!(yaml(&clusters_only(&of_payments)));
    assert_eq!(dangling(&snapshot), []);
    let list = snapshot.resource(ClusterConfig::TYPE_URL, "payments");
    assert!(list.unwrap().wrapped);
}

/// If the list is a resource, a fallback more or less changes the list alone. The cluster stays as
/// it is.
#[test]
fn a_list_that_is_a_resource_changes_without_the_cluster() {
    let list = |fallback: &str| {
        let payments = format!("{{ name: payments, fallback_as: resource{fallback} }}");
        snapshot(&format!("services: [{payments}, {{ name: other }}]"))
    };
    let version = |snapshot: &Snapshot, type_url| {
        let resource = snapshot.resource(type_url, "payments").unwrap();
        resource.version.clone()
    };
    let (alone, with_other) = (list(""), list(", fallback: [other]"));
    let [before, after] = [&alone, &with_other].map(|s| version(s, Cluster::TYPE_URL));
    assert_eq!(before, after);
    let [before, after] = [&alone, &with_other].map(|s| version(s, ClusterConfig::TYPE_URL));
    assert_ne!(before, after);
}

/// A client of `xds:///payments` gets the same listener, routes and endpoints with fallbacks as
/// without.
#[test]
fn fallbacks_change_clusters_only() {
    let plain = SERVICES
        .lines()
        .filter(|line| !line.contains("fallback:"))
        .collect::<Vec<_>>()
        .join("\n");
    let (plain, with_fallbacks) = (snapshot(&plain), snapshot(SERVICES));
    assert_eq!(without_clusters(&plain), without_clusters(&with_fallbacks));
    // And the service that has none is as it was.
    let [before, after] =
        [plain, with_fallbacks].map(|s| s.resource(Cluster::TYPE_URL, "payments-eu").cloned());
    assert_eq!(before, after);
}

/// Two services may fall back to one host; a third may name those two.
#[test]
fn a_dns_name_is_one_cluster_for_all() {
    let snapshot = snapshot(
        r#"
services:
- { name: a, fallback: [{ dns: "example.com:443" }, { dns: "[::1]:80" }] }
- { name: b, fallback: [{ dns: "example.com:443" }] }
- { name: c, fallback: [b, a] }
"#,
    );
    let clusters = snapshot.of(Cluster::TYPE_URL).unwrap().resources();
    let names: Vec<&str> = clusters.keys().map(|name| &**name).collect();
    let expected = [
        "a",
        "a/endpoints",
        "b",
        "b/endpoints",
        "c",
        "c/endpoints",
        "dns:[::1]:80",
        "dns:example.com:443",
    ];
    assert_eq!(names, expected);
}

/// A name that we make may be one that the file gives already.
#[test]
fn names_that_are_taken_are_errors() {
    let catalog = catalog(
        r#"
services:
- { name: a, fallback: [{ dns: "b:80" }] }
- { name: a/endpoints }
- { name: "dns:b:80" }
"#,
    );
    insta::assert_snapshot!(translate(&catalog).unwrap_err(), @r"
    control.yaml:4:3: services[1]: resource `a/endpoints` of type type.googleapis.com/envoy.config.cluster.v3.Cluster is defined twice; first at control.yaml:3:3: services[0]
    control.yaml:5:3: services[2]: resource `dns:b:80` of type type.googleapis.com/envoy.config.cluster.v3.Cluster is defined twice; first at control.yaml:3:3: services[0]
    ");
}

#[test]
fn references_of_aggregates_that_lead_nowhere_are_found() {
    let snapshot = snapshot(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: inline
  cluster_type:
    name: envoy.clusters.aggregate
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
      clusters: [listed, lost]
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: listed
  cluster_type:
    name: envoy.clusters.aggregate
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.AggregateClusterResource
      config_source: { ads: {} }
      resource_name: lost-list
- name: list
  resource:
    "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
    clusters: [inline, lost-too]
"#,
    );
    let found: Vec<String> = dangling(&snapshot)
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(found.join("\n"), @r"
    cluster `inline` refers to cluster `lost`, which does not exist
    cluster `listed` refers to cluster list `lost-list`, which does not exist: gRPC clients that do not read lists as resources (gRFC A99) are not sent the cluster, and Envoys refuse it
    cluster list `list` refers to cluster `lost-too`, which does not exist
    ");
}
