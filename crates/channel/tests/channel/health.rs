//! Client-side health checking (gRFC A17) over real sockets.
//!
//! A test answers each check itself, so that it decides the health of a backend and the time of a
//! change.

use std::future::poll_fn;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly::Channel;
use crowfly::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ClusterBuilder, Resources, cluster, endpoint, endpoints, routes};
use envoy_types::pb::google::protobuf::Any;
use h2::Reason;
use http::HeaderMap;
use tokio::time::timeout;
use tonic::{Code, Request};
use tracing::subscriber::set_default;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt;

use crate::backend::{Backend, Held, framed};
use crate::limits::limited;
use crate::support::{
    PATH, call, call_when_ready, pass, payments, reaches, send, spread, spread_until,
};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;
const UNAVAILABLE: i32 = Code::Unavailable as i32;
const UNIMPLEMENTED: i32 = Code::Unimplemented as i32;

/// gRFC A17: a backend is CONNECTING until it has answered for the first time. The check names the service,
/// and the authority of calls.
#[tokio::test]
async fn calls_wait_for_the_first_answer() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = checked(&server);
    let mut check = a.next_watch().await;
    assert_eq!(check.text().await, "shop.Payments");
    let sent_to = check.request.uri().authority().unwrap();
    assert_eq!(sent_to.as_str(), "payments");
    assert_eq!(channel.state(), Connecting);
    let calls = {
        let channel = channel.clone();
        tokio::spawn(async move { call(&channel).await })
    };
    let mut check = Check::answer(check, SERVING);
    assert_eq!(calls.await.unwrap().unwrap(), "a");
    assert_eq!(channel.state(), Ready);

    // The check ends with the channel.
    drop(channel);
    check.is_cancelled().await;
}

/// gRFC A17: an unhealthy backend gets no calls and keeps its connection. When it is healthy again it gets
/// calls at once.
#[tokio::test]
async fn an_unhealthy_backend_is_left_out_until_it_is_healthy() {
    let (mut a, mut b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&payments(&[&a, &b]));
    let channel = checked(&server);
    let mut check_a = Check::answer(a.next_watch().await, SERVING);
    let mut check_b = Check::answer(b.next_watch().await, NOT_SERVING);
    assert_eq!(spread(&channel, 4).await["a"], 4);
    check_b.says(SERVING);
    spread_until(&channel, 2, |answers| answers.len() == 2).await;
    check_a.says(NOT_SERVING);
    spread_until(&channel, 4, |answers| !answers.contains_key("a")).await;

    check_b.says(NOT_SERVING);
    reaches(&mut channel.watch_state(), TransientFailure).await;
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let reason = format!(
        "{}: health check: service shop.Payments is NOT_SERVING",
        b.address
    );
    assert!(status.message().contains(&reason), "{status}");
    check_a.says(SERVING);
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
    assert_eq!((a.connections(), b.connections()), (1, 1));
}

/// gRFC A17: a Watch call that ends after an answer is made again at once, and the backend is CONNECTING
/// meanwhile. One that ends without an answer is a failure, and is made again after a wait.
#[tokio::test]
async fn a_broken_check_is_made_again() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = checked(&server);
    let mut states = channel.watch_state();
    let check = Check::answer(a.next_watch().await, SERVING);
    reaches(&mut states, Ready).await;
    check.ends(UNAVAILABLE);
    let again = a.next_watch().await;
    reaches(&mut states, Connecting).await;
    again.end_in_head(UNAVAILABLE);
    reaches(&mut states, TransientFailure).await;
    let status = call(&channel).await.unwrap_err();
    let reason = "service shop.Payments cannot be watched: Unavailable";
    assert!(status.message().contains(reason), "{status}");
    assert_eq!(a.unseen_watches(), 0);

    // Longer than the first wait.
    pass(Duration::from_secs(2)).await;
    let _check = Check::answer(a.next_watch().await, SERVING);
    reaches(&mut states, Ready).await;
    assert_eq!(a.connections(), 1);
}

/// gRFC A17: a backend without the method counts as healthy. The log says so at ERROR, once for a
/// subchannel, and the next connection is checked again.
#[tokio::test]
async fn a_backend_without_health_counts_as_healthy() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    // With one subscriber in the process, `tracing` asks whichever thread comes first whether anybody
    // listens, and other tests do not. With two it asks both.
    let _second = Dispatch::new(fmt().finish());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = fmt().with_max_level(Level::ERROR);
    let subscriber = subscriber.with_writer(move || writer.clone());
    // The test has one thread, and so has all that it started.
    let _logged = set_default(subscriber.finish());

    let channel = checked(&server);
    for connections in 1..3 {
        a.next_watch().await.end_in_head(UNIMPLEMENTED);
        assert_eq!(call(&channel).await.unwrap(), "a");
        assert_eq!((a.connections(), a.unseen_watches()), (connections, 0));
        a.go_away();
    }
    let bytes = log.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("it counts as healthy").count(), 1, "{text}");
}

/// gRFC A61: under `pick_first` nothing is checked.
#[tokio::test]
async fn pick_first_is_not_checked() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]).with(pick_first("payments-cluster")));
    let channel = checked(&server);
    assert_eq!(spread(&channel, 4).await["a"], 4);
    assert_eq!(a.unseen_watches(), 0);
}

/// gRFC A17: a check is no call. It takes nothing from the limit of a cluster, and is no reason to stay
/// awake. It ends with the connection.
#[tokio::test]
async fn a_check_is_no_call() {
    const INTERVAL: Duration = Duration::from_secs(2);
    let mut a = Backend::start("a").await;
    let resources = payments(&[&a])
        .with(
            routes("payments-routes")
                .host("*")
                .route("/", "checked-one"),
        )
        .with(limited("checked-one", 1));
    let server = ResourceServer::start(&resources);
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .health_check("shop.Payments")
        .idle_timeout(INTERVAL)
        .build()
        .unwrap();
    let mut check = Check::answer(a.next_watch().await, SERVING);
    assert_eq!(spread(&channel, 4).await["a"], 4);
    for _ in 0..2 {
        pass(INTERVAL).await;
        // The driver does all that it has to do before it answers the second time.
        channel.tree().await;
        channel.tree().await;
    }
    reaches(&mut channel.watch_state(), Idle).await;
    check.is_cancelled().await;
    a.has_open(0).await;
}

/// A backend that leaves the configuration is not checked any more.
#[tokio::test]
async fn a_release_ends_the_check() {
    let (mut a, mut b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = checked(&server);
    let mut check = Check::answer(a.next_watch().await, SERVING);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&payments(&[&b]));
    let _check_b = Check::answer(b.next_watch().await, SERVING);
    check.is_cancelled().await;
    assert_eq!(spread(&channel, 4).await["b"], 4);
}

/// gRFC A17: a GOAWAY cancels the check, and is no failure. The next connection has a check of its own.
#[tokio::test]
async fn a_server_that_goes_away_is_no_failure() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = checked(&server);
    let mut check = Check::answer(a.next_watch().await, SERVING);
    assert_eq!(call(&channel).await.unwrap(), "a");
    a.go_away();
    check.is_cancelled().await;
    let calls = {
        let channel = channel.clone();
        tokio::spawn(async move { call(&channel).await })
    };
    let _check = Check::answer(a.next_watch().await, SERVING);
    assert_eq!(calls.await.unwrap().unwrap(), "a");
}

/// A connection that is cut ends its check as well. That is no bad health: calls wait for the next
/// connection, as they do without health checks.
#[tokio::test]
async fn a_lost_connection_is_no_bad_health() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = checked(&server);
    let _unanswered = a.next_watch().await;
    // Long enough for the connection not to count as a failed attempt to connect.
    pass(Duration::from_secs(2)).await;
    a.cut();
    let check = a.next_watch().await;
    assert_eq!(channel.state(), Connecting);
    let _check = Check::answer(check, SERVING);
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// gRFC A17: health belongs to a subchannel. Two clusters at one address ask once, and both hear of it.
#[tokio::test]
async fn clusters_share_the_check_of_a_subchannel() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&twice(&a));
    let channel = checked(&server);
    let mut check = Check::answer(a.next_watch().await, SERVING);
    let both = [PATH, "/other.Echo/Call"];
    for path in both {
        let answer = send(&channel, path, Request::new("hello".to_owned())).await;
        assert_eq!(answer.unwrap(), "a");
    }
    assert_eq!((a.connections(), a.unseen_watches()), (1, 0));
    check.says(NOT_SERVING);
    reaches(&mut channel.watch_state(), TransientFailure).await;
    for path in both {
        let answer = send(&channel, path, Request::new("hello".to_owned())).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
    }

    // The check goes on for the cluster that stays.
    server.set(&payments(&[&a]));
    check.says(SERVING);
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
    assert_eq!((a.connections(), a.unseen_watches()), (1, 0));
}

/// The check of a subchannel ends when no cluster asks for health any more. The subchannel stays for a
/// cluster that does not ask.
#[tokio::test]
async fn the_check_ends_with_the_last_cluster_that_asks() {
    let mut a = Backend::start("a").await;
    let pick_first = pick_first("payments-cluster");
    let server = ResourceServer::start(&twice(&a).with(pick_first.clone()));
    let channel = checked(&server);
    let mut check = Check::answer(a.next_watch().await, SERVING);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&payments(&[&a]).with(pick_first));
    check.is_cancelled().await;
    assert_eq!(call(&channel).await.unwrap(), "a");
    assert_eq!(a.connections(), 1);
}

fn pick_first(name: &str) -> ClusterBuilder {
    let pick_first = Any {
        type_url:
            "type.googleapis.com/envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst"
                .to_owned(),
        value: Vec::new(),
    };
    cluster(name).eds("payments-eds").policies([pick_first])
}

/// gRFC A81: a connection gets a new host name at once. That makes no unhealthy backend healthy.
#[tokio::test]
async fn a_new_host_name_makes_nobody_healthy() {
    let (mut a, mut b) = (Backend::start("a").await, Backend::start("b").await);
    let named = |name, backends: &[&Backend]| {
        let backends = backends.iter().map(|backend| {
            let address = backend.address.to_string();
            endpoint(&address).hostname(name)
        });
        payments(&[]).with(endpoints("payments-eds").locality("eu/a", 1, backends))
    };
    let server = ResourceServer::start(&named("one", &[&a]));
    let channel = checked(&server);
    let mut states = channel.watch_state();
    let _check_a = Check::answer(a.next_watch().await, NOT_SERVING);
    reaches(&mut states, TransientFailure).await;
    server.set(&named("two", &[&a, &b]));
    // The names were taken before the new backend was connected.
    let check = b.next_watch().await;
    assert_ne!(channel.state(), Ready);
    let _check_b = Check::answer(check, NOT_SERVING);
    reaches(&mut states, TransientFailure).await;
}

/// A service with two clusters that have the same backend.
fn twice(backend: &Backend) -> Resources {
    let both = routes("payments-routes")
        .host("*")
        .route("/other.", "other-cluster")
        .route("/", "payments-cluster");
    payments(&[backend])
        .with(both)
        .with(cluster("other-cluster").eds("payments-eds"))
}

/// A channel to `xds:///payments` that checks the service `shop.Payments`.
fn checked(server: &ResourceServer) -> Channel {
    Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .health_check("shop.Payments")
        .build()
        .unwrap()
}

/// A Watch call whose response has begun.
struct Check {
    answers: h2::SendStream<bytes::Bytes>,
}

impl Check {
    fn answer(mut held: Held, status: u8) -> Self {
        let answers = held.begin();
        let mut check = Self { answers };
        check.says(status);
        check
    }

    /// Sends a `HealthCheckResponse`.
    fn says(&mut self, status: u8) {
        const FIELD_1_VARINT: u8 = 0x08;
        let message = framed(&[FIELD_1_VARINT, status]);
        self.answers.send_data(message, false).unwrap();
    }

    /// Ends the response with a status.
    fn ends(mut self, status: i32) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.into());
        self.answers.send_trailers(trailers).unwrap();
    }

    /// Waits for the client to cancel the call.
    async fn is_cancelled(&mut self) {
        let reset = poll_fn(|cx| self.answers.poll_reset(cx));
        let reset = timeout(PATIENCE, reset).await.expect("the check ends");
        assert_eq!(reset.unwrap(), Reason::CANCEL);
    }
}

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
