//! Backends that vanish without closing their connections (gRFC A8).
//!
//! TCP notices this late or never, so the channel sends PINGs.

use std::time::Duration;

use crowfly::{Channel, ChannelBuilder, ConnectionLost};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::time;
use tonic::{Code, Status};

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::support::{call, call_when_ready, pass};

/// The least interval between PINGs.
const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(2);

fn builder(server: &ResourceServer) -> ChannelBuilder {
    Channel::builder("xds:///payments").bootstrap(server.bootstrap())
}

/// A channel that asks for PINGs more often than it gets them, and has a long timeout for the
/// answers.
fn eager(server: &ResourceServer) -> ChannelBuilder {
    builder(server).keepalive(Duration::from_millis(100), Duration::from_secs(600))
}

/// Makes a call and then the connection silent. Returns the status of the call, and the time until
/// its end.
async fn lose_a_call(channel: &Channel, a: &mut Backend, proxy: &Proxy) -> (Status, Duration) {
    let channel = channel.clone();
    let caller = tokio::spawn(async move { call_when_ready(&channel).await });
    let _held = a.next_call().await;
    proxy.silence();
    // Nothing can happen but the PING and the end of its timeout.
    time::pause();
    let began = time::Instant::now();
    let status = caller.await.unwrap().unwrap_err();
    let took = began.elapsed();
    time::resume();
    (status, took)
}

/// True if the time is as expected, to within a second of real time.
fn is_about(took: Duration, expected: Duration) -> bool {
    took.abs_diff(expected) < Duration::from_secs(1)
}

/// Waits for a few PINGs.
async fn is_pinged(proxy: &Proxy) {
    let mut sent = proxy.sent();
    sent.borrow_and_update();
    for _ in 0..3 {
        let mut tries = 0;
        // While the answer to the last PING is not read, no other is sent.
        loop {
            pass(INTERVAL).await;
            match time::timeout(Duration::from_millis(100), sent.changed()).await {
                Ok(open) => break open.unwrap(),
                Err(_) => tries += 1,
            }
            assert!(tries < 50, "no PING");
        }
    }
}

/// gRFC A8: the connection to a backend that does not answer is given up. Its calls fail with the
/// reason, and a new connection is made.
#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let mut a = Backend::holding("a").await;
    let proxy = Proxy::start(a.address).await;
    let server = ResourceServer::start(&Resources::service("payments", [proxy.address]));
    let channel = builder(&server)
        .keepalive(INTERVAL, TIMEOUT)
        .build()
        .unwrap();
    let (status, took) = lose_a_call(&channel, &mut a, &proxy).await;
    assert_eq!(status.code(), Code::Unavailable);
    let lost = ConnectionLost::find(&status).expect("a lost connection");
    assert_eq!(lost.address(), proxy.address);
    let message = status.message();
    assert!(
        message.contains("keepalive: no answer within 2s"),
        "{message}"
    );
    assert!(is_about(took, INTERVAL + TIMEOUT), "{took:?}");

    let caller = tokio::spawn(async move { call(&channel).await });
    a.next_call().await.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    assert_eq!(a.connections(), 2);
}

/// gRFC A8: a backend that complains of too many PINGs gets half as many. A backend that sends
/// ENHANCE_YOUR_CALM for another reason does not.
#[tokio::test]
async fn a_backend_that_complains_gets_fewer_pings() {
    for (complaint, interval) in [
        ("too_many_pings", INTERVAL * 2),
        ("too_many_requests", INTERVAL),
    ] {
        let mut a = Backend::holding("a").await;
        let proxy = Proxy::start(a.address).await;
        let server = ResourceServer::start(&Resources::service("payments", [proxy.address]));
        let channel = builder(&server).keepalive(INTERVAL, TIMEOUT).build();
        let channel = channel.unwrap();
        let answered = tokio::spawn({
            let channel = channel.clone();
            async move { call(&channel).await }
        });
        a.next_call().await.answer();
        answered.await.unwrap().unwrap();
        proxy.end_with(calm_down(complaint));
        a.has_open(0).await;
        let (_, took) = lose_a_call(&channel, &mut a, &proxy).await;
        assert!(is_about(took, interval + TIMEOUT), "{complaint}: {took:?}");
        assert_eq!(a.connections(), 2);
    }
}

/// GOAWAY with ENHANCE_YOUR_CALM, as gRPC servers send it.
fn calm_down(text: &str) -> Vec<u8> {
    let length = u8::try_from(8 + text.len()).unwrap();
    let head = [0, 0, length, 0x7, 0, 0, 0, 0, 0];
    let last_stream_id = 1u32.to_be_bytes();
    let code = u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes();
    [&head[..], &last_stream_id, &code, text.as_bytes()].concat()
}

/// gRFC A8: the least interval is ten seconds, even if an application asks for less.
#[tokio::test]
async fn no_interval_is_less_than_ten_seconds() {
    let mut a = Backend::holding("a").await;
    let proxy = Proxy::start(a.address).await;
    let server = ResourceServer::start(&Resources::service("payments", [proxy.address]));
    let channel = builder(&server).keepalive(Duration::from_millis(100), TIMEOUT);
    let (_, took) = lose_a_call(&channel.build().unwrap(), &mut a, &proxy).await;
    assert!(is_about(took, INTERVAL + TIMEOUT), "{took:?}");
}

/// gRFC A8: a call that begins after a silence without calls comes with a PING. So a dead
/// connection is noticed after the timeout alone.
#[tokio::test]
async fn the_first_call_after_idling_comes_with_a_ping() {
    let mut a = Backend::holding("a").await;
    let proxy = Proxy::start(a.address).await;
    let server = ResourceServer::start(&Resources::service("payments", [proxy.address]));
    let channel = builder(&server).keepalive(INTERVAL, TIMEOUT).build();
    let channel = channel.unwrap();
    let first = tokio::spawn({
        let channel = channel.clone();
        async move { call(&channel).await }
    });
    a.next_call().await.answer();
    first.await.unwrap().unwrap();
    pass(INTERVAL * 2).await;
    pass(INTERVAL / 2).await;
    proxy.silence();
    time::pause();
    let began = time::Instant::now();
    let status = call(&channel).await.unwrap_err();
    assert!(is_about(began.elapsed(), TIMEOUT), "{:?}", began.elapsed());
    assert!(ConnectionLost::find(&status).is_some(), "{status}");
}

/// A backend that answers PINGs keeps its connection, for as long as a call may take.
#[tokio::test]
async fn a_backend_that_answers_keeps_its_connection() {
    let mut a = Backend::holding("a").await;
    let proxy = Proxy::start(a.address).await;
    let server = ResourceServer::start(&Resources::service("payments", [proxy.address]));
    let channel = eager(&server).build().unwrap();
    let caller = tokio::spawn(async move { call(&channel).await });
    let held = a.next_call().await;
    is_pinged(&proxy).await;
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    assert_eq!(a.connections(), 1);
}

/// A connection without calls is sent no PING, unless the application wants it.
#[tokio::test]
async fn connections_without_calls_are_left_alone_unless_asked_for() {
    let a = Backend::start("a").await;
    let (quiet, asked) = tokio::join!(Proxy::start(a.address), Proxy::start(a.address));
    let quiet_server = ResourceServer::start(&Resources::service("payments", [quiet.address]));
    let asked_server = ResourceServer::start(&Resources::service("payments", [asked.address]));
    let left_alone = eager(&quiet_server).build().unwrap();
    let looked_after = eager(&asked_server).keepalive_while_idle(true).build();
    let looked_after = looked_after.unwrap();
    for channel in [&left_alone, &looked_after] {
        assert_eq!(call(channel).await.unwrap(), "a");
    }
    let before = *quiet.sent().borrow();
    is_pinged(&asked).await;
    assert_eq!(*quiet.sent().borrow(), before);
    assert_eq!(a.connections(), 2);
}
