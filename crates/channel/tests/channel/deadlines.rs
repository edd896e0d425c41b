//! `grpc-timeout` holds from the start, and its end says what was waited for.

use std::time::Duration;

use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use h2::Reason;
use tokio::net::TcpListener;
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call_within, channel, payments};

const SHORT: Duration = Duration::from_millis(200);

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
