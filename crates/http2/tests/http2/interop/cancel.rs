//! Calls that are given up at every stage, against h2's server. They must leave room for other
//! calls, in streams and in windows.

use std::future::poll_fn;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};

use super::{Peer, answer, echo, pattern, send};
use crate::raw::post;

/// Answers with a head and a little, and then waits for the reset. It takes no other call before.
async fn wait(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let has_head = request.uri().path() != "/headless";
    let _body = request.into_body();
    if has_head && let Ok(mut stream) = respond.send_response(Response::new(()), false) {
        let _ = stream.send_data(Bytes::from("a little"), false);
        let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
    } else {
        let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
    }
}

/// The server allows one stream: if it takes another, the one before is gone.
async fn assert_room(peer: &Peer) {
    let (response, mut request) = peer.open();
    request.flush();
    response.await.unwrap();
}

#[tokio::test]
async fn a_call_may_be_dropped_at_every_stage() {
    let peer = Peer::new(Builder::new().max_concurrent_streams(1), wait);
    let headless = Request::post("http://host/headless").body(()).unwrap();
    for round in 0..10 {
        // Before it was written.
        drop(peer.open());
        // Before its head.
        let (response, mut request) = peer.client.open(&headless, false).unwrap();
        request.flush();
        tokio::task::yield_now().await;
        match round % 2 {
            0 => drop((request, response)),
            _ => drop((response, request)),
        }
        assert_room(&peer).await;
        // With its head.
        let (response, mut request) = peer.open();
        request.flush();
        let response = response.await.unwrap();
        match round % 2 {
            0 => drop((request, response)),
            _ => drop((response, request)),
        }
        assert_room(&peer).await;
        // In the middle of its body, while the request goes on.
        let (response, mut request) = peer.open();
        request
            .send_data(Bytes::from(vec![7; 100_000]), false)
            .unwrap();
        let mut body = response.await.unwrap().into_body();
        poll_fn(|cx| body.poll_data(cx)).await.unwrap().unwrap();
        drop(body);
        poll_fn(|cx| request.poll_stopped(cx)).await;
        drop(request);
        // By word.
        let (response, mut request) = peer.open();
        request.flush();
        let mut body = response.await.unwrap().into_body();
        request.cancel();
        while poll_fn(|cx| body.poll_data(cx)).await.unwrap().is_ok() {}
    }
}

/// A call that was dropped with a full window of data unread takes nothing from the next.
#[tokio::test]
async fn windows_survive_calls_that_are_dropped() {
    let peer = Peer::new(&Builder::new(), echo);
    for _ in 0..20 {
        let (response, mut request) = peer.open();
        request
            .send_data(Bytes::from(vec![7; 1 << 20]), true)
            .unwrap();
        let mut body = response.await.unwrap().into_body();
        poll_fn(|cx| body.poll_data(cx)).await.unwrap().unwrap();
    }
    let (response, mut request) = peer.open();
    request
        .send_data(Bytes::from(vec![7; 6 << 20]), true)
        .unwrap();
    assert_eq!(answer(response).await.unwrap().0.len(), 6 << 20);
}

/// Calls from many threads, a third of them given up half way: no lock is held for good, no wake-up
/// is lost between threads, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_from_many_threads() {
    let peer = Peer::new(Builder::new().initial_window_size(2_000), echo);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let client = peer.client.clone();
        tasks.spawn(async move {
            for round in 0..40 {
                let (response, mut request) = client.open(&post(), false).unwrap();
                let body = pattern(37 * task + 311 * round);
                let half = body.slice(..body.len() / 2);
                if (task + round) % 3 == 0 {
                    request.send_data(half, false).unwrap();
                    drop(response.await.unwrap());
                    continue;
                }
                let (sent, answered) =
                    tokio::join!(send(&mut request, &body, 1_500), answer(response));
                sent.unwrap();
                assert!(answered.unwrap().0 == body);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(format!("{:?}", peer.client).contains("streams: {}"));
    drop(peer.client);
    peer.connection.await.unwrap().unwrap();
}
