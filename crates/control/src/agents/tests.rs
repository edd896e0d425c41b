//! Tests of the view for node agents: what is in it, and that a view that follows changes equals a new one.

use super::*;
use crate::envoy::EnvoyView;
use crate::{Catalog, ConfigFile, translate};

fn snapshot(text: &str) -> Arc<Snapshot> {
    let file = ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    let catalog = Catalog::read(&[file]).unwrap_or_else(|errors| panic!("{errors}"));
    Arc::new(translate(&catalog).unwrap_or_else(|errors| panic!("{errors}")))
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let types = snapshot.types();
    let names = types.flat_map(|(url, of)| {
        let (_, noun) = url.rsplit_once('.').unwrap();
        of.resources()
            .keys()
            .map(move |name| format!("{noun} {name}"))
    });
    names.collect()
}

const GRPC: &str = "{ name: pay, endpoints: [{ address: '10.0.0.1:80' }] }";

const WEB: &str = "{ name: shop/web, cluster_ips: [10.96.0.1, 'fd00:96::1'], ports: [{ port: 80 }], \
                   endpoints: [{ address: '10.0.0.2:80' }] }";

const RAW: &str = r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: raw
  filter_chains:
  - filters:
    - name: tcp
      typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: x, weighted_clusters: { clusters: [{ name: raw, weight: 1 }, { name: lost, weight: 1 }] } }
- { "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: raw, type: STATIC }
- { "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: other, type: STATIC }
"#;

/// CFP-30235, phase 3: agents get what is for them, Envoys do not, and gRPC clients find nothing new by
/// the names that they ask for.
#[test]
fn agents_get_what_is_for_them_alone() {
    let both = snapshot(&format!("services: [{GRPC}, {WEB}]"));
    let agents = AgentView::default().follow(&both);
    let expected = [
        "Cluster cluster_ip:shop/web:80/TCP",
        "ClusterLoadAssignment cluster_ip:shop/web:80/TCP",
        "ClusterLoadAssignment pay",
        "ClusterLoadAssignment shop/web",
        "Listener cluster_ip:10.96.0.1",
        "Listener cluster_ip:fd00:96::1",
        "RouteConfiguration pay",
        "RouteConfiguration shop/web",
    ];
    assert_eq!(names(&agents), expected);
    let envoys = EnvoyView::default().follow(&both, &Snapshot::default());
    assert!(
        names(&envoys)
            .iter()
            .all(|name| !name.contains("cluster_ip:"))
    );
    assert!(names(&envoys).contains(&"Cluster shop/web".to_owned()));

    let without = snapshot(&format!("services: [{GRPC}]"));
    for (url, of) in without.types() {
        for (name, resource) in of.resources() {
            assert_eq!(
                both.resource(url, name),
                Some(&**resource),
                "{name} is as before"
            );
        }
    }
}

/// CFP-30235: raw listeners with a TCP proxy are for agents, with their clusters. An Envoy cannot listen where
/// no address is.
#[test]
fn raw_listeners_with_a_proxy_are_for_agents() {
    let raw = snapshot(RAW);
    let agents = AgentView::default().follow(&raw);
    assert_eq!(names(&agents), ["Cluster raw", "Listener raw"]);
    let envoys = EnvoyView::default().follow(&raw, &Snapshot::default());
    assert_eq!(names(&envoys), ["Cluster other", "Cluster raw"]);
}

/// A view that follows changes equals one that is made at once.
#[test]
fn a_view_that_follows_equals_a_new_one() {
    let texts = [
        "services: []".to_owned(),
        format!("services: [{GRPC}]"),
        format!("services: [{GRPC}, {WEB}]"),
        format!("services: [{WEB}]{RAW}"),
        format!(
            "services: [{GRPC}]{}",
            RAW.replace("name: lost", "name: other")
        ),
        format!(
            "services: [{WEB}]{}",
            RAW.replace("{ name: raw, weight: 1 }, ", "")
        ),
        "services: []".to_owned(),
    ];
    for first in &texts {
        for second in &texts {
            let mut view = AgentView::default();
            view.follow(&snapshot(first));
            let second = snapshot(second);
            assert_eq!(*view.follow(&second), *AgentView::default().follow(&second));
        }
    }
}
