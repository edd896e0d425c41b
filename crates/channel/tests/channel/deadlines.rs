//! Deadlines of calls: `grpc-timeout` counts from the start of the call.
//!
//! The error names the thing that the call waited for, because a caller cannot see it otherwise.

use std::time::Duration;

use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use h2::Reason;
use tokio::net::TcpListener;
use tonic::Code;

use crate::backend::{Backend, Held};
use crate::support::{call_within, channel, pass, payments};

const SHORT: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn waiting_for_a_configuration_ends_at_the_deadline() {
    let server = ResourceServer::start(&payments(&[]).without("payments-eds"));
    let status = call_within(&channel(&server), SHORT).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("waiting for"), "{status}");
    assert!(status.message().contains("payments"), "{status}");
}

#[tokio::test]
async fn waiting_for_a_connection_ends_at_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let resources = Resources::service("payments", [address]);
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let _connection = silent.accept().await.unwrap();
    let status = call_within(&channel, SHORT).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(
        status.message().contains("cluster payments-cluster"),
        "{status}"
    );
}

/// The backend is told, too: the stream is reset with CANCEL.
#[tokio::test]
async fn waiting_for_a_response_ends_at_the_deadline() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call_within(&channel, SHORT).await });
    let mut held = a.next_call().await;
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let expected = format!("a response from {}", a.address);
    assert!(status.message().contains(&expected), "{status}");
    assert_eq!(held.reset().await, Reason::CANCEL);
}

#[tokio::test]
async fn waiting_for_the_rest_of_a_response_ends_at_the_deadline() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call_within(&channel, SHORT).await });
    let mut held = a.next_call().await;
    let _unfinished = held.begin();
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(
        status.message().contains("the rest of a response"),
        "{status}"
    );
}

/// gRPC's HTTP/2 protocol: `grpc-timeout` is what is left when the call is sent, not what there was when
/// it was made; it is counted down for each attempt.
#[tokio::test]
async fn a_server_is_told_what_is_left_of_the_deadline() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]).without("payments-eds"));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call_within(&channel, 30 * SECOND).await });
    // The call has to begin before time passes, and it waits for the configuration then.
    tokio::task::yield_now().await;
    pass(10 * SECOND).await;
    server.set(&payments(&[&a]));
    let first = a.next_call().await;
    let left = timeout_of(&first);
    assert!(left <= 20 * SECOND, "{left:?}");

    pass(5 * SECOND).await;
    first.refuse();
    let second = a.next_call().await;
    let left = timeout_of(&second);
    assert!(left <= 15 * SECOND && left > SECOND, "{left:?}");
    second.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// The timeout in the head of a request; so much time is in micros.
fn timeout_of(held: &Held) -> Duration {
    let value = held.request.headers()["grpc-timeout"].to_str().unwrap();
    let micros = value.strip_suffix('u').expect("microseconds");
    Duration::from_micros(micros.parse().unwrap())
}
