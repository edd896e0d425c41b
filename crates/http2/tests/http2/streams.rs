//! Section 5.1: frames on streams that are idle, half-closed, closed or reset. The state decides
//! whether a frame is an error, and of the stream or of the connection.

use std::pin::Pin;
use std::task::Context;

use bytes::Bytes;
use crowfly_http2::{Config, OpenError, Reason, StreamError};

use crate::frames::{
    self, END_STREAM, OK, data, field, frame, headers, last_data, last_headers, reset,
    window_update,
};
use crate::raw::{Raw, now, post, whole};
use crate::wire::Flag;

/// Section 5.1: nothing but PRIORITY comes on a stream that was never opened; even ids are the
/// server's, and it was allowed none.
#[test]
fn frames_on_idle_streams_end_the_connection() {
    for id in [2, 3, 4, 0x7fff_ffff] {
        let frames = [
            data(id, b"x"),
            headers(id, OK),
            reset(id, Reason::CANCEL),
            window_update(id, 1),
        ];
        for bytes in frames {
            let mut server = Raw::connected();
            let _call = server.get();
            server.send(&bytes);
            server.assert_ended_with(Reason::PROTOCOL_ERROR);
        }
    }
}

/// Section 8.1: a response begins with its head.
#[test]
fn data_before_the_head_resets_the_stream() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(data(1, b"x"));
    assert!(matches!(call.error(), StreamError::Malformed(_)));
    server.assert_reset(1, Reason::PROTOCOL_ERROR);
    server.assert_works();
}

/// Section 5.1, half-closed (remote): nothing more comes of a response that has ended. What came
/// before is good.
#[test]
fn frames_after_the_end_reset_a_stream_that_is_half_closed() {
    for late in [data(1, b"late"), headers(1, OK), last_data(1, b"late")] {
        let mut server = Raw::connected();
        let mut call = server.open(false);
        server.send(headers(1, OK));
        server.send(last_data(1, b"in time"));
        server.send(&late);
        server.assert_reset(1, Reason::STREAM_CLOSED);
        assert_eq!(whole(&mut call.body()).unwrap(), b"in time");
        assert!(call.request.send_data(Bytes::new(), true).is_err());
        server.assert_works();
    }
}

/// Section 5.1, closed: what comes late is ignored, whether the stream is still known or not.
#[test]
fn frames_on_closed_streams_are_ignored() {
    for is_known in [true, false] {
        let mut server = Raw::connected();
        let call = server.get();
        server.send(last_headers(1, OK));
        let call = is_known.then_some(call);
        server.send(data(1, b"late"));
        server.send(last_headers(1, &field("a", b"b")));
        server.send(window_update(1, 1));
        server.send(reset(1, Reason::INTERNAL_ERROR));
        assert_eq!(server.frames().len(), 1, "HEADERS alone");
        server.assert_works();
        assert_eq!(
            call.map(|mut call| call.head().status().as_u16()),
            is_known.then_some(200)
        );
    }
}

/// Section 5.1: after RST_STREAM the other side may not have heard of it yet.
#[test]
fn frames_on_a_stream_that_was_reset_are_ignored() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    call.request.cancel();
    server.assert_reset(1, Reason::CANCEL);
    server.send(headers(1, &[OK, &field("a", b"b")].concat()));
    server.send(data(1, b"late"));
    server.send(window_update(1, 0x7fff_ffff));
    server.send(window_update(1, 0x7fff_ffff));
    server.send(window_update(1, 0));
    server.send(last_headers(1, &field("a", b"b")));
    server.send(reset(1, Reason::NO_ERROR));
    assert_eq!(server.frames(), []);
    assert!(matches!(call.error(), StreamError::Cancelled));
    server.assert_works();
}

/// Section 6.4: what the server's reset says.
#[test]
fn a_reset_tells_why() {
    for reason in [Reason::CANCEL, Reason::NO_ERROR, Reason::from(0xbad)] {
        let mut server = Raw::connected();
        let mut call = server.open(false);
        server.send(reset(1, reason));
        assert!(matches!(call.error(), StreamError::Reset(why) if why == reason));
        assert!(call.request.send_data(Bytes::new(), true).is_err());
        assert_eq!(server.frames().len(), 1, "HEADERS alone");
        server.assert_works();
    }
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(reset(1, Reason::REFUSED_STREAM));
    assert!(matches!(
        call.error(),
        StreamError::Refused(Reason::REFUSED_STREAM)
    ));
}

/// Data that came before a reset can be read. Then the reader gets the reset.
#[test]
fn data_before_a_reset_is_read_first() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(headers(1, OK));
    server.send(data(1, b"before"));
    server.send(reset(1, Reason::CANCEL));
    let mut body = call.body();
    assert_eq!(
        crate::raw::next(&mut body).map(|data| data.unwrap().unwrap()),
        std::task::Poll::Ready(Bytes::from("before"))
    );
    assert!(matches!(
        whole(&mut body),
        Err(StreamError::Reset(Reason::CANCEL))
    ));
}

/// Section 8.1: a server that has answered may stop the request with a reset. The answer stands.
#[test]
fn a_reset_after_the_answer_stops_only_the_request() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    server.send(last_headers(1, OK));
    assert!(now(|cx| call.request.poll_stopped(cx)).is_pending());
    server.send(reset(1, Reason::NO_ERROR));
    assert!(now(|cx| call.request.poll_stopped(cx)).is_ready());
    assert_eq!(whole(&mut call.body()).unwrap(), b"");
}

/// A call that waits for a response is woken by each part of it, and by each way in which it can
/// end.
#[test]
fn whoever_waits_for_a_response_is_woken() {
    let trailers = last_headers(1, &field("grpc-status", b"0"));
    let ends = [
        last_data(1, b""),
        trailers,
        reset(1, Reason::CANCEL),
        data(3, b"before"),
    ];
    for end in ends {
        let mut server = Raw::connected();
        let mut calls = [server.get(), server.get()];
        let flag = Flag::new();
        let waker = flag.waker();
        let mut cx = Context::from_waker(&waker);
        flag.take();
        // DATA before its head is an error of the second call.
        let second = Pin::new(&mut calls[1].response);
        assert!(second.poll(&mut cx).is_pending());
        assert!(Pin::new(&mut calls[0].response).poll(&mut cx).is_pending());
        server.send(headers(1, OK));
        assert!(flag.take());
        let mut body = calls[0].body();
        assert!(body.poll_data(&mut cx).is_pending());
        server.send(data(1, b"data"));
        assert!(flag.take());
        assert!(body.poll_data(&mut cx).is_ready());
        assert!(body.poll_data(&mut cx).is_pending());
        server.send(&end);
        assert!(flag.take());
    }
}

/// Section 8.1: trailers end the stream.
#[test]
fn trailers_that_do_not_end_the_stream_reset_it() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(headers(1, OK));
    server.send(headers(1, &field("grpc-status", b"0")));
    server.assert_reset(1, Reason::PROTOCOL_ERROR);
    assert!(matches!(
        whole(&mut call.body()),
        Err(StreamError::Malformed(_))
    ));
    server.assert_works();
}

/// Streams that end in different ways do not touch each other.
#[test]
fn a_stream_error_leaves_other_streams_alone() {
    let mut server = Raw::connected();
    let mut calls = [server.get(), server.get(), server.get()];
    server.frames();
    server.send(headers(3, OK));
    server.send(data(1, b"x"));
    server.assert_reset(1, Reason::PROTOCOL_ERROR);
    server.send(reset(5, Reason::CANCEL));
    server.send(frame(frames::DATA, END_STREAM, 3, b"whole"));
    assert!(matches!(calls[0].error(), StreamError::Malformed(_)));
    assert_eq!(whole(&mut calls[1].body()).unwrap(), b"whole");
    assert!(matches!(calls[2].error(), StreamError::Reset(_)));
}

/// Section 5.1.1: ids are not used twice. When they are used up, another connection is needed; calls
/// on this one go on.
#[test]
fn ids_are_used_up_in_the_end() {
    let mut server = Raw::with(Config {
        first_stream_id: 0x7fff_fffd,
        ..Config::default()
    });
    let mut calls = [server.get(), server.get()];
    let opened = server.client.as_ref().unwrap().open(&post(), true);
    assert!(matches!(opened, Err(OpenError::IdsExhausted)));
    server.send(last_headers(0x7fff_ffff, OK));
    server.send(last_headers(0x7fff_fffd, OK));
    for call in &mut calls {
        assert_eq!(whole(&mut call.body()).unwrap(), b"");
    }
}
