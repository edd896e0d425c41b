//! Tests of the end of connections: by the server, by the client, and in the middle of a frame or a
//! call. No call may wait for ever.

use std::task::{Context, Poll};

use bytes::Bytes;
use crowfly_http2::{OpenError, Reason, StreamError};

use crate::frames::{GOAWAY, OK, data, headers, last_data, ping, settings};
use crate::raw::{Raw, now, post, trailers, whole};
use crate::wire::Flag;

/// The connection is there for its clients; with the last of them and the last stream it ends.
#[test]
fn it_ends_with_the_last_client_and_the_last_stream() {
    let mut server = Raw::connected();
    let other = server.client.clone();
    let mut call = server.get();
    server.client = None;
    server.run();
    drop(other);
    server.run();
    assert!(server.ended.is_none());
    server.send(headers(1, OK));
    server.send(last_data(1, b"data"));
    assert!(matches!(server.ended, Some(Ok(()))));
    assert_eq!(whole(&mut call.body()).unwrap(), b"data");
    let last = server.frames().pop().unwrap();
    assert_eq!((last.kind, last.word(4)), (GOAWAY, 0));
    assert!(server.wire.lock().is_shut_down);
}

/// A server that does not read cannot hold on to a connection that nobody wants.
#[test]
fn it_ends_with_the_last_client_although_the_server_does_not_read() {
    let mut server = Raw::connected();
    server.wire.lock().room = 0;
    drop(server.get());
    server.run();
    assert!(server.ended.is_none());
    server.client = None;
    server.run();
    assert!(matches!(server.ended, Some(Ok(()))));
}

/// Calls that are made and given up again leave their heads behind, and that they were cancelled. A server
/// that does not read is given up before these fill the memory; many open calls alone are no reason.
#[test]
fn a_server_that_does_not_read_is_given_up() {
    let mut server = Raw::connected();
    server.wire.lock().room = 0;
    let calls: Vec<_> = (0..50_000).map(|_| server.get()).collect();
    server.run();
    assert!(server.ended.is_none());
    drop(calls);
    server.run();
    assert!(
        matches!(&server.ended, Some(Err(error)) if error.to_string().contains("does not read"))
    );
}

/// The connection ends as well if its last stream is ended by the caller. The caller may drop it in
/// any order, or send the end of a request that has its answer.
#[test]
fn it_ends_with_the_last_handle() {
    let ways: [fn(crate::raw::Call); 4] = [
        drop,
        |call| drop((call.request, call.response)),
        |call| drop((call.response, call.request)),
        |mut call| call.request.cancel(),
    ];
    for way in ways {
        let mut server = Raw::connected();
        let call = server.open(false);
        server.client = None;
        server.run();
        way(call);
        server.run();
        assert!(matches!(server.ended, Some(Ok(()))));
    }
    let mut server = Raw::connected();
    let mut call = server.open(false);
    server.client = None;
    server.send(crate::frames::last_headers(1, OK));
    assert!(server.ended.is_none());
    call.request.send_data(Bytes::from("last"), true).unwrap();
    server.run();
    assert!(matches!(server.ended, Some(Ok(()))));
}

/// A server that closes while streams are open leaves them lost, wherever it stopped.
#[test]
fn streams_are_lost_when_the_server_closes() {
    let frames = [settings(&[]), headers(1, OK), data(1, b"data")].concat();
    for cut in 0..frames.len() {
        let mut server = Raw::connected();
        let mut call = server.get();
        server.send(&frames[..cut]);
        server.hang_up();
        assert!(matches!(
            server.ended,
            Some(Err(crowfly_http2::Error::Io(_)))
        ));
        let error = match call.poll() {
            Poll::Ready(Ok(head)) => whole(&mut head.into_body()).unwrap_err(),
            Poll::Ready(Err(error)) => error,
            Poll::Pending => panic!("the call hangs"),
        };
        assert!(matches!(error, StreamError::Lost(_)), "{error:?}");
        let opened = server.client.as_ref().unwrap().open(&post(), true);
        assert!(matches!(opened, Err(OpenError::Closed)));
    }
}

/// A server may close when nobody waits for it, even in the middle of a frame.
#[test]
fn it_ends_in_good_order_if_nobody_waits() {
    for part in [&b""[..], &settings(&[])[..5]] {
        let mut server = Raw::connected();
        let mut call = server.get();
        server.send(headers(1, OK));
        server.send(last_data(1, b"data"));
        server.send(part);
        server.hang_up();
        assert!(matches!(server.ended, Some(Ok(()))));
        assert_eq!(whole(&mut call.body()).unwrap(), b"data");
    }
}

/// The end of a connection wakes all who wait on it: for heads, data, room and stops.
#[test]
fn the_end_wakes_all_who_wait() {
    let ends: [fn(&mut Raw); 3] = [Raw::hang_up, Raw::abandon, Raw::babble];
    for end in ends {
        let mut server = Raw::connected();
        let mut calls = [server.open(false), server.open(false)];
        server.send(headers(1, OK));
        let mut body = calls[0].body();
        let flags = [(); 4].map(|()| Flag::new());
        let wakers = flags.each_ref().map(Flag::waker);
        let [mut a, mut b, mut c, mut d] = wakers.each_ref().map(Context::from_waker);
        let full = Bytes::from(vec![7; 65_535]);
        calls[0].request.send_data(full, false).unwrap();
        assert!(flags.iter().all(Flag::take));
        assert!(body.poll_data(&mut a).is_pending());
        assert!(calls[0].request.poll_room(&mut b).is_pending());
        assert!(calls[1].request.poll_stopped(&mut c).is_pending());
        let response = std::pin::Pin::new(&mut calls[1].response);
        assert!(response.poll(&mut d).is_pending());
        end(&mut server);
        assert!(flags.iter().all(Flag::take));
        assert!(calls[1].request.poll_stopped(&mut c).is_ready());
        assert!(calls[0].request.poll_room(&mut b).is_ready());
        assert!(body.poll_data(&mut a).is_ready());
        assert!(matches!(calls[1].error(), StreamError::Lost(_)));
    }
}

/// A protocol error that comes with a response whole does not take the response back.
#[test]
fn what_came_before_the_error_is_good() {
    let mut server = Raw::connected();
    let mut call = server.get();
    let end = crate::frames::last_headers(1, &crate::frames::field("grpc-status", b"0"));
    server.send([headers(1, OK), data(1, b"data"), end, data(0, b"")].concat());
    server.assert_ended_with(Reason::PROTOCOL_ERROR);
    let mut body = call.body();
    assert_eq!(whole(&mut body).unwrap(), b"data");
    assert_eq!(trailers(&mut body)["grpc-status"], "0");
    assert!(matches!(
        now(|cx| body.poll_trailers(cx)),
        Poll::Ready(Ok(None))
    ));
}

/// A request whose sender is gone before its end can never be whole: the server should know.
#[test]
fn a_request_that_is_given_up_is_reset() {
    let mut server = Raw::connected();
    let call = server.open(false);
    let crate::raw::Call { response, request } = call;
    server.frames();
    drop(request);
    server.assert_reset(1, Reason::CANCEL);
    drop(response);
}

/// A server answers, asks for something and is gone: its answer counts, although ours fails.
#[test]
fn what_was_said_before_a_write_failed_is_heard() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.wire.change(|ends| {
        (ends.room, ends.is_broken) = (0, true);
        // Each frame by itself, the PING first.
        ends.chunk = 17;
        ends.input.extend(ping([0; 8]));
        ends.input.extend(headers(1, OK));
        ends.input.extend(last_data(1, b"answer"));
    });
    server.run();
    assert_eq!(whole(&mut call.body()).unwrap(), b"answer");
    assert!(matches!(server.ended, Some(Err(_))));
}
