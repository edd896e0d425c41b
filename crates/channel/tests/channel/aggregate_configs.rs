//! Aggregate clusters whose leaves are missing, replaced or used by other routes: the leaves that
//! serve.
//!
//! `aggregates.rs` has the tests of failover between leaves.

use std::time::Duration;

use crowfly::Channel;
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig};
use crowfly_testkit::builders::{Resources, cluster, cluster_config, endpoints, listener, routes};
use crowfly_testkit::{NODE_ID, ResourceServer};
use tonic::{Code, Status};

use crate::backend::Backend;
use crate::support::{call, call_when_ready, channel, spread, spread_until};

/// S4-11: an aggregate of EDS and DNS uses the first of them that has endpoints.
#[tokio::test]
async fn the_first_leaf_with_endpoints_serves() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let resources = routed_to("both")
        .with(cluster("both").aggregate(["eds", "dns"]))
        .with(cluster("eds"))
        .with(cluster("dns").logical_dns("127.0.0.1", b.address.port()));
    let empty = resources.clone().with(endpoints("eds"));
    let full = resources.with(endpoints("eds").locality("eu/a", 1, [a.address]));

    let server = ResourceServer::start(&empty);
    let channel = channel(&server);
    assert_eq!(spread(&channel, 10).await["b"], 10);
    server.set(&full);
    spread_until(&channel, 3, |answers| answers.get("a") == Some(&3)).await;
    server.set(&empty);
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
}

/// S4-17: a leaf that is gone is passed over, and noted where calls fail; when all are gone, calls say
/// which.
#[tokio::test]
async fn missing_leaves_are_noted() {
    let a = Backend::start("a").await;
    let dead = Backend::start("dead").await.kill().await;
    let all = routed_to("both")
        .with(cluster("both").aggregate(["a", "dead"]))
        .with(cluster("a"))
        .with(endpoints("a").locality("eu/a", 1, [a.address]))
        .with(cluster("dead"))
        .with(endpoints("dead").locality("eu/a", 1, [dead]));
    let server = ResourceServer::start(&all);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    server.set(&all.clone().without("a"));
    let gone = "cluster a: does not exist: the server deleted it";
    let status = until_failing_with(&channel, &dead.to_string()).await;
    assert!(status.message().contains(gone), "{status}");

    server.set(&all.clone().without("a").without("dead"));
    let status = until_failing_with(&channel, "without a leaf cluster").await;
    for part in [
        gone,
        "cluster dead: does not exist",
        "cluster both",
        NODE_ID,
    ] {
        assert!(status.message().contains(part), "{status}");
    }
    server.set(&all);
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// S4-18: a leaf of an aggregate that a route leads to later is used, although nothing of it is new.
#[tokio::test]
async fn a_leaf_is_routed_to_directly() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let world = |to: &str| {
        routed_to(to)
            .with(cluster("both").aggregate(["a", "b"]))
            .with(cluster("a"))
            .with(endpoints("a").locality("eu/a", 1, [a.address]))
            .with(cluster("b"))
            .with(endpoints("b").locality("eu/a", 1, [b.address]))
    };
    let server = ResourceServer::start(&world("both"));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&world("b"));
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
    server.until_asked_for(Cluster::TYPE_URL, &["b"]).await;
    server.set(&world("both"));
    spread_until(&channel, 3, |answers| answers.get("a") == Some(&3)).await;
}

/// S4-25: the list of an aggregate is a resource of its own, and calls follow it.
#[tokio::test]
async fn calls_follow_a_list_of_clusters() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let world = |list: [&str; 2]| {
        routed_to("both")
            .with(cluster("both").aggregate_resource("list"))
            .with(cluster_config("list").clusters(list))
            .with(cluster("a"))
            .with(endpoints("a").locality("eu/a", 1, [a.address]))
            .with(cluster("b"))
            .with(endpoints("b").locality("eu/a", 1, [b.address]))
    };
    let server = ResourceServer::start(&world(["a", "b"]));
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    let channel = builder.aggregate_cluster_resources(true).build().unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&world(["b", "a"]));
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
    let asked = server.asked_for(ClusterConfig::TYPE_URL);
    assert_eq!(asked, ["list".to_owned()].into());
}

/// The service `payments`, without the cluster that its calls go to.
fn routed_to(cluster: &str) -> Resources {
    Resources::new()
        .with(listener("payments").rds("payments-routes"))
        .with(routes("payments-routes").host("*").route("/", cluster))
}

/// Calls until the error says `text`.
async fn until_failing_with(channel: &Channel, text: &str) -> Status {
    let failing = async {
        loop {
            match call(channel).await {
                Err(status) if status.message().contains(text) => return status,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let failing = tokio::time::timeout(Duration::from_secs(20), failing).await;
    let status = failing.unwrap_or_else(|_| panic!("no call fails with {text:?}"));
    assert_eq!(status.code(), Code::Unavailable);
    status
}
