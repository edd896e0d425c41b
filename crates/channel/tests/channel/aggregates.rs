//! Failover between the clusters of an aggregate, the preferred one first (gRFC A37).
//!
//! A cluster that fails must not fail calls that another one can serve.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly::Channel;
use crowfly::dns::{Lookup, LookupError, Resolve};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{
    EndpointsBuilder, Resources, cluster, endpoints, listener, routes,
};
use tokio::net::TcpListener;
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, channel, pass, spread, spread_until};

/// Longer than the longest wait between two attempts to connect.
const BACKOFF: Duration = Duration::from_secs(145);

/// The service `payments`, whose calls go to the cluster `payments-cluster`.
fn payments() -> Resources {
    Resources::new()
        .with(listener("payments").rds("payments-routes"))
        .with(
            routes("payments-routes")
                .host("*")
                .route("/", "payments-cluster"),
        )
}

/// The service `payments` over an aggregate of these clusters.
fn payments_over<const N: usize>(leaves: [&str; N]) -> Resources {
    payments().with(cluster("payments-cluster").aggregate(leaves))
}

/// The endpoints `name`: these backends, in one locality.
fn at(name: &str, backends: &[&Backend]) -> EndpointsBuilder {
    let addresses = backends.iter().map(|backend| backend.address);
    endpoints(name).locality("eu/a", 1, addresses)
}

/// Two leaves, `first` and `second`, that an aggregate may name in any order.
fn two_leaves(resources: Resources, first: &Backend, second: &Backend) -> Resources {
    resources
        .with(cluster("first"))
        .with(at("first", &[first]))
        .with(cluster("second"))
        .with(at("second", &[second]))
}

async fn two() -> (Backend, Backend) {
    tokio::join!(Backend::start("a"), Backend::start("b"))
}

/// Waits until all calls go to one backend; no call may fail.
async fn moves_to(channel: &Channel, name: &str) {
    spread_until(channel, 5, |answers| answers.get(name) == Some(&5)).await;
}

/// A resolver with the answers that a test sets.
#[derive(Clone, Debug, Default)]
struct Hosts {
    answers: Arc<Mutex<BTreeMap<String, Result<IpAddr, LookupError>>>>,
    lookups: Arc<Mutex<usize>>,
}

impl Hosts {
    fn set(&self, host: &str, answer: Result<IpAddr, LookupError>) {
        self.answers.lock().unwrap().insert(host.to_owned(), answer);
    }

    fn lookups(&self) -> usize {
        *self.lookups.lock().unwrap()
    }

    fn channel(&self, server: &ResourceServer) -> Channel {
        Channel::builder("xds:///payments")
            .bootstrap(server.bootstrap())
            .dns_resolver(Arc::new(self.clone()))
            .build()
            .unwrap()
    }
}

impl Resolve for Hosts {
    fn resolve(&self, host: &str) -> Lookup {
        *self.lookups.lock().unwrap() += 1;
        let answers = self.answers.lock().unwrap();
        let answer = answers.get(host).cloned();
        let answer = answer.unwrap_or(Err(LookupError::NoSuchHost));
        Box::pin(async move { answer.map(|address| vec![address]) })
    }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// S6-01: calls go to the first cluster, to the second while the first is down, and back.
#[tokio::test]
async fn the_second_cluster_serves_while_the_first_is_down() {
    let (mut a, b) = two().await;
    let resources = two_leaves(payments_over(["first", "second"]), &a, &b);
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    assert_eq!(spread(&channel, 10).await["a"], 10);
    assert_eq!(b.connections(), 0);

    a.drain().await;
    assert_eq!(spread(&channel, 10).await["b"], 10);
    a.restart();
    pass(BACKOFF).await;
    moves_to(&channel, "a").await;
}

/// S6-02: a first cluster without endpoints leaves calls to a DNS cluster.
#[tokio::test]
async fn a_dns_cluster_serves_when_the_first_has_no_endpoints() {
    let (a, b) = two().await;
    let hosts = Hosts::default();
    hosts.set("b.test", Ok(LOCALHOST));
    let resources = payments_over(["eds", "dns"])
        .with(cluster("eds"))
        .with(endpoints("eds"))
        .with(cluster("dns").logical_dns("b.test", b.address.port()));
    let server = ResourceServer::start(&resources);
    let channel = hosts.channel(&server);
    assert_eq!(spread(&channel, 10).await["b"], 10);
    server.set(&resources.clone().with(at("eds", &[&a])));
    moves_to(&channel, "a").await;
    server.set(&resources);
    moves_to(&channel, "b").await;
}

/// S6-03: a first cluster whose name cannot be looked up leaves calls to the second.
#[tokio::test]
async fn an_eds_cluster_serves_when_the_name_of_the_first_is_unknown() {
    let (a, b) = two().await;
    let hosts = Hosts::default();
    let resources = payments_over(["dns", "eds"])
        .with(cluster("dns").logical_dns("a.test", a.address.port()))
        .with(cluster("eds"))
        .with(at("eds", &[&b]));
    let server = ResourceServer::start(&resources);
    let channel = hosts.channel(&server);
    assert_eq!(spread(&channel, 10).await["b"], 10);
    hosts.set("a.test", Ok(LOCALHOST));
    pass(Duration::from_secs(30)).await;
    moves_to(&channel, "a").await;
}

/// S6-04: when nothing works, calls say what is wrong with each cluster.
#[tokio::test]
async fn clusters_that_all_fail_are_named() {
    let dead = Backend::start("dead").await.kill().await;
    let hosts = Hosts::default();
    let resources = payments_over(["eds", "dns"])
        .with(cluster("eds"))
        .with(endpoints("eds").locality("eu/a", 1, [dead]))
        .with(cluster("dns").logical_dns("b.test", 80));
    let server = ResourceServer::start(&resources);
    let channel = hosts.channel(&server);
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    for part in ["eds", &dead.to_string(), "dns", "b.test:80", "NXDOMAIN"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// S6-05: a name that was looked up once serves on when it cannot be looked up any more.
#[tokio::test]
async fn the_last_answer_of_a_name_serves_on() {
    let (a, b) = two().await;
    let hosts = Hosts::default();
    hosts.set("a.test", Ok(LOCALHOST));
    let resources = payments_over(["dns", "eds"])
        .with(cluster("dns").logical_dns("a.test", a.address.port()))
        .with(cluster("eds"))
        .with(at("eds", &[&b]));
    let server = ResourceServer::start(&resources);
    let channel = hosts.channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    hosts.set("a.test", Err(LookupError::ServerFailure));
    pass(Duration::from_secs(60)).await;
    // A lost connection is a reason to look the name up.
    a.go_away();
    while hosts.lookups() < 2 {
        spread(&channel, 1).await;
    }
    pass(BACKOFF).await;
    moves_to(&channel, "a").await;
    let message = channel.tree().await;
    assert!(message.contains("a.test"), "{message}");
}

/// S6-06: another order moves the calls, and none of them fails.
#[tokio::test]
async fn another_order_moves_calls_without_failures() {
    let (a, b) = two().await;
    let server = ResourceServer::start(&two_leaves(payments_over(["first", "second"]), &a, &b));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    for (order, name) in [
        (["second", "first"], "b"),
        (["first", "second"], "a"),
        (["second", "first"], "b"),
    ] {
        server.set(&two_leaves(payments_over(order), &a, &b));
        moves_to(&channel, name).await;
    }
    assert_eq!((a.connections(), b.connections()), (1, 1));
}

/// S6-07: a cluster becomes an aggregate, and a leaf again, and no call fails.
#[tokio::test]
async fn a_cluster_turns_into_an_aggregate_and_back() {
    let (a, b) = two().await;
    let leaf = two_leaves(payments(), &a, &b)
        .with(cluster("payments-cluster").eds("payments-eds"))
        .with(at("payments-eds", &[&a]));
    let aggregate = two_leaves(payments_over(["second", "first"]), &a, &b);
    let server = ResourceServer::start(&leaf);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&aggregate);
    moves_to(&channel, "b").await;
    server.set(&leaf);
    moves_to(&channel, "a").await;
}

/// S6-11: the priorities of the first cluster come before the second cluster.
#[tokio::test]
async fn all_priorities_of_a_cluster_come_before_the_next() {
    let (mut a, mut b, c) = tokio::join!(
        Backend::start("a"),
        Backend::start("b"),
        Backend::start("c")
    );
    let resources = payments_over(["first", "second"])
        .with(cluster("first"))
        .with(
            at("first", &[&a])
                .priority(1)
                .locality("eu/b", 1, [b.address]),
        )
        .with(cluster("second"))
        .with(at("second", &[&c]));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    a.drain().await;
    assert_eq!(spread(&channel, 10).await["b"], 10);
    assert_eq!(c.connections(), 0);
    b.drain().await;
    assert_eq!(spread(&channel, 10).await["c"], 10);
}

/// S6-13: a first cluster that comes and goes at the start is no trouble for calls that the second
/// serves.
#[tokio::test]
async fn a_first_cluster_that_flaps_fails_no_call() {
    let (mut a, b) = two().await;
    a.stop().await;
    let server = ResourceServer::start(&two_leaves(payments_over(["first", "second"]), &a, &b));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "b");
    for _ in 0..3 {
        a.restart();
        pass(BACKOFF).await;
        moves_to(&channel, "a").await;
        a.drain().await;
        assert_eq!(spread(&channel, 10).await["b"], 10);
    }
}

/// S6-14: new endpoints of one cluster change nothing of another that fails. Its name is not looked
/// up again for that, and no call waits for it again.
#[tokio::test]
async fn an_update_of_one_cluster_leaves_a_failing_one_alone() {
    let (a, b) = two().await;
    let hosts = Hosts::default();
    let resources = |backend: &Backend| {
        payments_over(["dns", "eds"])
            .with(cluster("dns").logical_dns("unknown.test", 80))
            .with(cluster("eds"))
            .with(at("eds", &[backend]))
    };
    let server = ResourceServer::start(&resources(&a));
    let channel = hosts.channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&resources(&b));
    moves_to(&channel, "b").await;
    server.set(&resources(&a));
    moves_to(&channel, "a").await;
    assert_eq!(hosts.lookups(), 1);
}

/// S6-16: an invalid update of a leaf is refused, and its last good version serves on.
#[tokio::test]
async fn a_leaf_that_becomes_invalid_serves_on() {
    let (a, b) = two().await;
    let resources = two_leaves(payments_over(["first", "second"]), &a, &b);
    let mut server = ResourceServer::start(&resources);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&resources.with(cluster("first").invalid()));
    let reason = server.next_nack().await;
    assert!(reason.contains("cluster first"), "{reason}");
    assert_eq!(spread(&channel, 10).await["a"], 10);
}

/// S6-16: a leaf that never was valid leaves calls to the next, and serves once it is valid.
#[tokio::test]
async fn a_leaf_that_never_was_valid_is_passed_over() {
    let (a, b) = two().await;
    let resources = two_leaves(payments_over(["first", "second"]), &a, &b);
    let invalid = resources.clone().with(cluster("first").invalid());
    let server = ResourceServer::start(&invalid);
    let channel = channel(&server);
    assert_eq!(spread(&channel, 10).await["b"], 10);
    server.set(&resources);
    moves_to(&channel, "a").await;
}

/// S6-18: a leaf that gets another parent keeps its connections.
#[tokio::test]
async fn a_leaf_keeps_its_connections_under_another_parent() {
    let (a, b) = two().await;
    let over = |leaves: [&str; 2], inner: [&str; 1]| {
        let resources = payments_over(leaves).with(cluster("inner").aggregate(inner));
        two_leaves(resources, &a, &b)
    };
    let server = ResourceServer::start(&over(["first", "second"], ["second"]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    // The leaf moves below an aggregate in the aggregate.
    server.set(&over(["inner", "second"], ["first"]));
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // An update of the leaf itself shows that the move was made.
    let address = silent.local_addr().unwrap();
    let more = endpoints("first").locality("eu/a", 1, [a.address, address]);
    server.set(&over(["inner", "second"], ["first"]).with(more));
    silent.accept().await.unwrap();
    assert_eq!(spread(&channel, 10).await["a"], 10);
    assert_eq!((a.connections(), b.connections()), (1, 0));
}
