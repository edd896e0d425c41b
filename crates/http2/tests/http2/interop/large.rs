//! Large bodies through small windows, and large heads, against h2's server. They need many frames
//! and waits, which short calls do not.

use bytes::Bytes;
use crowfly_http2::{Config, StreamError};
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderValue, Request, Response};

use super::{Command, Peer, answer, echo, pattern, send};
use crate::raw::post;

async fn there_and_back(peer: &Peer, len: usize, piece: usize) {
    let (response, mut request) = peer.open();
    let body = pattern(len);
    let (sent, answered) = tokio::join!(send(&mut request, &body, piece), answer(response));
    sent.unwrap();
    assert!(answered.unwrap().0 == body);
}

#[tokio::test]
async fn ten_mebibytes_there_and_back() {
    let peer = Peer::new(&Builder::new(), echo);
    there_and_back(&peer, 10 << 20, 1 << 20).await;
    there_and_back(&peer, 10 << 20, 10 << 20).await;
}

/// Both sides' windows are of a byte, or of a few.
#[tokio::test]
async fn bodies_pass_through_the_smallest_windows() {
    for (window, len) in [(1, 3_000), (2, 3_000), (100, 100_000)] {
        let config = Config {
            stream_window: window,
            connection_window: 65_535,
            is_adaptive: false,
            ..Config::default()
        };
        let mut server = Builder::new();
        server
            .initial_window_size(window)
            .data_frame_budget(usize::MAX);
        let peer = Peer::with(&server, config, echo).settled().await;
        there_and_back(&peer, len, len / 7).await;
    }
}

/// The server's window grows, shrinks and vanishes in the middle of a body.
#[tokio::test]
async fn windows_change_in_the_middle() {
    let peer = Peer::new(Builder::new().initial_window_size(20_000), echo);
    let peer = peer.settled().await;
    let (response, mut request) = peer.open();
    let body = pattern(3 << 20);
    let changes = async {
        for size in [1_000, 100_000, 10, 50_000, 0, 1, 65_535]
            .into_iter()
            .cycle()
        {
            peer.command(Command::Window(size));
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
        }
    };
    let call = async { tokio::join!(send(&mut request, &body, 30_000), answer(response)) };
    tokio::select! {
        (sent, answered) = call => {
            sent.unwrap();
            assert!(answered.unwrap().0 == body);
        }
        () = changes => {}
    }
}

/// Heads that take CONTINUATION, in both directions.
#[tokio::test]
async fn large_heads_there_and_back() {
    let config = Config {
        max_header_list_size: 200_000,
        ..Config::default()
    };
    let mut server = Builder::new();
    server.max_header_list_size(1 << 20);
    let peer = Peer::with(&server, config, echo);
    for len in [1_000, 16_384, 40_000, 150_000] {
        let mut request = post();
        let value = HeaderValue::from_bytes(&vec![b'x'; len]).unwrap();
        request.headers_mut().insert("large", value.clone());
        let (response, _) = peer.client.open(&request, true).unwrap();
        assert_eq!(response.await.unwrap().headers()["large"], value);
    }
}

async fn large_head(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let len: usize = request.headers()["len"].to_str().unwrap().parse().unwrap();
    let value = HeaderValue::from_bytes(&vec![b'x'; len]).unwrap();
    let response = Response::builder().header("large", value).body(()).unwrap();
    respond.send_response(response, true).unwrap();
}

/// A head of just the limit is taken. One above it costs its call, and only that.
#[tokio::test]
async fn heads_up_to_the_limit() {
    let config = Config {
        max_header_list_size: 16_384,
        ..Config::default()
    };
    let peer = Peer::with(&Builder::new(), config, large_head);
    // `:status: 200` and the name count, with 32 for each field.
    let limit = 16_384 - (7 + 3 + 32) - (5 + 32);
    for (len, fits) in [
        (limit, true),
        (limit + 1, false),
        (24_000, false),
        (limit, true),
    ] {
        let mut request = post();
        request.headers_mut().insert("len", len.into());
        let (response, _) = peer.client.open(&request, true).unwrap();
        match response.await {
            Ok(head) => assert!(fits && head.headers()["large"].len() == len),
            Err(error) => assert!(!fits && matches!(error, StreamError::HeadersTooLarge(_))),
        }
    }
}

/// The server's table of our headers may be of any size: they are the same.
#[tokio::test]
async fn header_tables_of_any_size() {
    for size in [0, 1, 50, 200, 4_096, 1 << 20] {
        let peer = Peer::new(Builder::new().header_table_size(size), echo);
        let peer = peer.settled().await;
        for round in 0..20 {
            let mut request = post();
            let headers = request.headers_mut();
            headers.insert("user-agent", HeaderValue::from_static("crowfly"));
            headers.insert("grpc-timeout", HeaderValue::from(round));
            headers.insert("often", HeaderValue::from(round / 4));
            let (response, _) = peer.client.open(&request, true).unwrap();
            assert_eq!(response.await.unwrap().headers(), request.headers());
        }
    }
}

/// Sends as much as it may on calls that ask for it, and answers the others.
async fn flood(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    if !request.headers().contains_key("flood") {
        return echo(request, respond).await;
    }
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    loop {
        stream.reserve_capacity(100_000);
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return;
        };
        let _ = stream.send_data(vec![7; room].into(), false);
    }
}

/// Six calls that nobody reads fill their windows; the seventh is answered.
#[tokio::test]
async fn calls_that_nobody_reads_do_not_hold_up_another() {
    let peer = Peer::new(&Builder::new(), flood);
    let mut unread = Vec::new();
    for _ in 0..6 {
        let mut request = post();
        request.headers_mut().insert("flood", 1.into());
        let (response, _) = peer.client.open(&request, true).unwrap();
        unread.push(response.await.unwrap());
    }
    there_and_back(&peer, 3 << 20, 100_000).await;
    drop(unread);
    there_and_back(&peer, 3 << 20, 100_000).await;
}
