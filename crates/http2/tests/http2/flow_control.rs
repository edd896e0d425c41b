//! Sections 5.2 and 6.9: windows in both directions, of streams and of the connection.

use std::task::{Context, Poll};

use bytes::Bytes;
use crowfly_http2::{Config, Reason, StreamError};

use crate::frames::{
    DATA, Frame, INITIAL_WINDOW_SIZE, OK, PADDED, RST_STREAM, data, frame, headers, last_data,
    settings, window_update,
};
use crate::raw::{Raw, next, now, whole};
use crate::wire::Flag;

const SMALL: Config = Config {
    stream_window: 1_000,
    connection_window: 65_535,
    is_adaptive: false,
    max_unread: 65_535,
    max_header_list_size: 16_384,
    first_stream_id: 1,
};

/// Section 6.9: an increment of nothing is an error, of the stream or of the connection.
#[test]
fn window_update_of_nothing_is_an_error() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(window_update(1, 0));
    server.assert_reset(1, Reason::PROTOCOL_ERROR);
    assert!(matches!(call.error(), StreamError::Malformed(_)));
    server.assert_works();
    server.send(window_update(0, 1 << 31));
    server.assert_ended_with(Reason::PROTOCOL_ERROR);
}

/// Section 6.9.1: no window is larger than 2^31-1. A stream's is the stream's error.
#[test]
fn windows_that_grow_too_large_are_an_error() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    server.send(window_update(1, 0x7fff_ffff - 65_535));
    assert!(call.poll().is_pending());
    server.send(window_update(1, 1));
    server.assert_reset(1, Reason::FLOW_CONTROL_ERROR);
    assert!(matches!(call.error(), StreamError::Malformed(_)));
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 65_536)]));
    server.assert_works();
    server.send(window_update(0, 0x7fff_ffff - 65_535));
    server.assert_works();
    server.send(window_update(0, 1));
    server.assert_ended_with(Reason::FLOW_CONTROL_ERROR);
}

/// Section 6.9.2: SETTINGS that make a stream's window too large are an error of the connection.
#[test]
fn settings_that_make_a_window_too_large_end_the_connection() {
    let mut server = Raw::connected();
    let _call = server.open(false);
    server.send(window_update(1, 1));
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 0x7fff_ffff)]));
    server.assert_ended_with(Reason::FLOW_CONTROL_ERROR);
}

/// Section 6.9: DATA above a window, the stream's or the connection's. Padding counts.
#[test]
fn data_above_a_window_ends_the_connection() {
    for last in [data(1, b"x"), frame(DATA, PADDED, 1, &[0])] {
        let mut server = Raw::with(SMALL);
        let _call = server.get();
        server.send(headers(1, OK));
        server.send(data(1, &[0; 1_000]));
        assert!(server.ended.is_none());
        server.send(&last);
        server.assert_ended_with(Reason::FLOW_CONTROL_ERROR);
    }
    let mut server = Raw::with(SMALL);
    let _calls: Vec<_> = (0..70).map(|_| server.get()).collect();
    for id in (1..131).step_by(2) {
        server.send(headers(id, OK));
        server.send(data(id, &[0; 1_000]));
    }
    server.send(headers(131, OK));
    server.send(data(131, &[0; 535]));
    assert!(server.ended.is_none());
    server.send(data(131, b"x"));
    server.assert_ended_with(Reason::FLOW_CONTROL_ERROR);
}

/// Data that was read is given back to the windows of the stream and of the connection. Unread data
/// is not.
#[test]
fn windows_open_as_data_is_read() {
    let mut server = Raw::with(SMALL);
    let mut call = server.get();
    server.send(headers(1, OK));
    let mut body = call.body();
    for round in 0..1_000 {
        server.send(data(1, &[7; 1_000]));
        assert_eq!(server.given_back(1), 0, "nothing was read");
        let Poll::Ready(Some(Ok(read))) = next(&mut body) else {
            panic!("data in round {round}");
        };
        assert_eq!(read.len(), 1_000);
        assert_eq!(server.given_back(1), 1_000);
    }
    server.send(last_data(1, &[7; 1_000]));
    assert_eq!(whole(&mut body).unwrap().len(), 1_000);
    assert_eq!(server.given_back(1), 0, "a stream at its end needs none");
}

/// However DATA comes to nothing, the connection gets its window back: here a whole window's worth
/// of it, many times over.
#[test]
fn the_connection_window_survives_data_that_nobody_reads() {
    let ways: [fn(&mut Raw, u32); 7] = [
        // On a stream that was cancelled, before and after.
        |server, id| {
            let mut call = server.open(false);
            call.request.cancel();
            server.send(headers(id, OK));
            server.send(data(id, &[0; 1_000]));
        },
        // Dropped with data unread.
        |server, id| {
            let call = server.get();
            server.send(headers(id, OK));
            server.send(data(id, &[0; 1_000]));
            drop(call);
        },
        // On a stream that is long forgotten.
        |server, id| {
            drop(server.get());
            server.send(data(id, &[0; 1_000]));
        },
        // Before the head.
        |server, id| {
            let _call = server.get();
            server.send(data(id, &[0; 1_000]));
        },
        // After the end.
        |server, id| {
            let _call = server.open(false);
            server.send(headers(id, OK));
            server.send(last_data(id, &[0; 500]));
            server.send(data(id, &[0; 500]));
        },
        // As padding.
        |server, id| {
            let _call = server.get();
            server.send(headers(id, OK));
            let mut padded = [0; 256];
            padded[0] = 255;
            server.send(frame(DATA, PADDED, id, &padded));
        },
        // Reset by the server with data unread.
        |server, id| {
            let mut call = server.get();
            server.send(headers(id, OK));
            let _body = call.body();
            server.send(data(id, &[0; 1_000]));
            server.send(crate::frames::reset(id, Reason::CANCEL));
        },
    ];
    for way in ways {
        let mut server = Raw::with(SMALL);
        for call in 0..500 {
            way(&mut server, 2 * call + 1);
            assert!(server.ended.is_none(), "{:?}", server.ended);
        }
        server.assert_works();
    }
}

/// Section 6.9.1: no more is sent than both windows allow, and no frame is larger than allowed.
#[test]
fn no_more_is_sent_than_the_windows_allow() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    server.frames();
    let body = Bytes::from(vec![7; 200_000]);
    call.request.send_data(body, true).unwrap();
    assert_eq!(sent(&mut server), [(1, 65_535, false)]);
    server.send(window_update(0, 10));
    assert_eq!(sent(&mut server), []);
    server.send(window_update(1, 1_000_000));
    assert_eq!(sent(&mut server), [(1, 10, false)]);
    server.send(window_update(0, 1_000_000));
    assert_eq!(sent(&mut server), [(1, 200_000 - 65_545, true)]);
}

/// Section 6.9.2: a change of the initial window changes the windows of open streams, and can make
/// them negative.
#[test]
fn a_window_that_became_negative_has_to_be_made_up_for() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    let body = Bytes::from(vec![7; 1_000]);
    call.request.send_data(body.slice(..100), false).unwrap();
    server.frames();
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    call.request.send_data(body, false).unwrap();
    server.send(window_update(1, 100));
    assert_eq!(sent(&mut server), [], "as much as was sent before");
    server.send(window_update(1, 1));
    assert_eq!(sent(&mut server), [(1, 1, false)]);
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 10)]));
    assert_eq!(sent(&mut server), [(1, 10, false)]);
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 5)]));
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 12)]));
    assert_eq!(sent(&mut server), [(1, 2, false)]);
}

/// Section 6.5.3: what a change allows comes after its acknowledgement: until then, the windows are
/// for the server as they were.
#[test]
fn a_wider_window_is_acknowledged_before_it_is_used() {
    let mut server = Raw::connected();
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    let mut call = server.open(false);
    let body = Bytes::from("waits");
    call.request.send_data(body, true).unwrap();
    server.frames();
    server.send(settings(&[
        (INITIAL_WINDOW_SIZE, 3),
        (INITIAL_WINDOW_SIZE, 4),
    ]));
    let kinds: Vec<u8> = server.frames().iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [crate::frames::SETTINGS, DATA]);
}

/// A window that shrinks while a stream waits for the connection sends nothing, not even an empty
/// frame.
#[test]
fn a_stream_that_lost_its_window_in_the_queue_sends_nothing() {
    let mut server = Raw::connected();
    let mut calls = [server.open(false), server.open(false)];
    server.frames();
    for call in &mut calls {
        let body = Bytes::from(vec![7; 65_535]);
        call.request.send_data(body, false).unwrap();
    }
    let first = sent(&mut server);
    assert_eq!(first.iter().map(|(_, len, _)| len).sum::<usize>(), 65_535);
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    server.send(window_update(0, 100_000));
    assert_eq!(sent(&mut server), []);
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 65_535)]));
    let rest = sent(&mut server);
    assert_eq!(rest.iter().map(|(_, len, _)| len).sum::<usize>(), 65_535);
}

/// A server that never opens the connection's window: what is given up does not wait for it.
#[test]
fn calls_that_are_given_up_leave_the_queue() {
    let mut server = Raw::connected();
    let open = |server: &mut Raw| {
        let mut call = server.open(false);
        let body = Bytes::from(vec![7; 65_536]);
        call.request.send_data(body, true).unwrap();
        call
    };
    server.send(settings(&[(INITIAL_WINDOW_SIZE, 100_000)]));
    let _call = open(&mut server);
    (0..100).for_each(|_| drop(open(&mut server)));
    let core = format!("{:?}", server.client);
    assert!(core.contains("queued: [1],"), "{core}");
}

/// Streams that wait for the connection take turns.
#[test]
fn streams_share_the_connection() {
    let mut server = Raw::connected();
    let mut calls = [server.open(false), server.open(false)];
    server.frames();
    server.wire.lock().room = 0;
    for call in &mut calls {
        let body = Bytes::from(vec![7; 60_000]);
        call.request.send_data(body, true).unwrap();
    }
    server.wire.change(|ends| ends.room = usize::MAX);
    let of_second = |frame: &Frame| frame.kind == DATA && frame.stream == 3;
    let frames = server.frames();
    let len: usize = frames
        .iter()
        .filter(|f| of_second(f))
        .map(|f| f.payload.len())
        .sum();
    assert!((5_535..=49_152).contains(&len), "{len}");
}

/// A call that waits for room is woken by each event that makes room. These are a window of the
/// stream, one of the connection, and the socket.
#[test]
fn whoever_waits_for_room_is_woken() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    let flag = Flag::new();
    let waker = flag.waker();
    let mut cx = Context::from_waker(&waker);
    let mut full = |request: &mut crowfly_http2::SendStream| {
        flag.take();
        request.poll_room(&mut cx).is_pending()
    };
    server.send(window_update(0, 1_000_000));
    call.request
        .send_data(Bytes::from(vec![7; 65_535]), false)
        .unwrap();
    server.run();
    assert!(full(&mut call.request));
    server.send(window_update(1, 1_000_000));
    assert!(flag.take());
    server.wire.lock().room = 0;
    call.request
        .send_data(Bytes::from(vec![7; 700_000]), false)
        .unwrap();
    server.run();
    let mut cx = Context::from_waker(&waker);
    assert!(call.request.poll_room(&mut cx).is_pending());
    server.run();
    assert!(!flag.take());
    server.wire.change(|ends| ends.room = usize::MAX);
    server.run();
    assert!(flag.take());
    assert!(call.request.poll_room(&mut cx).is_ready());
    call.request
        .send_data(Bytes::from(vec![7; 2_000_000]), false)
        .unwrap();
    server.run();
    server.send(window_update(1, 10_000_000));
    assert!(call.request.poll_room(&mut cx).is_pending());
    server.send(window_update(0, 1_000));
    assert!(!flag.take(), "what was sent is not yet gone");
    server.send(window_update(0, 10_000_000));
    assert!(flag.take());
    assert!(call.request.poll_room(&mut cx).is_ready());
}

/// A response that was reset takes no window of its stream; an increment of nothing is never sent.
#[test]
fn the_smallest_windows_work() {
    let mut server = Raw::with(Config {
        stream_window: 1,
        ..SMALL
    });
    let mut call = server.get();
    server.send(headers(1, OK));
    let mut body = call.body();
    for byte in b"slow" {
        server.send(data(1, &[*byte]));
        assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(data))) if data[..] == [*byte]));
        assert_eq!(server.given_back(1), 1);
    }
    server.send(last_data(1, b""));
    assert_eq!(whole(&mut body).unwrap(), b"");
    let mut call = server.open(false);
    server.send(data(3, b""));
    assert!(matches!(call.error(), StreamError::Malformed(_)));
    let frames = server.frames();
    let updates = frames
        .iter()
        .filter(|frame| frame.kind == crate::frames::WINDOW_UPDATE);
    assert_eq!(updates.count(), 0);
    assert!(frames.iter().any(|frame| frame.kind == RST_STREAM));
    assert!(now(|cx| call.request.poll_room(cx)).is_ready());
}

/// DATA that the client sent: stream, length, and whether it ended; frames that follow each other
/// are taken together.
fn sent(server: &mut Raw) -> Vec<(u32, usize, bool)> {
    let mut all: Vec<(u32, usize, bool)> = Vec::new();
    for frame in server.frames() {
        if frame.kind != DATA {
            continue;
        }
        assert!(frame.payload.len() <= 16_384);
        match all.last_mut() {
            Some((id, len, end)) if *id == frame.stream => {
                *len += frame.payload.len();
                *end = frame.is_end();
            }
            _ => all.push((frame.stream, frame.payload.len(), frame.is_end())),
        }
    }
    all
}
