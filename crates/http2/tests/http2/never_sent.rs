//! Tests of calls on a connection that broke. A call may be repeated without limit only if not a
//! byte of it was taken by the socket (gRFC A6).

use bytes::Bytes;
use crowfly_http2::StreamError;

use crate::frames::{DATA, HEADERS};
use crate::raw::{Call, Raw};

/// The socket takes this many bytes of three calls, and no more.
fn calls_after(room: usize, end: fn(&mut Raw)) -> (Raw, Vec<Call>) {
    let mut server = Raw::connected();
    server.wire.lock().room = 0;
    let open = |server: &mut Raw| {
        let mut call = server.open(false);
        let body = Bytes::from("request");
        call.request.send_data(body, true).unwrap();
        server.run();
        call
    };
    let calls = vec![open(&mut server), open(&mut server), open(&mut server)];
    server.wire.change(|ends| ends.room = room);
    server.run();
    end(&mut server);
    (server, calls)
}

/// Where in what is written each call begins.
fn begins() -> (Vec<usize>, usize) {
    let (mut server, _calls) = calls_after(usize::MAX, Raw::run);
    let (mut begins, mut at) = (Vec::new(), 0);
    for frame in server.frames() {
        match frame.kind {
            HEADERS => begins.push(at),
            other => assert_eq!(other, DATA),
        }
        at += 9 + frame.payload.len();
    }
    (begins, at)
}

fn assert_exact(end: fn(&mut Raw)) {
    let (begins, all) = begins();
    assert_eq!(begins.len(), 3);
    for room in 0..=all {
        let (_server, mut calls) = calls_after(room, end);
        for (call, begin) in calls.iter_mut().zip(&begins) {
            let error = call.error();
            match room > *begin {
                true => assert!(matches!(error, StreamError::Lost(_)), "{room} {error:?}"),
                false => assert!(
                    matches!(error, StreamError::NeverSent(_)),
                    "{room} {error:?}"
                ),
            }
        }
    }
}

#[test]
fn calls_are_never_sent_if_no_byte_was_written_before_a_failure() {
    assert_exact(|server| {
        server.wire.change(|ends| ends.is_broken = true);
        // If all was written, the next frame fails.
        server.send(crate::frames::ping([0; 8]));
        assert!(server.ended.is_some());
    });
}

#[test]
fn calls_are_never_sent_if_no_byte_was_written_before_the_server_closed() {
    assert_exact(Raw::hang_up);
}

#[test]
fn calls_are_never_sent_if_no_byte_was_written_before_the_connection_was_given_up() {
    assert_exact(Raw::abandon);
}

#[test]
fn calls_are_never_sent_if_no_byte_was_written_before_a_protocol_error() {
    assert_exact(Raw::babble);
}

/// A call on a connection whose server has long closed it, which nobody has told us yet.
#[test]
fn a_look_at_the_socket_keeps_calls_from_being_lost() {
    let mut server = Raw::connected();
    server.wire.lock().is_gone = true;
    let mut call = server.get();
    assert!(matches!(call.error(), StreamError::NeverSent(_)));
    assert_eq!(server.frames(), []);
    assert!(server.ended.is_some());
}

/// On a connection that is in use, nobody needs to look.
#[test]
fn a_call_that_follows_on_what_came_is_sent() {
    let mut server = Raw::connected();
    let client = server.client.clone().unwrap();
    server.wire.lock().is_gone = true;
    let (mut response, _request) = client.open(&crate::raw::post(), true).unwrap();
    server.send(crate::frames::ping([0; 8]));
    assert_eq!(server.frames().len(), 2);
    let pending = crate::raw::now(|cx| std::pin::Pin::new(&mut response).poll(cx).is_pending());
    assert!(pending);
}
