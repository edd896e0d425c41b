//! Calls of each kind against h2's server: unary, streaming, and responses that are trailers alone.

use std::future::poll_fn;

use bytes::Bytes;
use crowfly_http2::{Config, StreamError};
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};

use super::{Peer, answer, echo, pattern, read, send};
use crate::raw::post;

#[tokio::test]
async fn unary() {
    let peer = Peer::new(&Builder::new(), echo);
    for round in 0..100_u32 {
        let (response, mut request) = peer.open();
        let body = Bytes::from(round.to_string());
        request.send_data(body.clone(), true).unwrap();
        let (echoed, _) = answer(response).await.unwrap();
        assert_eq!(echoed, body);
    }
}

/// Messages go back and forth on one stream.
#[tokio::test]
async fn a_stream_in_both_directions() {
    let peer = Peer::new(&Builder::new(), echo);
    let (response, mut request) = peer.open();
    request.flush();
    let mut body = response.await.unwrap().into_body();
    for round in 0..100_u32 {
        let message = Bytes::from(round.to_string());
        request.send_data(message.clone(), false).unwrap();
        let echoed = poll_fn(|cx| body.poll_data(cx)).await.unwrap().unwrap();
        assert_eq!(echoed, message);
    }
    let trailers = HeaderMap::from_iter([("t".parse().unwrap(), HeaderValue::from(7))]);
    request.send_trailers(trailers.clone()).unwrap();
    assert_eq!(read(&mut body).await.unwrap(), (vec![], trailers));
}

/// Trailers wait for the DATA before them.
#[tokio::test]
async fn trailers_after_data_that_waits_for_a_window() {
    let peer = Peer::new(Builder::new().initial_window_size(10), echo);
    let peer = peer.settled().await;
    let (response, mut request) = peer.open();
    let trailers = HeaderMap::from_iter([("t".parse().unwrap(), HeaderValue::from(7))]);
    request.send_data(pattern(1_000), false).unwrap();
    request.send_trailers(trailers.clone()).unwrap();
    let echoed = answer(response).await.unwrap();
    assert_eq!(echoed, (pattern(1_000).to_vec(), trailers));
}

async fn trailers_only(_: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let response = Response::builder().header("grpc-status", "5").body(());
    respond.send_response(response.unwrap(), true).unwrap();
}

#[tokio::test]
async fn a_response_of_trailers_alone() {
    let peer = Peer::new(&Builder::new(), trailers_only);
    for _ in 0..3 {
        let mut response = peer.get().await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "5");
        let rest = read(response.body_mut()).await.unwrap();
        assert_eq!(rest, (vec![], HeaderMap::new()));
    }
}

/// Many streams at once, each with data enough to have to wait.
#[tokio::test]
async fn many_streams_at_once() {
    let mut server = Builder::new();
    server
        .initial_window_size(1_000)
        .max_concurrent_streams(300);
    let config = Config {
        stream_window: 1_000,
        connection_window: 65_535,
        is_adaptive: false,
        ..Config::default()
    };
    let peer = Peer::with(&server, config, echo).settled().await;
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..200 {
        let (response, mut request) = peer.open();
        calls.spawn(async move {
            let body = pattern(5_000 + call);
            let (sent, answered) = tokio::join!(send(&mut request, &body, 700), answer(response));
            sent.unwrap();
            assert!(answered.unwrap().0 == body);
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

/// A server that allows two streams refuses the third, and takes it when there is room again.
#[tokio::test]
async fn streams_above_the_limit_are_refused() {
    let peer = Peer::new(Builder::new().max_concurrent_streams(2), echo);
    let mut calls: Vec<_> = (0..3).map(|_| peer.open()).collect();
    calls.iter_mut().for_each(|(_, request)| request.flush());
    let (third, _request) = calls.pop().unwrap();
    let refused = third.await.unwrap_err();
    assert!(matches!(refused, StreamError::Refused(_)), "{refused:?}");
    for (response, mut request) in calls {
        request.send_data(Bytes::new(), true).unwrap();
        answer(response).await.unwrap();
    }
    let (response, mut request) = peer.open();
    request.send_data(Bytes::from("now"), true).unwrap();
    assert_eq!(answer(response).await.unwrap().0, b"now");
}

async fn reset(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let code: u32 = request.headers()["code"].to_str().unwrap().parse().unwrap();
    respond.send_reset(code.into());
}

#[tokio::test]
async fn resets_of_every_code() {
    let peer = Peer::new(&Builder::new(), reset);
    for code in 0..16_u32 {
        let mut request = post();
        request.headers_mut().insert("code", code.into());
        let (response, _) = peer.client.open(&request, true).unwrap();
        match response.await.unwrap_err() {
            StreamError::Refused(reason) => assert_eq!((u32::from(reason), code), (7, 7)),
            StreamError::Reset(reason) => assert_eq!(u32::from(reason), code),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn pings_are_answered() {
    let peer = Peer::new(&Builder::new(), echo);
    let pings = peer.client.pings();
    for _ in 0..10 {
        pings.send();
        assert!(pings.answer().await);
    }
}
