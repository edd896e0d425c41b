//! Flow control over real sockets: the server is read no faster than watchers take what it said.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::time::Duration;

use crowfly_client::{Batch, Subscriber, XdsClient};
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{AdsServer, response};
use crowfly_xds::{Key, Kind};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use tokio::time::timeout;

/// Long enough for a response on loopback to be read and answered many times over.
const A_WHILE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

/// S1-26: while a watcher holds what a response brought, the next is not read; it is when the
/// watcher lets go.
#[tokio::test]
async fn next_response_waits_for_whoever_holds_the_last() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut subscriber = watching::<Cluster>(&client, "a");
    server.next_request().await;
    server.send(version("1"));
    let held = next(&mut subscriber).await;
    assert_eq!(server.next_request().await.response_nonce, "1");

    server.send(version("2"));
    assert_unread(&mut server).await;

    drop(held);
    assert_eq!(server.next_request().await.response_nonce, "2");
    assert_eq!(eds_name(&next(&mut subscriber).await), "2");
}

/// S1-26: a batch that nobody has taken yet counts as held.
#[tokio::test]
async fn next_response_waits_for_whoever_has_not_taken_the_last() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut subscriber = watching::<Cluster>(&client, "a");
    server.next_request().await;
    server.send(version("1"));
    server.next_request().await;

    server.send(version("2"));
    assert_unread(&mut server).await;

    drop(next(&mut subscriber).await);
    assert_eq!(server.next_request().await.response_nonce, "2");
}

/// S1-26: one watcher that holds is enough, and one that is dropped with what it has not taken
/// counts as having taken it.
#[tokio::test]
async fn dropped_watcher_does_not_hold_the_next_response() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut eager = watching::<Cluster>(&client, "a");
    let idle = watching::<Cluster>(&client, "a");
    server.next_request().await;
    server.send(version("1"));
    drop(next(&mut eager).await);
    server.next_request().await;
    server.send(version("2"));
    assert_unread(&mut server).await;

    drop(idle);

    assert_eq!(server.next_request().await.response_nonce, "2");
    assert_eq!(eds_name(&next(&mut eager).await), "2");
}

/// S1-26: a response that is news to nobody holds nothing up.
#[tokio::test]
async fn response_that_changes_nothing_is_consumed_at_once() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut subscriber = watching::<Cluster>(&client, "a");
    server.next_request().await;
    server.send(version("1"));
    drop(next(&mut subscriber).await);
    server.next_request().await;

    for nonce in ["2", "3", "4"] {
        let same = cluster("a").eds("1").any();
        server.send(response::<Cluster>(nonce, nonce, [same]));
        assert_eq!(server.next_request().await.response_nonce, nonce);
    }
}

/// S1-26: requests go out while responses are held up.
#[tokio::test]
async fn held_stream_still_sends() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut subscriber = watching::<Cluster>(&client, "a");
    server.next_request().await;
    server.send(version("1"));
    let held = next(&mut subscriber).await;
    server.next_request().await;
    server.send(version("2"));

    subscriber.watch(Key::of::<Cluster>("b"), Kind::of::<Cluster>());

    let request = server.next_request().await;
    assert_eq!(request.resource_names, ["a", "b"]);
    assert_eq!(request.response_nonce, "1", "the second is not read");
    drop(held);
}

/// S1-26: a stream that is held up, with more on its way than any window, does not keep another
/// client of the same server from being served.
#[tokio::test]
async fn held_stream_does_not_starve_another() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut subscriber = watching::<Endpoints>(&client, "a");
    server.next_request().await;
    server.send(response::<Endpoints>("1", "1", [endpoints("a").any()]));
    let held = next(&mut subscriber).await;
    let huge = endpoints(&"x".repeat(16 << 20)).any();
    server.send(response::<Endpoints>("2", "2", [huge]));

    let other = XdsClient::new(&server.bootstrap()).unwrap();
    let mut others = watching::<Cluster>(&other, "a");
    server.next_stream().await;
    server.next_request().await;
    server.send(version("1"));

    assert_eq!(eds_name(&next(&mut others).await), "1");
    drop(held);
}

fn watching<R: ResourceType>(client: &XdsClient, name: &str) -> Subscriber {
    let subscriber = client.subscriber();
    subscriber.watch(Key::of::<R>(name), Kind::of::<R>());
    subscriber
}

/// Cluster `a`, with its version in the name of its endpoints.
fn version(version: &str) -> DiscoveryResponse {
    response::<Cluster>(version, version, [cluster("a").eds(version).any()])
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
    let answer = timeout(A_WHILE, server.next_request()).await;
    assert!(answer.is_err(), "the response was read: {answer:?}");
}
