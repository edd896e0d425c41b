//! Endpoints with several addresses (gRFC A61).
//!
//! All of them lead to one backend, so an address that does not work must not make the endpoint
//! unusable.

use std::time::{Duration, Instant};

use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, endpoint};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, channel, spread, spread_until};

/// S7-08: an address that accepts and stays silent is given a quarter of a second. Then the next
/// one is tried as well, and the connection that is not needed is closed. An endpoint counts once,
/// with any number of addresses.
#[tokio::test]
async fn the_next_address_does_not_wait_for_a_silent_one() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let first = silent.local_addr().unwrap().to_string();
    let two = endpoint(&first).also_at(&a.address.to_string());
    let one = endpoint(&b.address.to_string());
    let server = ResourceServer::start(&Resources::service("payments", [two, one]));
    let channel = channel(&server);
    let (mut connection, _) = silent.accept().await.unwrap();
    let dialled = Instant::now();
    a.has_open(1).await;
    let waited = dialled.elapsed();
    assert!(waited > Duration::from_millis(200), "{waited:?}");
    assert!(waited < Duration::from_secs(10), "{waited:?}");

    spread_until(&channel, 2, |answers| answers.len() == 2).await;
    let answers = spread(&channel, 20).await;
    assert!(answers.values().all(|count| *count == 10), "{answers:?}");
    assert_eq!((a.connections(), b.connections()), (1, 1));
    let mut rest = Vec::new();
    let closed = connection.read_to_end(&mut rest);
    let closed = tokio::time::timeout(Duration::from_secs(20), closed).await;
    closed.expect("the attempt is abandoned").unwrap();
}

/// A failure to reach any address names the last one that was tried.
#[tokio::test]
async fn an_endpoint_without_a_working_address_says_so() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let (a, b) = (a.kill().await, b.kill().await);
    let dead = endpoint(&a.to_string()).also_at(&b.to_string());
    let server = ResourceServer::start(&Resources::service("payments", [dead]));
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(message.contains(&format!("{b}: connect: ")), "{message}");
    assert!(message.to_lowercase().contains("refused"), "{message}");
}
