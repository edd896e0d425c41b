//! Tests of the memory that a connection holds and that a call allocates. A program may have
//! thousands of idle connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

#[path = "http2/frames.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod frames;
#[path = "http2/raw.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod raw;
#[path = "http2/wire.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod wire;

use std::task::Poll;

use bytes::Bytes;
use frames::{OK, data, field, frame, headers, last_headers, window_update};
use raw::{Call, Raw, whole};

/// A call with a body of this length in both directions.
fn call(server: &mut Raw, len: usize) {
    let mut call = server.open(false);
    call.request.send_data(vec![7; len].into(), true).unwrap();
    let id = server.last_opened();
    server.send(window_update(id, len as u32));
    answer(server, id, len);
    assert_eq!(whole(&mut call.body()).unwrap().len(), len);
    drop(call);
    server.run();
}

fn answer(server: &mut Raw, id: u32, len: usize) {
    server.send(window_update(0, len as u32));
    server.send(headers(id, OK));
    let body = vec![7; len];
    for piece in body.chunks(16_384) {
        server.send(data(id, piece));
    }
    server.send(last_headers(id, &field("grpc-status", b"0")));
}

/// The bytes of a connection that stay allocated after `work`. The test's own share is taken away
/// first.
fn held(work: impl FnOnce(&mut Raw)) -> i64 {
    let mut server = None;
    let held = allocation_counter::measure(|| {
        let mut raw = Raw::connected();
        work(&mut raw);
        raw.forget();
        server = Some(raw);
    });
    drop(server);
    held.bytes_current
}

#[test]
fn an_idle_connection_holds_little() {
    let unused = held(|_| {});
    let after_calls = held(|server| (0..1_000).for_each(|_| call(server, 100)));
    let after_large_calls = held(|server| (0..20).for_each(|_| call(server, 300_000)));
    println!("unused {unused}, after calls {after_calls}, after large ones {after_large_calls}");
    assert!(unused < 2_000, "{unused}");
    assert!(after_calls < 2_000, "{after_calls}");
    assert!(after_large_calls < 2_000, "{after_large_calls}");
}

/// Many calls at once need room, which is given back.
#[test]
fn a_connection_that_was_busy_holds_little() {
    let after = held(|server| {
        let calls: Vec<Call> = (0..1_000).map(|_| server.get()).collect();
        for id in 0..1_000 {
            answer(server, 2 * id + 1, 500);
        }
        drop(calls);
        server.run();
    });
    let cancelled = held(|server| {
        let calls: Vec<Call> = (0..1_000).map(|_| server.open(false)).collect();
        drop(calls);
        server.run();
    });
    println!("after 1,000 calls at once {after}, cancelled {cancelled}");
    assert!(after < 2_000, "{after}");
    assert!(cancelled < 2_000, "{cancelled}");
}

/// A few bytes at a time: what is held is of the order of what was sent.
#[test]
fn small_data_is_held_in_little() {
    let mut calls = Vec::new();
    let held = held(|server| {
        let mut call = server.get();
        server.send(headers(1, OK));
        let bytes = data(1, b"bytes");
        (0..100_000).for_each(|_| server.send(&bytes));
        let body = call.body();
        calls.push((call, body));
    });
    println!("500,000 bytes, five at a time: {held}");
    assert!(held < 1_500_000, "{held}");
    assert!(whole(&mut calls[0].1).is_err(), "the connection is gone");
}

/// DATA among much that is nothing: it does not hold the buffer that both were read into.
#[test]
fn unread_data_holds_at_most_a_few_times_its_length() {
    for len in [1_000, 10_000, 16_384] {
        let mut calls = Vec::new();
        let held = held(|server| {
            let mut call = server.get();
            server.send(headers(1, OK));
            let unknown = frame(0xff, 0, 0, &[0; 16_384]).repeat(4);
            let piece = [data(1, &vec![7; len]), unknown].concat();
            (0..50).for_each(|_| server.send(&piece));
            let body = call.body();
            calls.push((call, body));
        });
        println!("50 times {len} bytes among others: {held}");
        assert!(held < 50 * 5 * len as i64 + 400_000, "{held}");
    }
}

/// A call on a connection that has had calls allocates little. The share of the test's server is
/// taken away.
#[test]
fn a_call_allocates_little() {
    let mut server = Raw::connected();
    (0..10).for_each(|_| call(&mut server, 100));
    let body = Bytes::from(vec![7; 100]);
    let mut count = 0;
    for _ in 0..100 {
        let mut opened = None;
        let open = allocation_counter::measure(|| {
            let client = server.client.as_ref().unwrap();
            let (response, mut request) = client.open(&raw::post(), false).unwrap();
            request.send_data(body.clone(), true).unwrap();
            opened = Some(Call { response, request });
        });
        let mut call = opened.unwrap();
        let id = server.last_opened();
        answer(&mut server, id, 100);
        let read = allocation_counter::measure(|| {
            let mut body = call.body();
            while matches!(raw::next(&mut body), Poll::Ready(Some(_))) {}
        });
        count += open.count_total + read.count_total;
    }
    println!("a call allocates {} times", count / 100);
    assert!(count / 100 <= 12, "{count}");
}
