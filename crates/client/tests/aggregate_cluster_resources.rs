//! Tests of the gate of gRFC A99 as a server sees it, because only the requests show whether a list
//! is asked for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::sync::Arc;

use crowfly_client::{WatchEvent, XdsClient};
use crowfly_model::ResourceType;
use crowfly_model::grpc::cluster::{Children, ClusterKind};
use crowfly_model::grpc::{Cluster, ClusterConfig};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, cluster_config};

/// S4-29: with the gate closed the cluster is refused as one of an unknown type, which the server and
/// the watcher are told; a cluster beside it is accepted.
#[tokio::test]
async fn gate_closed() {
    let mut server = ResourceServer::start(&resources());
    let client = client(&server, false);
    let mut refused = client.watch::<Cluster>("c").unwrap();

    let told = server.next_nack().await;
    let expected = "cluster c: cluster_type.typed_config: \
        expected envoy.extensions.clusters.aggregate.v3.ClusterConfig, \
        got type.googleapis.com/envoy.extensions.clusters.aggregate.v3.AggregateClusterResource";
    assert!(told.contains(expected), "{told}");
    let Some(WatchEvent::ResourceChanged(Err(error))) = refused.next().await else {
        panic!("expected an error");
    };
    assert!(
        error.to_string().contains("AggregateClusterResource"),
        "{error}"
    );

    let mut inline = client.watch::<Cluster>("inline").unwrap();
    let event = inline.next().await;
    assert!(matches!(event, Some(WatchEvent::ResourceChanged(Ok(_)))));
}

/// S3-14: with the gate open the cluster leads to its list, which comes in a wrapper and without a
/// name of its own.
#[tokio::test]
async fn gate_open() {
    let mut server = ResourceServer::start(&resources());
    let client = client(&server, true);
    let mut watch = client.watch::<Cluster>("c").unwrap();

    let Some(WatchEvent::ResourceChanged(Ok(cluster))) = watch.next().await else {
        panic!("expected a cluster");
    };
    let ClusterKind::Aggregate(aggregate) = &cluster.kind else {
        panic!("expected an aggregate, got {cluster:?}");
    };
    let Children::Resource(name) = &aggregate.children else {
        panic!("expected a resource, got {aggregate:?}");
    };
    let mut list = client.watch::<ClusterConfig>(name).unwrap();
    server.next_ack(ClusterConfig::TYPE_URL).await;
    let Some(WatchEvent::ResourceChanged(Ok(list))) = list.next().await else {
        panic!("expected a list");
    };
    assert_eq!(list.clusters, ["b", "a"]);
}

fn resources() -> Resources {
    Resources::new()
        .with(cluster("c").aggregate_resource("list"))
        .with(cluster("inline").aggregate(["a", "b"]))
        .with(cluster_config("list").clusters(["b", "a"]))
}

fn client(server: &ResourceServer, gate: bool) -> XdsClient {
    let builder = XdsClient::builder(Arc::new(server.bootstrap()));
    builder.aggregate_cluster_resources(gate).build().unwrap()
}
