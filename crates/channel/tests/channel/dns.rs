//! Clusters whose endpoints are a DNS name, against a name server on loopback.
//!
//! Backends listen on 127.0.0.1. On 127.0.0.2 connections are refused, so that a test has an
//! address that fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly::dns::{Lookup, Resolve, SystemResolver};
use crowfly::{Channel, ChannelBuilder};
use crowfly_testkit::builders::{Resources, cluster, endpoints, routes};
use crowfly_testkit::{DnsAnswer, DnsServer, NODE_ID, ResourceServer};
use tokio::sync::watch;
use tokio::time;
use tonic::{Code, Request};

use crate::backend::Backend;
use crate::support::{call, call_when_ready, pass, payments, send, spread, spread_until};

/// The system's resolver with the server of a test, and what it was asked for.
#[derive(Clone, Debug)]
struct Recorder {
    resolver: SystemResolver,
    started: Arc<Mutex<Vec<String>>>,
    ended: watch::Sender<usize>,
}

impl Recorder {
    fn new(server: &DnsServer) -> Self {
        Self {
            resolver: SystemResolver::with_name_server(server.address()),
            started: Arc::default(),
            ended: watch::Sender::default(),
        }
    }

    /// The host of every lookup that has started.
    async fn hosts(&self) -> Vec<String> {
        // The channel's task has done all that was due after this exchange.
        let _ = self.resolver.resolve("somebody.test").await;
        self.started.lock().unwrap().clone()
    }

    /// Waits until this many lookups have ended.
    async fn ended(&self, count: usize) {
        let mut ended = self.ended.subscribe();
        let ended = ended.wait_for(|ended| *ended >= count);
        let ended = time::timeout(Duration::from_secs(20), ended).await;
        ended.expect("another lookup").unwrap();
    }
}

impl Resolve for Recorder {
    fn resolve(&self, host: &str) -> Lookup {
        self.started.lock().unwrap().push(host.to_owned());
        let ended = self.ended.clone();
        let lookup = self.resolver.resolve(host);
        Box::pin(async move {
            let answer = lookup.await;
            ended.send_modify(|ended| *ended += 1);
            answer
        })
    }
}

/// A channel to `xds:///payments` that looks names up with `dns`.
fn builder(server: &ResourceServer, dns: &Recorder) -> ChannelBuilder {
    Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .dns_resolver(Arc::new(dns.clone()))
}

/// The service `payments`, at the port of `backend` on `host`.
fn payments_at(host: &str, backend: &Backend) -> Resources {
    payments(&[]).with(cluster("payments-cluster").logical_dns(host, backend.address.port()))
}

const WINDOW: Duration = Duration::from_secs(30);

/// A name is one endpoint: if one of its addresses does not work, the next is tried (gRFC A61).
#[tokio::test]
async fn calls_go_to_an_address_of_the_name_that_works() {
    let dns = DnsServer::start().await;
    dns.set(
        "backend.test",
        DnsAnswer::addresses(&["127.0.0.2", "127.0.0.1"]),
    );
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments_at("backend.test", &a));
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder).build().unwrap();
    assert_eq!(spread(&channel, 10).await["a"], 10);
    assert_eq!(recorder.hosts().await, ["backend.test"]);
}

/// A name that cannot be looked up fails calls with the reason; 30 seconds later it is looked up
/// again.
#[tokio::test]
async fn a_failed_lookup_is_named_and_heals() {
    let dns = DnsServer::start().await;
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments_at("backend.test", &a));
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder).build().unwrap();
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let name = format!("DNS name backend.test:{}", a.address.port());
    for part in [&*name, "no such host (NXDOMAIN)", NODE_ID] {
        assert!(status.message().contains(part), "{}", status.message());
    }

    dns.set("backend.test", DnsAnswer::addresses(&["127.0.0.1"]));
    call(&channel).await.unwrap_err();
    assert_eq!(recorder.hosts().await, ["backend.test"]);
    pass(WINDOW).await;
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// S6-17: connections that fail are a reason to look the name up again, in spite of its time to
/// live, but not within 30 seconds.
#[tokio::test]
async fn failed_connections_cause_a_lookup_once_in_30_seconds() {
    let dns = DnsServer::start().await;
    dns.set("backend.test", DnsAnswer::addresses(&["127.0.0.2"]));
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments_at("backend.test", &a));
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder).build().unwrap();
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);

    dns.set("backend.test", DnsAnswer::addresses(&["127.0.0.1"]));
    pass(WINDOW / 2).await;
    call(&channel).await.unwrap_err();
    assert_eq!(recorder.hosts().await, ["backend.test"]);
    pass(WINDOW / 2).await;
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
    assert_eq!(recorder.hosts().await, ["backend.test"; 2]);
}

/// S6-17: connections of a cluster that is not from DNS are no reason to look names up.
#[tokio::test]
async fn failed_connections_of_other_clusters_cause_no_lookup() {
    let dns = DnsServer::start().await;
    dns.set("backend.test", DnsAnswer::addresses(&["127.0.0.1"]));
    let a = Backend::start("a").await;
    let nobody = format!("127.0.0.2:{}", a.address.port());
    let routes = routes("payments-routes").host("*");
    let resources = payments_at("backend.test", &a)
        .with(routes.route("/eds.", "eds").route("/", "payments-cluster"))
        .with(cluster("eds"))
        .with(endpoints("eds").locality("eu/a", 1, [&*nobody]));
    let server = ResourceServer::start(&resources);
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder).build().unwrap();
    for _ in 0..2 {
        let status = send(&channel, "/eds.Service/Call", Request::new(String::new())).await;
        assert_eq!(status.unwrap_err().code(), Code::Unavailable);
        assert_eq!(call(&channel).await.unwrap(), "a");
        pass(WINDOW).await;
        assert_eq!(recorder.hosts().await, ["backend.test"]);
    }
}

/// S6-05: an error after a good answer leaves the answer.
#[tokio::test]
async fn an_error_after_a_good_answer_changes_nothing() {
    let dns = DnsServer::start().await;
    dns.set("backend.test", DnsAnswer::addresses(&["127.0.0.1"]));
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments_at("backend.test", &a));
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder)
        .dns_refresh(WINDOW)
        .build()
        .unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");

    let failures = [
        DnsAnswer::ServerFailure,
        DnsAnswer::NoSuchHost,
        DnsAnswer::addresses::<&str>(&[]),
    ];
    for (i, failure) in failures.into_iter().enumerate() {
        dns.set("backend.test", failure);
        pass(WINDOW).await;
        recorder.ended(i + 2).await;
        assert_eq!(spread(&channel, 10).await["a"], 10);
    }
    assert_eq!(a.connections(), 1);
}

/// S6-15: another name in the cluster is looked up, and the old one is not looked up any more.
#[tokio::test]
async fn a_cluster_gets_another_name() {
    let dns = DnsServer::start().await;
    dns.set("old.test", DnsAnswer::addresses(&["127.0.0.1"]));
    dns.set("new.test", DnsAnswer::addresses(&["127.0.0.1"]));
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let server = ResourceServer::start(&payments_at("old.test", &a));
    let recorder = Recorder::new(&dns);
    let channel = builder(&server, &recorder)
        .dns_refresh(WINDOW)
        .build()
        .unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");

    server.set(&payments_at("new.test", &b));
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
    pass(WINDOW).await;
    recorder.ended(3).await;
    assert_eq!(recorder.hosts().await, ["old.test", "new.test", "new.test"]);
}
