//! A script of bytes becomes a client that does anything and a server that says anything.
//!
//! The client never panics and never spins. Once the server has hung up, no call waits.

use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use crowfly_http2::{Config, HeadFuture, ReceiveStream, SendStream};

use crate::frames;
use crate::raw::{Raw, now, post};

/// Windows so small that a script can fill them.
const CONFIG: Config = Config {
    stream_window: 100,
    connection_window: 65_535,
    is_adaptive: false,
    max_unread: 65_535,
    max_header_list_size: 200,
    first_stream_id: 1,
};

/// Plays a script.
pub(crate) fn play(script: &[u8]) {
    let mut script = Script { rest: script };
    let mut server = Raw::silent(CONFIG);
    let mut calls: Vec<Call> = Vec::new();
    while let Some(step) = script.byte() {
        let call = (step >> 4) as usize;
        match step & 0xf {
            0 => open(&server, &mut calls),
            1 => act(&mut calls, call, |call| call.read()),
            2 => act(&mut calls, call, |call| call.send(&[7; 10], false)),
            3 => act(&mut calls, call, |call| call.send(&[7; 1_000], true)),
            4 => act(&mut calls, call, |call| call.request = None),
            5 => act(&mut calls, call, |call| call.response = Response::Dropped),
            6 => act(&mut calls, call, Call::cancel),
            7 => server
                .client
                .iter()
                .for_each(|client| client.pings().send()),
            8 => server.wire.lock().chunk = call + 1,
            9 => server.wire.change(|ends| ends.room = call * 10),
            10 => server.wire.change(|ends| ends.room = usize::MAX),
            11 => {
                let (kind, flags) = (script.byte().unwrap_or(0), script.byte().unwrap_or(0));
                let id = script.byte().unwrap_or(0).into();
                server.send(frames::frame(kind, flags, id, script.take(call)));
            }
            12 => server.send(frames::settings(&[])),
            13 => server.client = None,
            _ => server.send(script.take(call)),
        }
        server.run();
    }
    finish(server, calls);
}

fn open(server: &Raw, calls: &mut Vec<Call>) {
    if let Some(client) = &server.client
        && let Ok((response, request)) = client.open(&post(), calls.len() % 4 == 3)
    {
        calls.push(Call {
            request: Some(request),
            response: Response::Awaited(response),
        });
    }
}

fn act(calls: &mut [Call], at: usize, act: impl FnOnce(&mut Call)) {
    if let Some(call) = calls.get_mut(at) {
        act(call);
    }
}

/// The server hangs up: all that is left comes to its end.
fn finish(mut server: Raw, calls: Vec<Call>) {
    server.wire.change(|ends| ends.room = usize::MAX);
    server.hang_up();
    assert!(server.ended.is_some(), "the connection outlives its socket");
    for mut call in calls {
        call.read();
        assert!(
            !matches!(call.response, Response::Awaited(_) | Response::Here(_)),
            "a call waits for a server that is gone"
        );
        if let Some(request) = &mut call.request {
            assert!(now(|cx| request.poll_stopped(cx)).is_ready());
            assert!(now(|cx| request.poll_room(cx)).is_ready());
        }
    }
}

struct Call {
    request: Option<SendStream>,
    response: Response,
}

enum Response {
    Awaited(HeadFuture),
    Dropped,
    Here(ReceiveStream),
    Over,
}

impl Call {
    /// Reads all that is there.
    fn read(&mut self) {
        if let Response::Awaited(response) = &mut self.response {
            match now(|cx| Pin::new(response).poll(cx)) {
                Poll::Ready(Ok(head)) => self.response = Response::Here(head.into_body()),
                Poll::Ready(Err(_)) => self.response = Response::Over,
                Poll::Pending => return,
            }
        }
        while let Response::Here(body) = &mut self.response {
            match now(|cx| body.poll_data(cx)) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) => self.response = Response::Over,
                Poll::Ready(None) => {
                    assert!(now(|cx| body.poll_trailers(cx)).is_ready());
                    self.response = Response::Over;
                }
                Poll::Pending => return,
            }
        }
    }

    fn send(&mut self, data: &'static [u8], is_last: bool) {
        if let Some(request) = &mut self.request {
            let _ = now(|cx| request.poll_room(cx));
            let _ = request.send_data(Bytes::from_static(data), is_last);
        }
    }

    fn cancel(&mut self) {
        if let Some(request) = &mut self.request {
            request.cancel();
        }
    }
}

struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.rest.split_off_first().copied()
    }

    /// So many bytes, or what is left.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}
