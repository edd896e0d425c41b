//! Sections 6.5 and 6.7: SETTINGS and PING, which the client must answer in order.

use std::task::Poll;

use crowfly_http2::{Config, ConnectionEvent, Reason};

use crate::frames::{
    self, ACK, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_FRAME_SIZE, PING,
    SETTINGS, frame, ping, settings,
};
use crate::raw::{Raw, now};

/// Section 6.5.2: values that a setting must not have.
#[test]
fn settings_out_of_range_end_the_connection() {
    let wrong = [
        ((ENABLE_PUSH, 1), Reason::PROTOCOL_ERROR),
        ((ENABLE_PUSH, 2), Reason::PROTOCOL_ERROR),
        ((INITIAL_WINDOW_SIZE, 1 << 31), Reason::FLOW_CONTROL_ERROR),
        ((INITIAL_WINDOW_SIZE, u32::MAX), Reason::FLOW_CONTROL_ERROR),
        ((MAX_FRAME_SIZE, 16_383), Reason::PROTOCOL_ERROR),
        ((MAX_FRAME_SIZE, 1 << 24), Reason::PROTOCOL_ERROR),
    ];
    for (setting, reason) in wrong {
        let mut server = Raw::silent(Config::default());
        server.send(settings(&[(0xee, 1), setting]));
        server.assert_ended_with(reason);
    }
}

/// Section 6.5.2: the ends of the ranges are in range, and unknown settings are ignored.
#[test]
fn settings_in_range_are_acknowledged() {
    let right = [
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, 0),
        (INITIAL_WINDOW_SIZE, (1 << 31) - 1),
        (MAX_FRAME_SIZE, 16_384),
        (MAX_FRAME_SIZE, (1 << 24) - 1),
        (frames::HEADER_TABLE_SIZE, u32::MAX),
        (0xee, u32::MAX),
    ];
    for setting in right {
        let mut server = Raw::connected();
        server.send(settings(&[setting]));
        let [ack] = &server.frames()[..] else {
            panic!("one answer to {setting:?}");
        };
        assert_eq!((ack.kind, ack.flags, ack.payload.len()), (SETTINGS, ACK, 0));
        server.assert_works();
    }
}

/// The limit on streams is told as it comes; a frame without it says nothing about it.
#[test]
fn settings_are_told() {
    let mut server = Raw::silent(Config::default());
    server.send(settings(&[(MAX_CONCURRENT_STREAMS, 7)]));
    server.send(settings(&[]));
    server.send(frame(SETTINGS, ACK, 0, &[]));
    let told = |max_concurrent_streams| ConnectionEvent::Settings {
        max_concurrent_streams,
    };
    let mut events = server.events.lock().unwrap();
    events.retain(|event| *event != ConnectionEvent::Received);
    assert_eq!(*events, [told(Some(7)), told(None)]);
}

/// Section 6.7: a PING is answered with what it says.
#[test]
fn pings_are_answered() {
    let mut server = Raw::connected();
    server.send(ping(*b"abcdefgh"));
    let [answer] = &server.frames()[..] else {
        panic!("one answer");
    };
    assert_eq!((answer.kind, answer.flags), (PING, ACK));
    assert_eq!(answer.payload, b"abcdefgh");
}

/// One PING is under way at a time; only its answer counts, and it wakes who waits for it.
#[test]
fn pings_are_sent_and_their_answers_heard() {
    let mut server = Raw::connected();
    let pings = server.client.as_ref().unwrap().pings();
    let mut answer = Box::pin(pings.answer());
    pings.send();
    pings.send();
    let [sent] = &server.frames()[..] else {
        panic!("one PING");
    };
    let flag = crate::wire::Flag::new();
    let waker = flag.waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(flag.take() && answer.as_mut().poll(&mut cx).is_pending());
    server.send(frame(PING, ACK, 0, b"notours!"));
    assert!(!flag.take() && answer.as_mut().poll(&mut cx).is_pending());
    server.send(frame(PING, ACK, 0, &sent.payload));
    assert!(flag.take());
    assert_eq!(answer.as_mut().poll(&mut cx), Poll::Ready(true));
    pings.send();
    assert_eq!(server.frames().len(), 1);
}

/// The end of the connection is told to a caller that waits for the answer to a PING.
#[test]
fn pings_end_with_the_connection() {
    let mut server = Raw::connected();
    let pings = server.client.as_ref().unwrap().pings();
    pings.send();
    server.hang_up();
    assert_eq!(
        now(|cx| Box::pin(pings.answer()).as_mut().poll(cx)),
        Poll::Ready(false)
    );
}

/// Section 10.5: a server that asks for answers and does not read them.
#[test]
fn a_flood_of_pings_or_settings_ends_the_connection() {
    let floods: [fn() -> Vec<u8>; 2] = [|| ping([0; 8]), || settings(&[])];
    for flood in floods {
        let mut server = Raw::connected();
        server.wire.lock().room = 0;
        for _ in 0..10_000 {
            server.send(flood());
        }
        server.assert_ended_for(Reason::ENHANCE_YOUR_CALM);
    }
}

/// A server that reads the answers may ask as often as it likes.
#[test]
fn many_pings_are_answered_if_the_answers_are_read() {
    let mut server = Raw::connected();
    for _ in 0..10_000 {
        server.send(ping([0; 8]));
    }
    assert_eq!(server.frames().len(), 10_000);
    server.assert_works();
}
