//! Tests of flow control over real sockets: the client reads a server no faster than its watchers
//! take the resources. So a slow watcher costs no memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crowfly_client::metrics::{MetricsRecorder, ServerLabels};
use crowfly_client::{Batch, Subscriber, XdsClient};
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{AdsServer, over_both_on_sockets};
use crowfly_xds::{Key, Protocol};
use envoy_types::pb::google::protobuf::Any;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Long enough for a response on loopback to be read and answered many times over.
const A_WHILE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

/// S1-26: while a watcher holds what a response brought, the next is not read; it is when the
/// watcher lets go.
#[tokio::test]
async fn next_response_waits_for_whoever_holds_the_last() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut subscriber = watching::<Cluster>(&client, "a");
        server.next_asked().await;
        tell(&server, "1");
        let held = next(&mut subscriber).await;
        assert_eq!(server.next_asked().await.nonce, "1");

        tell(&server, "2");
        assert_unread(&mut server).await;

        drop(held);
        assert_eq!(server.next_asked().await.nonce, "2");
        assert_eq!(eds_name(&next(&mut subscriber).await), "2");
    })
    .await;
}

/// S1-26: a batch that nobody has taken yet counts as held.
#[tokio::test]
async fn next_response_waits_for_whoever_has_not_taken_the_last() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut subscriber = watching::<Cluster>(&client, "a");
        server.next_asked().await;
        tell(&server, "1");
        server.next_asked().await;

        tell(&server, "2");
        assert_unread(&mut server).await;

        drop(next(&mut subscriber).await);
        assert_eq!(server.next_asked().await.nonce, "2");
    })
    .await;
}

/// S1-26: one watcher that holds is enough, and one that is dropped with what it has not taken
/// counts as having taken it.
#[tokio::test]
async fn dropped_watcher_does_not_hold_the_next_response() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut eager = watching::<Cluster>(&client, "a");
        let idle = watching::<Cluster>(&client, "a");
        server.next_asked().await;
        tell(&server, "1");
        drop(next(&mut eager).await);
        server.next_asked().await;
        tell(&server, "2");
        assert_unread(&mut server).await;

        drop(idle);

        assert_eq!(server.next_asked().await.nonce, "2");
        assert_eq!(eds_name(&next(&mut eager).await), "2");
    })
    .await;
}

/// S1-26: a response that is news to nobody holds nothing up.
#[tokio::test]
async fn response_that_changes_nothing_is_consumed_at_once() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut subscriber = watching::<Cluster>(&client, "a");
        server.next_asked().await;
        tell(&server, "1");
        drop(next(&mut subscriber).await);
        server.next_asked().await;

        for nonce in ["2", "3", "4"] {
            let same = cluster("a").eds("1").any();
            server.tell::<Cluster>(nonce, [("a", same)]);
            assert_eq!(server.next_asked().await.nonce, nonce);
        }
    })
    .await;
}

/// S1-26: requests go out while responses are held up.
#[tokio::test]
async fn held_stream_still_sends() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut subscriber = watching::<Cluster>(&client, "a");
        server.next_asked().await;
        tell(&server, "1");
        let held = next(&mut subscriber).await;
        server.next_asked().await;
        tell(&server, "2");

        subscriber.watch(Key::of::<Cluster>("b")).unwrap();

        let request = server.next_asked().await;
        match protocol {
            Protocol::Delta => assert_eq!(
                (&*request.names, &*request.nonce),
                (&["b".to_owned()][..], "")
            ),
            Protocol::StateOfTheWorld => {
                assert_eq!(request.names, ["a", "b"]);
                assert_eq!(request.nonce, "1", "the second is not read");
            }
        }
        drop(held);
    })
    .await;
}

/// S1-26: a stream that is held up, with more on its way than any window, does not keep another
/// client of the same server from being served.
#[tokio::test]
async fn held_stream_does_not_starve_another() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut subscriber = watching::<Endpoints>(&client, "a");
        server.next_asked().await;
        server.tell::<Endpoints>("1", [("a", endpoints("a").any())]);
        let held = next(&mut subscriber).await;
        let huge = endpoints(&"x".repeat(16 << 20)).any();
        server.tell::<Endpoints>("2", [("huge", huge)]);

        let other = XdsClient::new(&server.bootstrap()).unwrap();
        let mut others = watching::<Cluster>(&other, "a");
        server.next_stream().await;
        server.next_asked().await;
        tell(&server, "1");

        assert_eq!(eds_name(&next(&mut others).await), "1");
        drop(held);
    })
    .await;
}

/// A server that talks and does not listen is read no further than its answers can wait: in delta
/// each response has one of its own. When it listens again, it gets them all.
#[tokio::test]
async fn server_that_does_not_listen_is_not_read() {
    const RESPONSES: usize = 200;
    let mut server = AdsServer::speaking(Protocol::Delta);
    let read = Arc::new(Read::default());
    let recorder = Arc::clone(&read);
    let client = XdsClient::builder(Arc::new(server.bootstrap()))
        .recorder(recorder)
        .build()
        .unwrap();
    let _subscriber = watching::<Cluster>(&client, "a");
    server.next_asked().await;

    // It is refused at length: the answers fill what the transport takes unread.
    let bad = Any {
        type_url: "x".repeat(200_000),
        ..Any::default()
    };
    server.listen(false);
    for nonce in 0..RESPONSES {
        server.tell::<Cluster>(&nonce.to_string(), [("", bad.clone())]);
    }
    let all = async {
        while read.responses.load(Relaxed) < RESPONSES / 2 {
            read.more.notified().await;
        }
    };
    assert!(
        timeout(2 * A_WHILE, all).await.is_err(),
        "half of them were read"
    );

    server.listen(true);
    for nonce in 0..RESPONSES {
        let answer = server.next_asked().await;
        assert_eq!(answer.nonce, nonce.to_string());
        assert!(answer.refusal.unwrap().len() > 200_000);
    }
}

/// Counts responses.
#[derive(Debug, Default)]
struct Read {
    responses: AtomicUsize,
    more: Notify,
}

impl MetricsRecorder for Read {
    fn updates(&self, _: ServerLabels<'_>, _: &str, _: u64, _: u64) {
        self.responses.fetch_add(1, Relaxed);
        self.more.notify_one();
    }
}

fn watching<R: ResourceType>(client: &XdsClient, name: &str) -> Subscriber {
    let subscriber = client.subscriber();
    subscriber.watch(Key::of::<R>(name)).unwrap();
    subscriber
}

/// Cluster `a`, with its version in the name of its endpoints.
fn tell(server: &AdsServer, version: &str) {
    server.tell::<Cluster>(version, [("a", cluster("a").eds(version).any())]);
}

async fn next(subscriber: &mut Subscriber) -> Batch {
    let batch = timeout(PATIENCE, subscriber.next()).await;
    batch.expect("a batch is due").expect("the client lives")
}

fn eds_name(batch: &Batch) -> String {
    let read = batch.updates[0].entry.read::<Cluster>();
    read.unwrap().unwrap().eds_name().unwrap().to_owned()
}

async fn assert_unread(server: &mut AdsServer) {
    let answer = timeout(A_WHILE, server.next_asked()).await;
    assert!(answer.is_err(), "the response was read: {answer:?}");
}
