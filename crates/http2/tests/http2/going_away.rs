//! Section 6.8: GOAWAY. The calls above the last stream were not acted upon, so they may be
//! repeated.

use std::task::Poll;

use crowfly_http2::{ConnectionEvent, GoAway, OpenError, Reason, StreamError};

use crate::frames::{self, GOAWAY, OK, go_away, headers, last_data};
use crate::raw::{Raw, post, whole};

/// Streams above the last one were not acted upon; the others go on to their end, and so does the
/// connection then.
#[test]
fn streams_up_to_the_last_go_on() {
    let mut server = Raw::connected();
    let mut calls = [server.get(), server.get(), server.get()];
    server.frames();
    server.send(go_away(3, Reason::NO_ERROR));
    assert!(matches!(
        calls[2].error(),
        StreamError::Refused(Reason::NO_ERROR)
    ));
    let opened = server.client.as_ref().unwrap().open(&post(), true);
    assert!(matches!(opened, Err(OpenError::Closed)));
    for id in [1, 3] {
        assert!(server.ended.is_none());
        server.send(headers(id, OK));
        server.send(last_data(id, b"data"));
    }
    assert!(matches!(server.ended, Some(Ok(()))));
    assert_eq!(whole(&mut calls[0].body()).unwrap(), b"data");
    assert_eq!(whole(&mut calls[1].body()).unwrap(), b"data");
    let [last] = &server.frames()[..] else {
        panic!("GOAWAY alone");
    };
    assert_eq!((last.kind, last.word(4)), (GOAWAY, 0));
}

/// A graceful end: first no last stream, then the true one.
#[test]
fn a_second_go_away_may_name_a_lower_stream() {
    let mut server = Raw::connected();
    let mut calls = [server.get(), server.get()];
    server.send(go_away(0x7fff_ffff, Reason::NO_ERROR));
    assert!(matches!(calls[1].poll(), Poll::Pending));
    server.send(go_away(1, Reason::NO_ERROR));
    assert!(matches!(calls[1].error(), StreamError::Refused(_)));
    assert!(matches!(calls[0].poll(), Poll::Pending));
    let gone = |last_stream_id| {
        ConnectionEvent::GoAway(GoAway {
            last_stream_id,
            error_code: 0,
            debug_text: "".into(),
        })
    };
    let events = server.events.lock().unwrap();
    let told: Vec<_> = events
        .iter()
        .filter(|e| matches!(e, ConnectionEvent::GoAway(_)))
        .collect();
    assert_eq!(told, [&gone(0x7fff_ffff), &gone(1)]);
}

/// Section 6.8: the last stream must not grow. What it gave up it cannot have back.
#[test]
fn a_second_go_away_revives_nothing() {
    let mut server = Raw::connected();
    let mut calls = [server.get(), server.get()];
    server.send(go_away(1, Reason::NO_ERROR));
    server.send(go_away(3, Reason::NO_ERROR));
    server.send(headers(3, OK));
    assert!(matches!(calls[1].error(), StreamError::Refused(_)));
    server.send(headers(1, OK));
    server.send(last_data(1, b"data"));
    assert_eq!(whole(&mut calls[0].body()).unwrap(), b"data");
    assert!(matches!(server.ended, Some(Ok(()))));
}

/// With an error code it is the same: streams up to the last may still be answered.
#[test]
fn an_abrupt_go_away_tells_its_code() {
    let mut server = Raw::connected();
    let mut calls = [server.get(), server.get()];
    server.send(go_away(1, Reason::ENHANCE_YOUR_CALM));
    assert!(matches!(
        calls[1].error(),
        StreamError::Refused(Reason::ENHANCE_YOUR_CALM)
    ));
    server.hang_up();
    assert!(matches!(calls[0].error(), StreamError::Lost(_)));
    assert!(matches!(server.ended, Some(Err(_))));
}

/// Without streams there is nothing to wait for.
#[test]
fn an_idle_connection_goes_at_once() {
    let mut server = Raw::connected();
    let text = [&go_away(0, Reason::NO_ERROR)[9..], b"with a reason"].concat();
    server.send(frames::frame(GOAWAY, 0, 0, &text));
    assert!(matches!(server.ended, Some(Ok(()))));
    assert!(server.wire.lock().is_shut_down);
}

/// A stream that is given up by its caller is as good as ended.
#[test]
fn a_connection_that_goes_away_ends_with_its_last_call() {
    let mut server = Raw::connected();
    let call = server.get();
    server.send(go_away(1, Reason::NO_ERROR));
    assert!(server.ended.is_none());
    drop(call);
    server.run();
    assert!(matches!(server.ended, Some(Ok(()))));
}

/// Section 6.8: debug data is there to be read by people. It is the server's: bounded, and escaped.
#[test]
fn the_debug_text_of_a_go_away_is_told() {
    let told = |debug: &[u8]| {
        let mut server = Raw::connected();
        let _call = server.get();
        let payload = [&[0, 0, 0, 1, 0, 0, 0, 0xb][..], debug].concat();
        server.send(frames::frame(GOAWAY, 0, 0, &payload));
        let events = server.events.lock().unwrap();
        match events.last() {
            Some(ConnectionEvent::GoAway(go_away)) => go_away.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let going = "the server is going away (ENHANCE_YOUR_CALM";
    assert_eq!(told(b""), format!("{going})"));
    assert_eq!(
        told(b"too_many_pings"),
        format!("{going}: \"too_many_pings\")")
    );
    assert_eq!(told(b"a\n\xffb"), format!("{going}: \"a\\n\u{fffd}b\")"));
    let long = told(&[b'x'; 10_000]);
    assert_eq!(long.len(), going.len() + ": \"\")".len() + 256);
}
