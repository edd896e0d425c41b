//! Channels without calls.
//!
//! An idle channel must hold no connection and no stream, and the next call must bring both back.

use std::time::Duration;

use crowfly::Channel;
use crowfly::ConnectivityState::{Connecting, Idle, Ready};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::net::TcpListener;

use crate::backend::Backend;
use crate::support::{call, call_when_ready, channel, pass, payments, reaches};

const DEFAULT: Duration = Duration::from_secs(30 * 60);

/// Short enough for many of them to pass while a call waits.
const SHORT: Duration = Duration::from_secs(2);

fn impatient(server: &ResourceServer) -> Channel {
    Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .idle_timeout(SHORT)
        .build()
        .unwrap()
}

/// Lets time pass, and the channel see that it has.
async fn tick(channel: &Channel, time: Duration) {
    pass(time).await;
    // The task of the channel does all that is due before it answers the next question.
    for _ in 0..2 {
        channel.tree().await;
    }
}

/// After half an hour to an hour without calls a channel has no connections and no ADS stream. The
/// next call works as the first one did.
#[tokio::test]
async fn a_channel_without_calls_lets_go_of_everything() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.has_streams(1).await;
    tick(&channel, DEFAULT).await;
    assert_eq!(channel.state(), Ready);
    tick(&channel, DEFAULT).await;
    assert_eq!(channel.state(), Idle);
    a.has_open(0).await;
    server.has_streams(0).await;
    assert_eq!(channel.tree().await, "");

    server.set(&payments(&[&b]));
    assert_eq!(call(&channel).await.unwrap(), "b");
    assert_eq!(channel.state(), Ready);
    assert_eq!((a.connections(), b.connections()), (1, 1));
    tick(&channel, DEFAULT).await;
    tick(&channel, DEFAULT).await;
    assert_eq!(channel.state(), Idle);
}

/// An open call keeps its channel awake, however long ago it began.
#[tokio::test]
async fn an_open_call_keeps_the_channel_awake() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = impatient(&server);
    let caller = {
        let channel = channel.clone();
        tokio::spawn(async move { call(&channel).await })
    };
    let held = a.next_call().await;
    for _ in 0..4 {
        tick(&channel, SHORT).await;
        assert_eq!(channel.state(), Ready);
    }
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    tick(&channel, SHORT).await;
    assert_eq!(channel.state(), Ready);
    tick(&channel, SHORT).await;
    assert_eq!(channel.state(), Idle);
}

/// A call that waits for a backend keeps its channel awake.
#[tokio::test]
async fn a_call_that_waits_for_a_backend_keeps_the_channel_awake() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let server = ResourceServer::start(&Resources::service("payments", [address]));
    let mut open = None;
    let dialled = async { open = Some(silent.accept().await.unwrap()) };
    stays_awake(&server, dialled).await;
}

/// A call that waits for a configuration keeps its channel awake.
#[tokio::test]
async fn a_call_that_waits_for_a_configuration_keeps_the_channel_awake() {
    let server = ResourceServer::start(&Resources::new());
    stays_awake(&server, server.has_streams(1)).await;
}

/// Lets time pass while a call waits, from the moment when `waiting` is over.
async fn stays_awake(server: &ResourceServer, waiting: impl Future<Output = ()>) {
    let a = Backend::start("a").await;
    let channel = impatient(server);
    let caller = {
        let channel = channel.clone();
        tokio::spawn(async move { call_when_ready(&channel).await })
    };
    // The call would wake the channel at once, so only a watch sees that it was idle.
    let mut watch = channel.watch_state();
    let states = tokio::spawn(async move {
        let mut states = vec![watch.state()];
        while let Some(state) = watch.changed().await {
            states.push(state);
        }
        states
    });
    waiting.await;
    for _ in 0..4 {
        tick(&channel, SHORT).await;
    }
    server.set(&payments(&[&a]));
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    drop(channel);
    assert_eq!(states.await.unwrap(), [Connecting, Ready]);
}

/// An application that knows that calls are about to come can have the connections made before.
#[tokio::test]
async fn an_idle_channel_connects_when_asked_to() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = impatient(&server);
    let mut watch = channel.watch_state();
    reaches(&mut watch, Ready).await;
    tick(&channel, SHORT).await;
    reaches(&mut watch, Idle).await;
    a.has_open(0).await;
    channel.request_connection();
    reaches(&mut watch, Ready).await;
    a.has_open(1).await;
}
