//! Sections 3, 4 and 6: frames that must not come, or not in this form. Most of them end the
//! connection.

use std::task::Poll;

use bytes::Bytes;
use crowfly_http2::{Config, ConnectionEvent, Reason};

use crate::frames::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PADDED, PING,
    PRIORITIZED, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, data, field, frame,
    headers, last_headers, settings, window_update,
};
use crate::raw::{Raw, trailers, whole};

/// Section 3.4: the server's preface is SETTINGS.
#[test]
fn the_first_frame_must_be_settings() {
    let firsts = [
        frames::ping([0; 8]),
        frames::go_away(0, Reason::NO_ERROR),
        window_update(0, 1),
        frame(0xee, 0, 0, &[]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ];
    for first in firsts {
        let mut server = Raw::silent(Config::default());
        server.send(&first);
        server.assert_ended_with(Reason::PROTOCOL_ERROR);
        assert_eq!(*server.events.lock().unwrap(), [ConnectionEvent::Received]);
    }
}

/// A server that acknowledges our SETTINGS before it sends its own is borne with, but not ready.
#[test]
fn an_acknowledgement_is_not_the_servers_settings() {
    let mut server = Raw::silent(Config::default());
    server.send(frame(SETTINGS, ACK, 0, &[]));
    assert_eq!(*server.events.lock().unwrap(), [ConnectionEvent::Received]);
    server.send(frames::ping([0; 8]));
    server.assert_ended_with(Reason::PROTOCOL_ERROR);
}

/// Section 4.2: no frame is larger than SETTINGS_MAX_FRAME_SIZE, whatever it is; its head is enough
/// to know.
#[test]
fn frames_above_the_size_that_was_allowed_end_the_connection() {
    for kind in [DATA, HEADERS, SETTINGS, PING, GOAWAY, 0xee] {
        let mut server = Raw::connected();
        let _call = server.get();
        server.send(&frame(kind, 0, 1, &[0; 16_385])[..9]);
        server.assert_ended_with(Reason::FRAME_SIZE_ERROR);
    }
}

/// Section 6: frames whose size is fixed.
#[test]
fn frames_of_a_wrong_size_end_the_connection() {
    let wrong = [
        frame(PING, 0, 0, &[0; 7]),
        frame(PING, 0, 0, &[0; 9]),
        frame(PING, ACK, 0, &[]),
        frame(RST_STREAM, 0, 1, &[0; 3]),
        frame(RST_STREAM, 0, 1, &[0; 5]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
        frame(WINDOW_UPDATE, 0, 1, &[0; 5]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(HEADERS, END_HEADERS | PRIORITIZED, 1, &[0; 4]),
    ];
    for bytes in wrong {
        let mut server = Raw::connected();
        let _call = server.get();
        server.send(&bytes);
        server.assert_ended_with(Reason::FRAME_SIZE_ERROR);
    }
}

/// Section 6: some frames belong to a stream, others to none.
#[test]
fn frames_where_they_do_not_belong_end_the_connection() {
    let misplaced = [
        data(0, b"x"),
        headers(0, OK),
        frame(PRIORITY, 0, 0, &[0; 5]),
        frames::reset(0, Reason::CANCEL),
        frame(SETTINGS, 0, 1, &[]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 1, &[0; 8]),
        frame(CONTINUATION, END_HEADERS, 0, OK),
    ];
    for bytes in misplaced {
        let mut server = Raw::connected();
        let _call = server.get();
        server.send(&bytes);
        server.assert_ended_with(Reason::PROTOCOL_ERROR);
    }
}

/// Sections 6.1 and 6.2: padding that is as long as the payload or longer.
#[test]
fn more_padding_than_payload_ends_the_connection() {
    for kind in [DATA, HEADERS] {
        for payload in [&[][..], &[1], &[3, 0x88, 0], &[255]] {
            let mut server = Raw::connected();
            let _call = server.get();
            server.send(frame(kind, PADDED | END_HEADERS, 1, payload));
            server.assert_ended_with(Reason::PROTOCOL_ERROR);
        }
    }
}

/// Sections 6.1 and 6.2: padding and priorities are not part of what is read.
#[test]
fn padding_and_priority_are_taken_off() {
    let mut server = Raw::connected();
    let mut call = server.get();
    let head = [&[2, 0, 0, 0, 0, 16][..], OK, &[0, 0]].concat();
    server.send(frame(HEADERS, END_HEADERS | PADDED | PRIORITIZED, 1, &head));
    server.send(frame(DATA, PADDED, 1, b"\x03one\0\0\0"));
    server.send(frame(DATA, PADDED, 1, b"\0two"));
    server.send(frame(DATA, PADDED | END_STREAM, 1, &[0]));
    assert_eq!(whole(&mut call.body()).unwrap(), b"onetwo");
}

/// Sections 4.1 and 5.5: what is unknown is ignored: frames, flags, and the reserved bit.
#[test]
fn unknown_frames_and_flags_are_ignored() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(frame(0xee, 0xff, 1, b"anything"));
    server.send(frame(0xee, 0xff, 0, &[]));
    server.send(frame(0xee, 0xff, 2, &[7; 16_384]));
    server.send(frame(HEADERS, END_HEADERS | 0xc2, 1 | 1 << 31, OK));
    server.send(frame(DATA, END_STREAM | 0xf4, 1 | 1 << 31, b"data"));
    assert_eq!(whole(&mut call.body()).unwrap(), b"data");
    server.assert_works();
}

/// Section 6.3: PRIORITY is deprecated. Only its size still counts, and only for its stream.
#[test]
fn priority_is_ignored_unless_its_size_is_wrong() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(frame(PRIORITY, 0, 1, &[0; 5]));
    server.send(frame(PRIORITY, 0, 7, &[0; 5]));
    server.send(frame(PRIORITY, 0, 2, &[0; 5]));
    assert!(call.poll().is_pending());
    server.send(frame(PRIORITY, 0, 1, &[0; 4]));
    server.assert_reset(1, Reason::FRAME_SIZE_ERROR);
    server.assert_works();
}

/// Section 8.4: pushes were not allowed.
#[test]
fn push_promise_ends_the_connection() {
    let mut server = Raw::connected();
    let _call = server.get();
    server.send(frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]));
    server.assert_ended_with(Reason::PROTOCOL_ERROR);
}

/// Section 6.10: nothing comes between HEADERS and its CONTINUATION, on any stream.
#[test]
fn nothing_interrupts_a_header_block() {
    let interruptions = [
        data(1, b"x"),
        headers(3, OK),
        settings(&[]),
        frames::ping([0; 8]),
        frame(CONTINUATION, END_HEADERS, 3, OK),
        frame(0xee, 0, 1, &[]),
    ];
    for interruption in interruptions {
        let mut server = Raw::connected();
        let _calls = [server.get(), server.get()];
        server.send(frame(HEADERS, 0, 1, OK));
        server.send(&interruption);
        server.assert_ended_with(Reason::PROTOCOL_ERROR);
    }
}

/// Section 6.10: CONTINUATION goes on with what has begun and has not ended.
#[test]
fn continuation_of_nothing_ends_the_connection() {
    for begin in [vec![], headers(1, OK), data(1, b"x")] {
        let mut server = Raw::connected();
        let _call = server.get();
        server.send(&begin);
        server.send(frame(CONTINUATION, END_HEADERS, 1, &[]));
        server.assert_ended_with(Reason::PROTOCOL_ERROR);
    }
}

/// Section 4.3: a block may be cut anywhere, and into empty pieces. END_STREAM is of its HEADERS.
#[test]
fn a_header_block_may_come_in_pieces() {
    let mut server = Raw::connected();
    let mut call = server.get();
    let block = [OK, &field("grpc-status", b"0")].concat();
    server.send(frame(HEADERS, END_STREAM, 1, &block[..3]));
    server.send(frame(CONTINUATION, 0, 1, &[]));
    server.send(frame(CONTINUATION, 0, 1, &block[3..9]));
    assert!(call.poll().is_pending());
    server.send(frame(CONTINUATION, END_HEADERS, 1, &block[9..]));
    let mut head = call.head();
    assert_eq!(head.headers()["grpc-status"], "0");
    assert_eq!(whole(head.body_mut()).unwrap(), b"");
}

/// Section 10.5: header blocks without an end, in large pieces or in empty ones.
#[test]
fn a_flood_of_continuation_ends_the_connection() {
    for piece in [&[][..], &[0x88], &[0; 16_384]] {
        let mut server = Raw::connected();
        let _call = server.get();
        server.send(frame(HEADERS, 0, 1, &[]));
        for _ in 0..100 {
            server.send(frame(CONTINUATION, 0, 1, piece));
        }
        server.assert_ended_with(Reason::ENHANCE_YOUR_CALM);
    }
}

/// A whole conversation means the same in pieces of any size.
#[test]
fn everything_may_come_byte_by_byte() {
    let end = field("grpc-status", b"0");
    let conversation = [
        settings(&[(frames::INITIAL_WINDOW_SIZE, 3)]),
        frames::ping(*b"12345678"),
        frame(HEADERS, 0, 1, &[]),
        frame(CONTINUATION, END_HEADERS, 1, OK),
        frame(DATA, PADDED, 1, b"\x02data\0\0"),
        window_update(1, 2),
        frame(0xee, 0, 1, b"?"),
        data(1, &[7; 3_000]),
        last_headers(1, &end),
    ]
    .concat();
    for chunk in [1, 2, 3, 7, 8, 9, 10, 11, 100, 4_096] {
        let mut server = Raw::connected();
        server.wire.lock().chunk = chunk;
        let mut call = server.open(false);
        let body = Bytes::from_static(b"request");
        call.request.send_data(body, true).unwrap();
        for piece in conversation.chunks(chunk) {
            server.send(piece);
        }
        let mut body = call.body();
        assert_eq!(whole(&mut body).unwrap().len(), 3_004);
        assert_eq!(trailers(&mut body)["grpc-status"], "0");
        let frames = server.frames();
        let acks = frames.iter().filter(|frame| frame.flags == ACK);
        assert_eq!(acks.clone().filter(|ack| ack.kind == PING).count(), 1);
        assert_eq!(acks.filter(|ack| ack.kind == SETTINGS).count(), 1);
        let mut call = server.get();
        assert!(matches!(call.poll(), Poll::Pending));
    }
}
