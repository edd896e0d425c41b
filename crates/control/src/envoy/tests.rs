//! Tests of the view for Envoys: its rules, and that a view that follows changes equals a new one.

use super::*;
use crate::descriptors::to_json;
use crate::{Catalog, ConfigFile, translate};

/// The view of a snapshot, worked out whole.
fn view(snapshot: &Snapshot) -> Arc<Snapshot> {
    EnvoyView::default().follow(&Arc::new(snapshot.clone()), &Snapshot::default())
}

/// The view by other means: no index, and every aggregate decoded again.
pub(crate) fn naive_view(snapshot: &Snapshot) -> Snapshot {
    let useful = snapshot.filter(is_for_envoys);
    let aggregates = aggregates_of(snapshot);
    let mut builder = useful.to_builder();
    for (name, aggregate) in &aggregates {
        let mut leaves = leaves_of(name, &aggregates);
        if leaves.is_empty() {
            leaves.clone_from(&aggregate.children);
        }
        builder.set(*name, aggregate.for_envoy(leaves));
    }
    let clusters = snapshot.of(Cluster::TYPE_URL);
    for (name, resource) in clusters.into_iter().flat_map(|of| of.resources()) {
        let changed = adapted_cluster(resource).filter(|_| !aggregates.contains_key(&**name));
        if let Some(resource) = changed {
            builder.put(Arc::clone(name), Arc::new(resource));
        }
    }
    let endpoints = snapshot.of(Endpoints::TYPE_URL);
    for (name, resource) in endpoints.into_iter().flat_map(|of| of.resources()) {
        if let Some(resource) = adapted_endpoints(resource) {
            builder.put(Arc::clone(name), Arc::new(resource));
        }
    }
    builder.build()
}

fn aggregates_of(snapshot: &Snapshot) -> BTreeMap<&str, Aggregate> {
    let clusters = snapshot.of(Cluster::TYPE_URL);
    let clusters = clusters.into_iter().flat_map(|of| of.resources());
    let aggregates = clusters.filter_map(|(name, resource)| {
        let mut cluster = ClusterProto::decode(resource.any.value.as_slice()).ok()?;
        let children = match Children::of(&cluster)? {
            Children::Inline(list) => list,
            Children::Resource(list) => {
                let resource = snapshot.resource(ClusterConfig::TYPE_URL, &list)?;
                ListProto::decode(resource.any.value.as_slice()).ok()?
            }
        };
        // It may have had no name but that of a wrapper.
        cluster.name = name.to_string();
        let children = children.clusters;
        Some((&**name, Aggregate { cluster, children }))
    });
    aggregates.collect()
}

/// The clusters that `root` comes down to. Raw resources may nest to any depth, and in circles.
fn leaves_of(root: &str, aggregates: &BTreeMap<&str, Aggregate>) -> Vec<String> {
    let mut leaves = Vec::new();
    let mut seen = HashSet::new();
    let mut open = vec![root];
    while let Some(name) = open.pop() {
        if !seen.insert(name) {
            continue;
        }
        match aggregates.get(name) {
            Some(aggregate) => open.extend(aggregate.children.iter().rev().map(String::as_str)),
            None => leaves.push(name.to_owned()),
        }
    }
    leaves
}

fn snapshot(text: &str) -> Snapshot {
    let file = ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    translate(&Catalog::read(&[file]).unwrap()).unwrap()
}

fn cluster(snapshot: &Snapshot, name: &str) -> serde_json::Value {
    to_json(&snapshot.resource(Cluster::TYPE_URL, name).unwrap().any)
}

/// The aggregate `name` as Envoys see it: its policy and its clusters.
fn seen(snapshot: &Snapshot, name: &str) -> String {
    let cluster = cluster(&view(snapshot), name);
    let config = &cluster["cluster_type"]["typed_config"];
    format!("{} {}", cluster["lb_policy"], config["clusters"])
}

fn raw_aggregate(name: &str, clusters: &str, more: &str) -> String {
    let typed_config = format!(
        "{{ \"@type\": {}, clusters: {clusters} }}",
        ClusterConfig::TYPE_URL
    );
    format!(
        "- {{ \"@type\": {}, name: {name}, cluster_type: {{ typed_config: {typed_config} }}{more} }}\n",
        Cluster::TYPE_URL
    )
}

/// `a`, whose list is a resource of its own, and which is itself a fallback of `c`.
const NESTED: &str = r#"
services:
- { name: a, fallback: [b, { dns: "example.com:443" }], fallback_as: resource }
- { name: b }
- { name: c, fallback: [a, b] }
"#;

#[test]
fn an_aggregate_is_inline_and_flat_and_balanced_by_itself() {
    let snapshot = snapshot(NESTED);
    insta::assert_snapshot!(seen(&snapshot, "a"), @r#""CLUSTER_PROVIDED" ["a/endpoints","b","dns:example.com:443"]"#);
    insta::assert_snapshot!(seen(&snapshot, "c"), @r#""CLUSTER_PROVIDED" ["c/endpoints","a/endpoints","b","dns:example.com:443"]"#);
}

#[test]
fn all_else_is_as_it_was() {
    let snapshot = snapshot(NESTED);
    let view = view(&snapshot);
    for (type_url, of) in snapshot.types() {
        for (name, resource) in of.resources() {
            let seen = view.resource(type_url, name);
            match (type_url, &**name) {
                (Cluster::TYPE_URL, "a" | "c" | "dns:example.com:443") => {
                    assert_ne!(seen, Some(&**resource));
                }
                (Listener::TYPE_URL, _) => assert_eq!(seen, None),
                _ => assert_eq!(seen, Some(&**resource), "{type_url} {name}"),
            }
        }
    }
}

/// Raw aggregates may lead in circles, and to what does not exist.
#[test]
fn circles_of_raw_aggregates_end() {
    let snapshot = snapshot(&format!(
        "resources:\n{}{}{}",
        raw_aggregate("a", "[b, lost]", ""),
        raw_aggregate("b", "[a, c]", ""),
        raw_aggregate("d", "[d]", ", lb_policy: MAGLEV"),
    ));
    insta::assert_snapshot!(seen(&snapshot, "a"), @r#""CLUSTER_PROVIDED" ["c","lost"]"#);
    insta::assert_snapshot!(seen(&snapshot, "b"), @r#""CLUSTER_PROVIDED" ["lost","c"]"#);
    insta::assert_snapshot!(seen(&snapshot, "d"), @r#""MAGLEV" ["d"]"#);
}

/// The version is a hash of the bytes, and must not depend on chance.
#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    let options = "common_lb_config: { ignore_new_hosts_until_first_hc: true }";
    let metadata = "metadata: { filter_metadata: { a: {}, b: {}, c: {}, d: {}, e: {}, f: {} } }";
    let more = format!(", {options}, {metadata}");
    let snapshot = snapshot(&format!("resources:\n{}", raw_aggregate("a", "[b]", &more)));
    let first = view(&snapshot);
    for _ in 0..20 {
        assert_eq!(view(&snapshot), first);
    }
    let metadata = &cluster(&first, "a")["metadata"]["filter_metadata"];
    assert_eq!(metadata.as_object().unwrap().len(), 6);
}

/// An Envoy would use one family of addresses alone. A raw cluster says itself what it means.
#[test]
fn dns_names_of_services_are_looked_up_in_both_families() {
    let snapshot = snapshot(&format!(
        r#"
services:
- {{ name: a, fallback: [{{ dns: "example.com:443" }}] }}
- {{ name: b, load_reports: true, fallback: [{{ dns: "example.com:443" }}] }}
resources:
- {{ "@type": {}, name: raw, type: LOGICAL_DNS }}
"#,
        Cluster::TYPE_URL
    ));
    let family = |of: &Snapshot, name| cluster(of, name)["dns_lookup_family"].clone();
    let view = view(&snapshot);
    for name in ["dns:example.com:443", "b/dns:example.com:443"] {
        assert_eq!(family(&view, name), "ALL");
        assert_eq!(family(&snapshot, name), serde_json::Value::Null);
    }
    assert_eq!(family(&view, "raw"), serde_json::Value::Null);
}

/// Envoy ignores certificate providers and would accept every certificate, so it is sent secrets.
#[test]
fn certificate_providers_become_secrets_of_the_same_names() {
    let snapshot = snapshot(
        r#"
services:
- name: payments
  tls: { ca: mesh, identity: mine, san: ["spiffe://prod/payments", { prefix: "spiffe://dev/" }], sni: pay.example.com }
  fallback: [{ dns: "pay.example.com:443" }]
- name: web
  tls: { ca: system, san: any }
- name: plain
"#,
    );
    let context = |of: &Snapshot, name| {
        let mut context = cluster(of, name)["transport_socket"]["typed_config"].take();
        context.as_object_mut().map(|it| it.remove("@type"));
        serde_saphyr::to_string(&context).unwrap()
    };
    let view = view(&snapshot);
    insta::assert_snapshot!(context(&view, "payments/endpoints"), @r"
    common_tls_context:
      alpn_protocols:
      - h2
      combined_validation_context:
        default_validation_context:
          match_subject_alt_names:
          - exact: spiffe://prod/payments
          - prefix: spiffe://dev/
        validation_context_sds_secret_config:
          name: mesh
      tls_certificate_sds_secret_configs:
      - name: mine
    sni: pay.example.com
    ");
    let dns = "payments/dns:pay.example.com:443";
    assert_eq!(context(&view, dns), context(&view, "payments/endpoints"));
    insta::assert_snapshot!(context(&view, "web"), @r"
    common_tls_context:
      alpn_protocols:
      - h2
      combined_validation_context:
        default_validation_context: {}
        validation_context_sds_secret_config:
          name: system
    ");
    insta::assert_snapshot!(context(&snapshot, "web"), @r"
    common_tls_context:
      validation_context:
        system_root_certs: {}
    ");
    assert_eq!(cluster(&view, "plain"), cluster(&snapshot, "plain"));
}

/// An Envoy refuses endpoints with several categories of drops, so it is sent one that drops as many
/// calls: 1 - 0.9 * 0.5 * 0.9999.
#[test]
fn several_categories_of_drops_become_one() {
    let snapshot = snapshot(
        r#"
services:
- { name: many, drops: { throttle: 10%, lb: 50%, rare: 0.01% } }
- { name: one, drops: { throttle: 10% } }
"#,
    );
    let view = view(&snapshot);
    let drops = |of: &Snapshot, name| {
        let endpoints = to_json(&of.resource(Endpoints::TYPE_URL, name).unwrap().any);
        endpoints["policy"]["drop_overloads"].clone()
    };
    insta::assert_snapshot!(drops(&view, "many"), @r#"[{"category":"throttle+lb+rare","drop_percentage":{"denominator":"MILLION","numerator":550045}}]"#);
    assert_eq!(drops(&view, "one"), drops(&snapshot, "one"));
    assert_eq!(drops(&snapshot, "many").as_array().unwrap().len(), 3);
}

/// gRFC A75 has the idle timeout in a field that an Envoy reads as something else, and then refuses.
#[test]
fn the_idle_timeout_of_sessions_is_that_of_connections() {
    let snapshot = snapshot("services: [{ name: a, session_affinity: { idle_timeout: 10m } }]");
    let timeout = |options: &serde_json::Value| {
        options["common_http_protocol_options"]["idle_timeout"].clone()
    };
    let of_http = |of: &serde_json::Value| {
        let options = of["typed_extension_protocol_options"].as_object().unwrap();
        timeout(options.values().next().unwrap())
    };
    let for_grpc = cluster(&snapshot, "a");
    assert_eq!(
        timeout(&for_grpc["upstream_config"]["typed_config"]),
        "600s"
    );
    let for_envoy = cluster(&view(&snapshot), "a");
    assert_eq!(for_envoy["upstream_config"], serde_json::Value::Null);
    assert_eq!(of_http(&for_envoy), "600s");
}
