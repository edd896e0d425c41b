//! Configurations that follow each other while calls are open.
//!
//! A call keeps its cluster (gRFC A31), so a cluster must stay until its last call has picked.

use std::net::SocketAddr;
use std::time::Duration;

use crowfly::Channel;
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, RouteConfig};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Code, Request, Status};
use tower_service::Service;

use crate::backend::Backend;
use crate::support::{PATH, call, call_when_ready, channel, send, spread, spread_until};

const CLUSTERS: &str = Cluster::TYPE_URL;
const ENDPOINTS: &str = Endpoints::TYPE_URL;
const ROUTES: &str = RouteConfig::TYPE_URL;

/// S5-05: calls move to another cluster under load and none fails. One that is in flight finishes
/// where it is, and what it might yet pick from is asked for until it has an answer.
#[tokio::test]
async fn a_switch_of_clusters_under_load_fails_no_call() {
    let mut a = Backend::holding("a").await;
    let (b, c) = tokio::join!(Backend::start("b"), Backend::start("c"));
    let clusters = [("a", a.address), ("b", b.address)];
    let server = ResourceServer::start(&world("a", &clusters));
    let channel = channel(&server);
    let first = spawn(&channel);
    let held = a.next_call().await;

    let mut load = JoinSet::new();
    for _ in 0..8 {
        let channel = channel.clone();
        load.spawn(async move { while call(&channel).await.unwrap() == "a" {} });
    }
    for _ in 0..50 {
        a.next_call().await.answer();
    }
    server.set(&world("b", &clusters));
    while !load.is_empty() {
        tokio::select! {
            held = a.next_call() => held.answer(),
            Some(ended) = load.join_next() => ended.unwrap(),
        }
    }

    server.set(&world("b", &[("a", a.address), ("b", c.address)]));
    spread_until(&channel, 2, |answers| answers.get("c") == Some(&2)).await;
    for of_type in [CLUSTERS, ENDPOINTS] {
        assert!(server.asked_for(of_type).contains("a"), "{of_type}");
    }
    held.answer();
    assert_eq!(first.await.unwrap().unwrap(), "a");
    server.until_asked_for(CLUSTERS, &["b"]).await;
    server.until_asked_for(ENDPOINTS, &["b"]).await;
}

/// S4-22: a call that waits for a connection keeps its cluster subscribed after the route has left
/// it. The call goes to the endpoints that the cluster gets then.
#[tokio::test]
async fn a_queued_call_keeps_its_cluster() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();
    let (b, c, late) = tokio::join!(
        Backend::start("b"),
        Backend::start("c"),
        Backend::start("late")
    );
    let others = [("b", b.address), ("c", c.address)];
    let with = |a| [[("a", a)].as_slice(), &others].concat();
    let server = ResourceServer::start(&probed("a", "c", &with(silent_at)));
    let channel = channel(&server);
    let queued = spawn_when_ready(&channel);
    let _connection = silent.accept().await.unwrap();

    server.set(&probed("b", "b", &with(silent_at)));
    until_probe_finds(&channel, "b").await;
    // `c` had no call.
    server.until_asked_for(CLUSTERS, &["a", "b"]).await;
    server.until_asked_for(ENDPOINTS, &["a", "b"]).await;
    assert!(!queued.is_finished());

    server.set(&probed("b", "b", &with(late.address)));
    assert_eq!(queued.await.unwrap().unwrap(), "late");
    server.until_asked_for(CLUSTERS, &["b"]).await;
    server.until_asked_for(ENDPOINTS, &["b"]).await;
}

/// gRFC A31: a call that waits for ready does not wait for a cluster that the server has deleted.
/// That holds while its endpoints connect, and after they have failed.
#[tokio::test]
async fn a_deleted_cluster_fails_the_calls_that_wait_for_it() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = Backend::start("dead").await.kill().await;
    for a in [silent.local_addr().unwrap(), dead] {
        let b = Backend::start("b").await;
        let clusters = [("a", a), ("b", b.address)];
        let server = ResourceServer::start(&probed("a", "b", &clusters));
        let channel = channel(&server);
        let queued = spawn_when_ready(&channel);
        until_probe_finds(&channel, "b").await;
        assert!(!queued.is_finished());

        server.set(&probed("a", "b", &clusters[1..]));
        let status = queued.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let message = status.message();
        let expected = "cluster a: does not exist: the server deleted it";
        assert!(message.contains(expected), "{message}");
    }
}

/// gRFC A31: a call that waits for ready does not wait for a cluster that the server deleted after
/// its route.
#[tokio::test]
async fn a_cluster_deleted_after_its_route_fails_the_calls_that_wait_for_it() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let b = Backend::start("b").await;
    let clusters = [("a", silent.local_addr().unwrap()), ("b", b.address)];
    let server = ResourceServer::start(&world("a", &clusters));
    let channel = channel(&server);
    let queued = spawn_when_ready(&channel);
    let _connection = silent.accept().await.unwrap();

    server.set(&world("b", &clusters[1..]));
    let status = queued.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("the server deleted it"),
        "{status}"
    );
    server.until_asked_for(CLUSTERS, &["b"]).await;
}

/// gRFC A31: a call that waits for ready does not wait for a cluster without a route whose
/// endpoints fail. It does not matter which came first.
#[tokio::test]
async fn a_cluster_without_a_route_fails_calls_when_its_endpoints_fail() {
    for fails_first in [true, false] {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (b, c) = tokio::join!(Backend::start("b"), Backend::start("c"));
        let address = silent.local_addr().unwrap();
        let clusters = [("a", address), ("b", b.address), ("c", c.address)];
        let server = ResourceServer::start(&probed("a", "c", &clusters));
        let channel = channel(&server);
        let queued = spawn_when_ready(&channel);
        let mut connection = Some(silent.accept().await.unwrap());
        let mut silent = Some(silent);
        if fails_first {
            (connection, silent) = (None, None);
            // It fails, but not for those who wait for ready.
            assert_eq!(call(&channel).await.unwrap_err().code(), Code::Unavailable);
            assert!(!queued.is_finished());
        }
        server.set(&probed("b", "b", &clusters));
        until_probe_finds(&channel, "b").await;
        drop((connection, silent));
        let status = queued.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let message = status.message();
        assert!(message.contains("cluster a"), "{message}");
        assert!(message.contains(&address.to_string()), "{message}");
        server.until_asked_for(CLUSTERS, &["b"]).await;
    }
}

/// gRFC A31: an open stream finishes on its connection, though its cluster is gone.
#[tokio::test]
async fn an_open_stream_outlives_its_cluster() {
    let mut a = Backend::holding("a").await;
    let b = Backend::start("b").await;
    let clusters = [("a", a.address), ("b", b.address)];
    let server = ResourceServer::start(&world("a", &clusters));
    let mut channel = channel(&server);
    let request = http::Request::post(PATH).body(tonic::body::Body::empty());
    let response = tokio::spawn(channel.call(request.unwrap()));
    let mut held = a.next_call().await;
    let mut rest = held.begin();
    let body = response.await.unwrap().unwrap().into_body();

    server.set(&world("b", &clusters[1..]));
    server.until_asked_for(CLUSTERS, &["b"]).await;
    assert_eq!(spread(&channel, 10).await["b"], 10);
    assert!(!channel.tree().await.contains("cluster a"));
    rest.send_data("still here".into(), true).unwrap();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "still here");
}

/// S4-02: routes do not lead to a cluster before its endpoints are known; calls go where they went.
#[tokio::test]
async fn a_new_cluster_is_not_used_before_it_is_whole() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let clusters = [("a", a.address), ("b", b.address)];
    let server = ResourceServer::start(&world("a", &clusters[..1]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    server.set(&world("b", &clusters[..1]));
    server.until_asked_for(CLUSTERS, &["a", "b"]).await;
    assert_eq!(spread(&channel, 10).await["a"], 10);
    server.set(&world("b", &clusters[..1]).with(cluster("b")));
    server.until_asked_for(ENDPOINTS, &["a", "b"]).await;
    assert_eq!(spread(&channel, 10).await["a"], 10);
    server.set(&world("b", &clusters));
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
    server.until_asked_for(CLUSTERS, &["b"]).await;
}

/// S4-05: the listener names routes that are not there yet: the old ones serve on, and calls follow the
/// endpoints behind them. So they do while the routes name a cluster that is not there yet (S4-02).
#[tokio::test]
async fn endpoints_are_followed_while_the_next_configuration_is_missing() {
    let [a, b, c] = ["a", "b", "c"].map(Backend::start);
    let (a, b, c) = tokio::join!(a, b, c);
    let server = ResourceServer::start(&world("x", &[("x", a.address)]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    let other = || listener("payments").rds("other");
    server.set(&world("x", &[("x", a.address)]).with(other()));
    server.until_asked_for(ROUTES, &["other"]).await;
    server.set(&world("x", &[("x", b.address)]).with(other()));
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;

    server.set(&world("new", &[("x", b.address)]));
    server.until_asked_for(CLUSTERS, &["new", "x"]).await;
    server.set(&world("new", &[("x", c.address)]));
    spread_until(&channel, 3, |answers| answers.get("c") == Some(&3)).await;

    // The old cluster stays until the calls have left it: deleted before that, it would fail them.
    server.set(&world("new", &[("new", a.address), ("x", c.address)]));
    spread_until(&channel, 3, |answers| answers.get("a") == Some(&3)).await;
    server.until_asked_for(CLUSTERS, &["new"]).await;
}

/// A route that leaves a cluster and returns again and again fails no call. No call waits for a
/// cluster that was just released.
#[tokio::test]
async fn routes_go_back_and_forth() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let clusters = [("a", a.address), ("b", b.address)];
    let server = ResourceServer::start(&world("a", &clusters));
    let channel = channel(&server);
    for to in ["b", "a"].iter().cycle().take(20) {
        server.set(&world(to, &clusters));
        spread_until(&channel, 1, |answers| answers.contains_key(*to)).await;
    }
}

/// gRFC A88: trouble that leaves the configuration standing is part of the error of calls that fail
/// for another reason.
#[tokio::test]
async fn a_refused_listener_is_noted_in_errors() {
    let a = Backend::start("a").await;
    let dead = Backend::start("dead").await.kill().await;
    let resources = probed("dead", "a", &[("a", a.address), ("dead", dead)]);
    let mut server = ResourceServer::start(&resources);
    let channel = channel(&server);
    until_probe_finds(&channel, "a").await;
    let status = call(&channel).await.unwrap_err();
    assert!(!status.message().contains("listener"), "{status}");

    server.set(&resources.with(listener("payments").rds("payments-routes").invalid()));
    let reason = server.next_nack().await;
    let noted = async {
        loop {
            let status = call(&channel).await.unwrap_err();
            if status.message().contains("listener payments: invalid") {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let noted = tokio::time::timeout(Duration::from_secs(20), noted).await;
    let message = noted.expect("a note").message().to_owned();
    assert!(message.contains("cluster dead"), "{message}");
    assert!(reason.contains("listener payments"), "{reason}");
    until_probe_finds(&channel, "a").await;
}

/// The service `payments`: its calls go to the cluster `to`.
fn world(to: &str, clusters: &[(&str, SocketAddr)]) -> Resources {
    probed(to, to, clusters)
}

/// The service `payments` as [`world`] makes it, and calls to `/probe.` go to the cluster `probe`.
fn probed(to: &str, probe: &str, clusters: &[(&str, SocketAddr)]) -> Resources {
    let routes = routes("payments-routes").host("*");
    let resources = Resources::new()
        .with(listener("payments").rds("payments-routes"))
        .with(routes.route("/probe.", probe).route("/", to));
    clusters.iter().fold(resources, |resources, (name, at)| {
        resources
            .with(cluster(name))
            .with(endpoints(name).locality("eu/a", 1, [*at]))
    })
}

/// Waits until probes get to the backend of this name.
async fn until_probe_finds(channel: &Channel, backend: &str) {
    let probing = async {
        let probe = || send(channel, "/probe.Service/Call", Request::new(String::new()));
        while probe().await.unwrap() != backend {}
    };
    let found = tokio::time::timeout(Duration::from_secs(20), probing).await;
    found.expect("the route changes");
}

fn spawn(channel: &Channel) -> JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { call(&channel).await })
}

fn spawn_when_ready(channel: &Channel) -> JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { call_when_ready(&channel).await })
}
