//! Servers that send GOAWAY to their clients.
//!
//! Proxies do so after a number of requests, and servers when they drain, so no call may fail for
//! it.

use crowfly::{Channel, ConnectivityState};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::sends_away::SendsAway;
use crate::support::{call, channel, reaches};

/// The number of callers, each of which makes one call after the other.
const CALLERS: usize = 16;
const CALLS_EACH: usize = 250;

/// The case `goaway` of gRPC's `http2_test`: GOAWAY comes with the first call, however soon after
/// connecting, and the second call must succeed.
#[tokio::test]
async fn the_call_after_a_goaway_goes_to_a_new_connection() {
    let a = SendsAway::after(1).await;
    let server = ResourceServer::start(&Resources::service("payments", [a.address]));
    let channel = channel(&server);
    for calls in 1..=5 {
        assert_eq!(call(&channel).await.unwrap(), "a");
        assert_eq!(a.taken(), calls);
    }
    assert!(a.connections() >= 5, "{}", a.connections());
}

/// gRFC A6: calls that wait while a connection is replaced do not fail. Calls above GOAWAY's last
/// stream id are repeated at once, and no server gets a call twice that it began.
#[tokio::test]
async fn a_storm_of_goaways_loses_no_call() {
    // Not a multiple of the callers, who may well all call at the same moment.
    let a = SendsAway::after(CALLERS * 10 - 3).await;
    let server = ResourceServer::start(&Resources::service("payments", [a.address]));
    storm(&channel(&server)).await;
    assert_eq!(a.taken(), CALLERS * CALLS_EACH);
    assert!(a.connections() >= 25, "{}", a.connections());
    assert!(a.passed_over() > 0, "no call was above the last stream id");
}

/// RFC 9113, section 6.8: a graceful shutdown says when no more calls are taken, and takes those that
/// come before the client knows.
#[tokio::test]
async fn a_storm_of_graceful_shutdowns_loses_no_call() {
    let a = Backend::start("a").await;
    a.go_away_after(5);
    let server = ResourceServer::start(&Resources::service("payments", [a.address]));
    storm(&channel(&server)).await;
    assert!(a.connections() >= 25, "{}", a.connections());
}

/// Several callers call without a pause.
async fn storm(channel: &Channel) {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let channel = channel.clone();
        callers.spawn(async move {
            for _ in 0..CALLS_EACH {
                assert_eq!(call(&channel).await.unwrap(), "a");
            }
        });
    }
    callers.join_all().await;
}

/// A server that accepts, sends SETTINGS and closes is not dialled again and again: it has failed, and
/// is given time.
#[tokio::test]
async fn a_connection_that_never_carried_a_call_has_failed() {
    let a = SendsAway::after(0).await;
    let server = ResourceServer::start(&Resources::service("payments", [a.address]));
    let channel = channel(&server);
    let mut watch = channel.watch_state();
    reaches(&mut watch, ConnectivityState::TransientFailure).await;
    assert_eq!(a.connections(), 1);
    let status = call(&channel).await.unwrap_err();
    let message = status.message();
    assert!(message.contains("the connection is closed"), "{message}");
}
