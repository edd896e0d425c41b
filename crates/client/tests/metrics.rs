//! Tests of the events that a recorder is told (gRFC A78), over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::sync::Arc;
use std::time::Duration;

use crowfly_client::XdsClient;
use crowfly_client::metrics::{MetricsRecorder, ResourceLabels, ServerLabels};
use crowfly_model::ResourceType;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{AdsServer, response};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

/// gRFC A78: a stream counts as connected from its start, and what a response held and what became
/// of the resources is counted.
#[tokio::test]
async fn resources_and_updates_are_counted() {
    let mut server = AdsServer::start();
    let (client, mut seen) = recorded(&server);
    let mut a = client.watch::<Cluster>("a").unwrap();
    let mut b = client.watch::<Cluster>("b").unwrap();
    server.next_request().await;
    seen.until("connected true").await;
    seen.until("#old requested 2").await;

    server.send(response::<Cluster>(
        "1",
        "1",
        [cluster("a").any(), cluster("b").invalid().any()],
    ));
    a.next().await.unwrap();
    b.next().await.unwrap();
    seen.until("1 valid, 1 invalid").await;
    seen.until("#old acked 1").await;
    seen.until("#old nacked 1").await;
    seen.until("#old requested 0").await;

    // Equal resources count too.
    server.send(response::<Cluster>(
        "2",
        "2",
        [cluster("a").any(), cluster("b").any()],
    ));
    seen.until("2 valid, 0 invalid").await;
    seen.until("#old acked 2").await;
    seen.until("#old nacked 0").await;

    drop(b);
    seen.until("#old acked 1").await;
}

/// gRFC A78, A57: a server fails once, however often it is then tried, and is connected again with
/// its first response. The end of a stream that brought something is no failure.
#[tokio::test]
async fn a_failure_counts_once_until_the_server_answers() {
    let mut server = AdsServer::start();
    let (client, mut seen) = recorded(&server);
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("1", "1", [cluster("a").any()]));
    watch.next().await.unwrap();
    seen.until("1 valid, 0 invalid").await;

    server.stop().await;
    seen.until("server failure").await;
    seen.until("connected false").await;
    server.restart();
    server.next_stream().await;
    server.close_stream(Status::unavailable("not yet"));
    server.next_stream().await;
    server.next_request().await;
    server.send(response::<Cluster>("1", "2", [cluster("a").any()]));
    let before = seen.until("1 valid, 0 invalid").await;
    assert_eq!(before, ["connected true"]);
}

/// A client that tells what it records.
fn recorded(server: &AdsServer) -> (XdsClient, Seen) {
    let (sender, events) = mpsc::unbounded_channel();
    let client = XdsClient::builder(Arc::new(server.bootstrap()))
        .target("xds:///svc")
        .recorder(Arc::new(Teller {
            server: server.address().to_string(),
            sender,
        }))
        .build()
        .unwrap();
    (client, Seen { events })
}

/// The events that were recorded and not looked at yet.
struct Seen {
    events: mpsc::UnboundedReceiver<String>,
}

impl Seen {
    /// Waits for an event; returns those before it.
    async fn until(&mut self, wanted: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let next = timeout(Duration::from_secs(20), self.events.recv()).await;
            match next {
                Ok(Some(event)) if event == wanted => return before,
                Ok(Some(event)) => before.push(event),
                _ => panic!("expected {wanted:?} after {before:?}"),
            }
        }
    }
}

#[derive(Debug)]
struct Teller {
    server: String,
    sender: mpsc::UnboundedSender<String>,
}

impl Teller {
    fn tell(&self, event: String) {
        // The test may be over.
        let _ = self.sender.send(event);
    }

    fn check(&self, labels: ServerLabels<'_>) {
        assert_eq!(labels.target, "xds:///svc");
        assert_eq!(labels.server, self.server);
    }
}

impl MetricsRecorder for Teller {
    fn connected(&self, labels: ServerLabels<'_>, connected: bool) {
        self.check(labels);
        self.tell(format!("connected {connected}"));
    }

    fn server_failure(&self, labels: ServerLabels<'_>) {
        self.check(labels);
        self.tell("server failure".to_owned());
    }

    fn updates(&self, labels: ServerLabels<'_>, resource_type: &str, valid: u64, invalid: u64) {
        self.check(labels);
        assert_eq!(resource_type, Cluster::TYPE_URL);
        self.tell(format!("{valid} valid, {invalid} invalid"));
    }

    fn resources(&self, labels: ResourceLabels<'_>, count: u64) {
        assert_eq!(labels.target, "xds:///svc");
        assert_eq!(labels.resource_type, Cluster::TYPE_URL);
        let (authority, state) = (labels.authority, labels.cache_state);
        self.tell(format!("{authority} {state} {count}"));
    }
}
