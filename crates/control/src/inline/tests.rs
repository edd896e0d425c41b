//! Tests of the view for clients that do not read lists of aggregates as resources (gRFC A99): each
//! list is inside its cluster.

use super::*;
use crate::{Catalog, ConfigFile, translate};

fn snapshot(text: &str) -> Arc<Snapshot> {
    let file = ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    let catalog = Catalog::read(&[file]).unwrap_or_else(|errors| panic!("{errors}"));
    Arc::new(translate(&catalog).unwrap_or_else(|errors| panic!("{errors}")))
}

const AS_RESOURCE: &str =
    "services: [{ name: pay, fallback: [other], fallback_as: resource }, { name: other }]";

const LOST: &str = r#"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: lost
  cluster_type:
    name: envoy.clusters.aggregate
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.AggregateClusterResource
      resource_name: nowhere
"#;

/// V-08: the list is inside the cluster, which is that of a service with an inline list.
#[test]
fn lists_are_inside_their_clusters() {
    let inline = snapshot(&AS_RESOURCE.replace("resource", "inline"));
    let view = InlineView::default().follow(&snapshot(AS_RESOURCE));
    let cluster = |of: &Snapshot| of.resource(Cluster::TYPE_URL, "pay").cloned();
    assert_eq!(cluster(&view), cluster(&inline));
}

/// V-08: a change of the list changes the cluster, and back.
#[test]
fn a_changed_list_changes_the_cluster() {
    let first = snapshot(AS_RESOURCE);
    let second = snapshot(&AS_RESOURCE.replace("[other]", "[]"));
    let mut view = InlineView::default();
    let before = view.follow(&first);
    let changed = view.follow(&second);
    assert_eq!(*changed, *InlineView::default().follow(&second));
    assert_ne!(changed.of(Cluster::TYPE_URL), before.of(Cluster::TYPE_URL));
    assert_eq!(*view.follow(&first), *before);
}

/// V-08: without such lists the view is the snapshot itself, and costs no memory.
#[test]
fn a_snapshot_without_such_lists_is_shared() {
    let plain = snapshot("services: [{ name: pay, fallback: [other] }, { name: other }]");
    let mut view = InlineView::default();
    assert!(Arc::ptr_eq(&view.follow(&plain), &plain));
    view.follow(&snapshot(AS_RESOURCE));
    assert!(Arc::ptr_eq(&view.follow(&plain), &plain));
}

/// V-08: a cluster whose list does not exist is left out until it does.
#[test]
fn a_cluster_without_its_list_is_left_out() {
    let mut view = InlineView::default();
    let served = view.follow(&snapshot(LOST));
    assert!(served.resource(Cluster::TYPE_URL, "lost").is_none());
    let list = "- { name: nowhere, resource: { \"@type\": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [a] } }";
    let served = view.follow(&snapshot(&format!("{LOST}{list}")));
    assert!(served.resource(Cluster::TYPE_URL, "lost").is_some());
}
