//! Calls that fail, and servers that go away.
//!
//! Servers send the end of a call in different frames, and the status must survive all of them.

use std::time::Duration;

use bytes::Bytes;
use crowfly_e2e::echo::{EchoClient, answered_by, path};
use http_body_util::BodyExt;
use tokio::task::block_in_place;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Code, Status};

use super::calls::PingPong;
use super::{Kind, Server, against_each_server, client, client_of, until_answered_by_each};
use crate::load::Load;

against_each_server!(
    an_error_has_its_message_and_its_trailers,
    seventeen_kilobytes_of_details_come_with_their_status,
    a_response_of_trailers_only_has_the_status_in_its_head,
    a_caller_that_still_sends_hears_that_it_is_refused,
    a_deadline_ends_the_call_on_both_sides,
    a_call_that_is_given_up_is_cancelled,
    a_server_that_goes_away_breaks_only_the_calls_that_stay,
);

/// A failure has its message and its trailers, after a response or without one. Servers send the
/// latter as trailers only.
async fn an_error_has_its_message_and_its_trailers(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    for method in ["Fail", "Refuse"] {
        is_the_failure(&client.unary(method, "").await.unwrap_err());
    }
}

/// RFC 9113, 6.5.2: servers heed the limit on headers that a client tells them. Where only 16 kB
/// are allowed, C-core sends RESOURCE_EXHAUSTED in place of the status.
async fn seventeen_kilobytes_of_details_come_with_their_status(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let status = client.unary("Details", "17000").await.unwrap_err();
    is_the_failure(&status);
    let details = status.metadata().get_bin("details-bin").unwrap();
    assert_eq!(details.to_bytes().unwrap().len(), 17_000);
}

/// gRPC over HTTP/2, "Trailers-Only": one block of headers is all of the response. The request has no
/// DATA either.
async fn a_response_of_trailers_only_has_the_status_in_its_head(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, mut channel) = client_of([server.address], |builder| builder);
    let request = http::Request::post(path("NoSuchMethod").as_str())
        .header("grpc-timeout", "30S")
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap();
    let response = GrpcService::call(&mut channel, request).await.unwrap();
    let unimplemented = (Code::Unimplemented as i32).to_string();
    assert_eq!(response.headers()["grpc-status"], unimplemented.as_str());
    let rest = response.into_body().collect().await.unwrap();
    assert!(rest.trailers().is_none());
    assert_eq!(rest.to_bytes(), "");
}

/// RFC 9113, 8.1: a server may answer before it has read the request, and then reset the stream
/// with NO_ERROR. The answer counts.
async fn a_caller_that_still_sends_hears_that_it_is_refused(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    for method in ["Fail", "Refuse"] {
        let endless = tokio_stream::iter(std::iter::repeat(Bytes::from(vec![0; 64 * 1024])));
        let refused = client.client_streaming(method, endless).await;
        is_the_failure(&refused.unwrap_err());
    }
    let response = client.unary("Unary", "and then").await.unwrap();
    assert_eq!(response.get_ref(), "and then");
}

async fn a_deadline_ends_the_call_on_both_sides(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    // It is connected, so that the time is the server's.
    client.unary("Unary", "").await.unwrap();
    let timeout = Duration::from_millis(500);
    let status = client.unary_within(timeout, "Sleep", "60000").await;
    assert_eq!(status.unwrap_err().code(), Code::DeadlineExceeded);
    block_in_place(|| server.echo.wait_for_cancellation());
    client.unary("Unary", "").await.unwrap();
}

async fn a_call_that_is_given_up_is_cancelled(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let (_control, client) = client(&server);
    let caller = {
        let client = client.clone();
        // The server has no reason of its own to end it.
        let timeout = Duration::from_secs(600);
        tokio::spawn(async move { client.unary_within(timeout, "Sleep", "600000").await })
    };
    block_in_place(|| server.echo.wait_for_call());
    caller.abort();
    block_in_place(|| server.echo.wait_for_cancellation());
    client.unary("Unary", "").await.unwrap();
}

/// A server sends GOAWAY under load, lets calls end, and breaks those that stay. All other calls
/// succeed, there or elsewhere.
async fn a_server_that_goes_away_breaks_only_the_calls_that_stay(kind: Kind) {
    let (Some(mut a), Some(b)) = (Server::start(kind, "a"), Server::start(kind, "b")) else {
        return;
    };
    let (_control, channel) = client_of([a.address, b.address], |builder| builder);
    let client = EchoClient::new(channel);
    until_answered_by_each(&client, &["a", "b"]).await;
    // There are no other calls, so round robin has one on each.
    let mut streams = [PingPong::open(&client).await, PingPong::open(&client).await];
    streams.sort_by(|one, other| one.answered_by.cmp(&other.answered_by));
    let [mut on_a, mut on_b] = streams;
    assert_eq!([&*on_a.answered_by, &*on_b.answered_by], ["a", "b"]);

    let load = Load::of(move || {
        let client = client.clone();
        async move {
            let response = client.unary("Sleep", "5").await?;
            Ok(answered_by(&response).to_owned())
        }
    });
    block_in_place(|| a.echo.wait_for_call());
    on_a.play("still here".to_owned()).await.unwrap();
    a.stop();
    block_in_place(|| b.echo.wait_for_call());

    let answered = load.stop_without_failure().await;
    assert!(answered.keys().eq(["a", "b"]), "{answered:?}");
    on_a.play("gone".to_owned()).await.unwrap_err();
    on_b.play("still here".to_owned()).await.unwrap();
    on_b.end().await;
}

/// True if the whole status that the servers make has arrived.
fn is_the_failure(status: &Status) {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert_eq!(status.message(), "it failed: 100% of »this«");
    let metadata = status.metadata();
    assert_eq!(metadata.get("note").unwrap(), "text");
    let detail = metadata.get_bin("detail-bin").unwrap().to_bytes().unwrap();
    assert!(detail.iter().copied().eq(0..=255), "{detail:?}");
}
