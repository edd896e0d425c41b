//! Calls that are dropped, and calls over the limit of a cluster (gRFC A32).
//!
//! Such a call fails at once and is not repeated, because both protect a backend from load.

use std::sync::Arc;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ClusterBuilder, Resources, cluster, endpoints, routes};
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds};
use envoy_types::pb::google::protobuf::UInt32Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::support::{call, call_when_ready, channel, payments, send, start};

/// Checks that a call failed for this reason.
fn expect(outcome: Result<String, Status>, reason: &str) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(reason), "{status}");
}

/// A cluster with at most this many open calls, and the endpoints of `payments`.
///
/// Calls are counted together in all of the process, so the name is a test's own.
pub(crate) fn limited(name: &str, max_requests: u32) -> ClusterBuilder {
    cluster(name).eds("payments-eds").edit(|cluster| {
        let thresholds = Thresholds {
            max_requests: Some(UInt32Value {
                value: max_requests,
            }),
            ..Thresholds::default()
        };
        cluster.circuit_breakers = Some(CircuitBreakers {
            thresholds: vec![thresholds],
            ..CircuitBreakers::default()
        });
    })
}

/// The service `payments`, whose calls go to the cluster `name`.
fn payments_by(name: &str, backend: &Backend) -> Resources {
    payments(&[backend]).with(routes("payments-routes").host("*").route("/", name))
}

/// S9-01: calls that wait for the first connection look more than once, and are dropped at the rate
/// of calls that look once.
#[tokio::test]
async fn waiting_calls_are_dropped_once() {
    const CALLS: usize = 800;
    let a = Backend::start("a").await;
    let some = endpoints("payments-eds")
        .locality("eu/a", 1, [a.address])
        .drop("some", 100_000);
    let server = ResourceServer::start(&payments(&[]).with(some));
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .call_counters(Arc::default())
        .build()
        .unwrap();
    let calls: Vec<_> = (0..CALLS).map(|_| start(&channel)).collect();
    let mut dropped = 0;
    for call in calls {
        if let Err(status) = call.await.unwrap() {
            assert!(status.message().contains("category some"), "{status}");
            dropped += 1;
        }
    }
    // A tenth, give or take five standard deviations; rolled twice it would be 152.
    assert!((38..=122).contains(&dropped), "{dropped} of {CALLS}");
}

/// S9-02: a call that is to be dropped fails at once. That holds before a backend was reached, and
/// for a call that waits for ready.
#[tokio::test]
async fn calls_are_dropped_before_there_is_a_connection() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let all = endpoints("payments-eds")
        .locality("eu/a", 1, [silent.local_addr().unwrap()])
        .drop("overload", 1_000_000);
    let server = ResourceServer::start(&payments(&[]).with(all));
    let channel = channel(&server);
    for outcome in [call(&channel).await, call_when_ready(&channel).await] {
        expect(outcome, "payments-cluster: dropped by category overload");
    }
}

/// S9-02: a call that is to be dropped fails as a drop, even if no backend can be reached.
#[tokio::test]
async fn calls_are_dropped_although_they_would_fail() {
    let dead = Backend::start("dead").await.kill().await;
    let unreachable = endpoints("payments-eds").locality("eu/a", 1, [dead]);
    let server = ResourceServer::start(&payments(&[]).with(unreachable.clone()));
    let channel = channel(&server);
    expect(call(&channel).await, "refused");
    server.set(&payments(&[]).with(unreachable.drop("overload", 1_000_000)));
    // A call that waits for ready waits for the drop.
    expect(
        call_when_ready(&channel).await,
        "dropped by category overload",
    );
    expect(call(&channel).await, "dropped by category overload");
}

/// S9-04: one call more than allowed fails, also if it waits for ready, and is not tried again; when
/// another ends there is room.
#[tokio::test]
async fn one_call_too_many_fails_until_another_ends() {
    let mut a = Backend::holding("a").await;
    let resources = payments_by("two-at-once", &a).with(limited("two-at-once", 2));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let (first, second) = (start(&channel), start(&channel));
    let held = (a.next_call().await, a.next_call().await);
    for outcome in [call(&channel).await, call_when_ready(&channel).await] {
        expect(
            outcome,
            "two-at-once: circuit breaker: open calls 2, limit 2",
        );
    }
    held.0.answer();
    let ended = tokio::select! {
        ended = first => ended,
        ended = second => ended,
    };
    assert_eq!(ended.unwrap().unwrap(), "a");
    let third = start(&channel);
    a.next_call().await.answer();
    assert_eq!(third.await.unwrap().unwrap(), "a");
    held.1.answer();
}

/// S6-09: each leaf of an aggregate has its own drops and its own limit.
#[tokio::test]
async fn leaves_have_drops_and_limits_of_their_own() {
    let mut b = Backend::holding("b").await;
    let leaves = |order: [&str; 2]| {
        payments(&[&b])
            .with(routes("payments-routes").host("*").route("/", "both"))
            .with(cluster("both").aggregate(order))
            .with(cluster("dropping").eds("dropping-eds"))
            .with(
                endpoints("dropping-eds")
                    .locality("eu/a", 1, [b.address])
                    .drop("overload", 1_000_000),
            )
            .with(limited("one-of-two", 1))
    };
    let server = ResourceServer::start(&leaves(["dropping", "one-of-two"]));
    let channel = channel(&server);
    let outcome = call(&channel).await;
    expect(outcome, "dropping: dropped by category overload");

    server.set(&leaves(["one-of-two", "dropping"]));
    let first = loop {
        let call = start(&channel);
        tokio::select! {
            held = b.next_call() => break (call, held),
            // It was on its way before the order changed.
            () = ended(&call) => expect(call.await.unwrap(), "dropping: dropped by category"),
        }
    };
    expect(
        call(&channel).await,
        "one-of-two: circuit breaker: open calls 1, limit 1",
    );
    first.1.answer();
    assert_eq!(first.0.await.unwrap().unwrap(), "b");
}

/// S9-07: a cluster by DNS has a limit like any other.
#[tokio::test]
async fn a_cluster_by_dns_has_a_limit() {
    let mut a = Backend::holding("a").await;
    let by_dns = limited("one-by-dns", 1).logical_dns("127.0.0.1", a.address.port());
    let server = ResourceServer::start(&payments_by("one-by-dns", &a).with(by_dns));
    let channel = channel(&server);
    let first = start(&channel);
    let held = a.next_call().await;
    expect(
        call(&channel).await,
        "one-by-dns: circuit breaker: open calls 1, limit 1",
    );
    held.answer();
    assert_eq!(first.await.unwrap().unwrap(), "a");
}

/// Waits until a call has ended.
async fn ended(call: &JoinHandle<Result<String, Status>>) {
    while !call.is_finished() {
        tokio::task::yield_now().await;
    }
}

/// S9-05: the limit is that of the cluster, over all channels.
#[tokio::test]
async fn channels_share_the_limit_of_a_cluster() {
    let mut a = Backend::holding("a").await;
    let resources = payments_by("one-for-all", &a).with(limited("one-for-all", 1));
    // Two control planes: nothing else is shared.
    let (one, other) = (
        ResourceServer::start(&resources),
        ResourceServer::start(&resources),
    );
    let (one, other) = (channel(&one), channel(&other));
    let first = start(&one);
    let held = a.next_call().await;
    expect(
        call(&other).await,
        "one-for-all: circuit breaker: open calls 1, limit 1",
    );
    held.answer();
    assert_eq!(first.await.unwrap().unwrap(), "a");
    let second = start(&other);
    a.next_call().await.answer();
    assert_eq!(second.await.unwrap().unwrap(), "a");
}

/// S9-05: the limit is that of the cluster, over all aggregates that it is in.
#[tokio::test]
async fn aggregates_share_the_limit_of_a_leaf() {
    let mut a = Backend::holding("a").await;
    let routes = routes("payments-routes").host("*");
    let resources = payments(&[&a])
        .with(routes.route("/other.", "other").route("/", "one"))
        .with(cluster("one").aggregate(["leaf-of-two"]))
        .with(cluster("other").aggregate(["leaf-of-two"]))
        .with(limited("leaf-of-two", 1));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let first = start(&channel);
    let held = a.next_call().await;
    let other = || send(&channel, "/other.Echo/Call", Request::new(String::new()));
    expect(
        other().await,
        "leaf-of-two: circuit breaker: open calls 1, limit 1",
    );
    held.answer();
    assert_eq!(first.await.unwrap().unwrap(), "a");
    let answer = async { a.next_call().await.answer() };
    let (outcome, ()) = tokio::join!(other(), answer);
    assert_eq!(outcome.unwrap(), "a");
}
