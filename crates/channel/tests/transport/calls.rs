//! Calls that come to their end, and calls that are cancelled.
//!
//! A cancelled call must reset its stream, because its server would go on with it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use crowfly::transport::{Connection, Guard, SendErrorKind};
use h2::{Reason, server};
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use crate::support::{
    Call, channel_body, collect, data, echo, ok_trailers, pair, request, run, serve, unary,
};

#[tokio::test]
async fn a_unary_call_is_answered_with_data_and_trailers() {
    let connection = serve(echo).await;
    let response = connection.sender().send(unary("hello")).await.unwrap();
    let body = collect(response).await;
    assert_eq!(body.trailers(), Some(&ok_trailers()));
    assert_eq!(body.to_bytes(), "hello");
}

/// tonic's bodies do not know that a frame is their last: looking ahead saves an empty DATA frame.
#[tokio::test]
async fn a_unary_request_is_one_data_frame_that_ends_the_stream() {
    let (frames, mut seen) = mpsc::unbounded_channel();
    let connection = serve(move |mut call: Call| {
        let frames = frames.clone();
        async move {
            while let Some(data) = call.request.body_mut().data().await {
                frames
                    .send((data.unwrap(), call.request.body().is_end_stream()))
                    .unwrap();
            }
            let _ = call.respond.send_response(Response::new(()), true);
        }
    })
    .await;
    let (sender, body) = channel_body();
    sender.send(data("hello")).unwrap();
    drop(sender);
    connection.sender().send(request(body)).await.unwrap();
    assert_eq!(seen.recv().await, Some((Bytes::from("hello"), true)));
    assert!(seen.is_empty());
}

#[tokio::test]
async fn a_request_without_a_body_ends_with_its_headers() {
    let connection = serve(|mut call: Call| async move {
        assert!(call.request.body().is_end_stream());
        call.start_response().send_trailers(ok_trailers()).unwrap();
    })
    .await;
    let response = connection
        .sender()
        .send(request(Empty::new()))
        .await
        .unwrap();
    assert!(collect(response).await.to_bytes().is_empty());
}

#[tokio::test]
async fn both_directions_of_a_stream_make_progress_in_turn() {
    let connection = serve(echo).await;
    let (sender, body) = channel_body();
    let response = connection.sender().send(request(body)).await.unwrap();
    let mut body = response.into_body();
    for message in ["one", "two", "three"] {
        sender.send(data(message)).unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
    }
    drop(sender);
    let trailers = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(trailers, ok_trailers());
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn trailers_of_a_request_reach_the_server() {
    let connection = serve(echo).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "42".parse().unwrap());
    let (sender, body) = channel_body();
    sender.send(data("hello")).unwrap();
    sender.send(Ok(Frame::trailers(trailers.clone()))).unwrap();
    let response = connection.sender().send(request(body)).await.unwrap();
    assert_eq!(collect(response).await.trailers(), Some(&trailers));
}

/// More than any window, in one frame and in many: flow control in both directions.
#[tokio::test]
async fn ten_mebibytes_go_there_and_back() {
    let connection = serve(echo).await;
    let big = Bytes::from_iter((0..10 * 1024 * 1024_u32).map(|n| n.to_le_bytes()[1]));

    let response = connection.sender().send(unary(big.clone())).await.unwrap();
    assert!(collect(response).await.to_bytes() == big);

    let (sender, body) = channel_body();
    for start in (0..big.len()).step_by(64 * 1024) {
        sender
            .send(data(big.slice(start..start + 64 * 1024)))
            .unwrap();
    }
    drop(sender);
    let response = connection.sender().send(request(body)).await.unwrap();
    assert!(collect(response).await.to_bytes() == big);
}

#[tokio::test]
async fn dropping_a_call_that_waits_for_its_response_cancels_the_stream() {
    let (connection, mut cancelled) = serve_cancelled(false).await;
    let sender = connection.sender().clone();
    let call = tokio::spawn(async move { sender.send(unary("hello")).await.map(drop) });
    assert_eq!(cancelled.recv().await, Some(Seen::Started));
    call.abort();
    assert_eq!(cancelled.recv().await, Some(Seen::Reset(Reason::CANCEL)));
}

#[tokio::test]
async fn dropping_a_response_body_cancels_the_stream_and_its_request() {
    let (connection, mut cancelled) = serve_cancelled(true).await;
    let (sender, body) = channel_body();
    let response = connection.sender().send(request(body)).await.unwrap();
    assert_eq!(cancelled.recv().await, Some(Seen::Started));
    drop(response);
    assert_eq!(cancelled.recv().await, Some(Seen::Reset(Reason::CANCEL)));
    // The pump is gone, and its body with it.
    sender.closed().await;
}

#[tokio::test]
async fn a_response_that_comes_before_the_request_has_ended_is_no_error() {
    let connection = serve(|mut call: Call| async move {
        let response = Response::builder()
            .header("grpc-status", "7")
            .body(())
            .unwrap();
        call.respond.send_response(response, true).unwrap();
    })
    .await;
    let (sender, body) = channel_body();
    sender.send(data("hello")).unwrap();
    let response = connection.sender().send(request(body)).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "7");
    assert!(collect(response).await.to_bytes().is_empty());
    sender.closed().await;
}

#[tokio::test]
async fn a_request_body_that_fails_at_once_fails_the_call_with_its_status() {
    let connection = serve(echo).await;
    let (sender, body) = channel_body();
    sender.send(Err(Status::out_of_range("too large"))).unwrap();
    let error = connection.sender().send(request(body)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::RequestBody);
    assert_eq!(error.to_status().code(), Code::OutOfRange);
    assert_eq!(error.to_status().message(), "too large");
}

#[tokio::test]
async fn a_request_body_that_fails_later_fails_the_call_with_its_status() {
    let (connection, mut cancelled) = serve_cancelled(false).await;
    let (sender, body) = channel_body();
    let fail = async {
        assert_eq!(cancelled.recv().await, Some(Seen::Started));
        sender.send(Err(Status::out_of_range("too large"))).unwrap();
        assert_eq!(cancelled.recv().await, Some(Seen::Reset(Reason::CANCEL)));
    };
    let (outcome, ()) = tokio::join!(connection.sender().send(request(body)), fail);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::RequestBody);
    assert_eq!(error.to_status().code(), Code::OutOfRange);
}

#[tokio::test]
async fn a_request_body_that_fails_during_the_response_fails_the_response_with_its_status() {
    let connection = serve(echo).await;
    let (sender, body) = channel_body();
    let response = connection.sender().send(request(body)).await.unwrap();
    sender.send(Err(Status::out_of_range("too large"))).unwrap();
    let status = response.into_body().collect().await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::OutOfRange, "too large")
    );
}

#[tokio::test]
async fn a_header_that_http2_forbids_makes_the_call_invalid_and_leaves_the_connection_open() {
    let connection = serve(echo).await;
    let mut bad = unary("hello");
    bad.headers_mut()
        .insert("connection", "close".parse().unwrap());
    let error = connection.sender().send(bad).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Invalid);
    assert!(connection.sender().is_open());
    connection.sender().send(unary("hello")).await.unwrap();
}

#[tokio::test]
async fn calls_above_the_servers_stream_limit_wait_and_are_counted() {
    let (connection, server) = pair(server::Builder::new().max_concurrent_streams(1)).await;
    tokio::spawn(run(server, echo));
    let sender = connection.sender();
    let (input, body) = channel_body();
    let first = sender.send(request(body)).await.unwrap();

    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut second = pin!(sender.send(unary("second")));
    {
        let mut given_up = pin!(sender.send(unary("given up")));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(given_up.as_mut().poll(&mut cx).is_pending());
        assert_eq!(sender.waiting(), 2);
    }
    assert_eq!(sender.waiting(), 1);
    drop(input);
    collect(first).await;
    let response = second.await.unwrap();
    assert_eq!(collect(response).await.to_bytes(), "second");
    assert_eq!(sender.waiting(), 0);
}

/// A guard ends the body even if the server never does, and is dropped with it.
#[tokio::test]
async fn a_guard_can_end_a_response() {
    struct Expired {
        _dropped: oneshot::Sender<()>,
    }
    impl Guard for Expired {
        fn poll_end(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Status> {
            Poll::Ready(Status::deadline_exceeded("too late"))
        }
    }

    let (connection, mut cancelled) = serve_cancelled(true).await;
    let response = connection.sender().send(unary("hello")).await.unwrap();
    let (_dropped, dropped) = oneshot::channel();
    let mut body = Box::pin(response.into_body().guarded(Expired { _dropped }));
    let status = body.frame().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(body.is_end_stream());
    assert_eq!(cancelled.recv().await, Some(Seen::Started));
    assert_eq!(cancelled.recv().await, Some(Seen::Reset(Reason::CANCEL)));
    drop(body);
    assert!(dropped.await.is_err());
}

#[tokio::test]
async fn many_calls_share_a_connection() {
    let connection = serve(echo).await;
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let sender = connection.sender().clone();
            tokio::spawn(async move {
                let message = Full::new(Bytes::from(n.to_string()));
                let response = sender.send(request(message)).await.unwrap();
                assert_eq!(collect(response).await.to_bytes(), n.to_string());
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Started,
    Reset(Reason),
}

/// A server that says when a call starts and how its client resets it, and sends the head of a
/// response if told to.
async fn serve_cancelled(answers: bool) -> (Connection, mpsc::UnboundedReceiver<Seen>) {
    let (seen, receiver) = mpsc::unbounded_channel();
    let connection = serve(move |mut call: Call| {
        let seen = seen.clone();
        async move {
            let mut answer = answers.then(|| call.start_response());
            seen.send(Seen::Started).unwrap();
            let reason = poll_fn(|cx| match &mut answer {
                Some(answer) => answer.poll_reset(cx),
                None => call.respond.poll_reset(cx),
            });
            let _ = seen.send(Seen::Reset(reason.await.unwrap()));
        }
    })
    .await;
    (connection, receiver)
}
