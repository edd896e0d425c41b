//! The PINGs of keepalive.
//!
//! Only one PING is under way at a time, so an answer needs no number to belong to its PING.

use std::task::{Context, Poll, Waker};

use bytes::BytesMut;

use crate::frame::put_ping;
use crate::stream::set;

/// The payload of these PINGs, which tells their answers from those of other PINGs.
const PAYLOAD: [u8; 8] = *b"crowfly!";

/// At most one PING is under way.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    state: State,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    Answered,
    Closed,
    #[default]
    None,
    Sent,
}

impl Pings {
    /// Sends a PING, unless one is under way.
    pub(crate) fn send(&mut self, output: &mut BytesMut) {
        if matches!(self.state, State::None | State::Answered) {
            self.state = State::Sent;
            put_ping(output, 0, PAYLOAD);
        }
    }

    /// Handles the answer to a PING.
    pub(crate) fn answered(&mut self, payload: [u8; 8]) {
        if self.state == State::Sent && payload == PAYLOAD {
            self.set(State::Answered);
        }
    }

    pub(crate) fn close(&mut self) {
        self.set(State::Closed);
    }

    /// Waits for the answer; `false` if there will be none.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<bool> {
        match self.state {
            State::Answered => Poll::Ready(true),
            State::Closed => Poll::Ready(false),
            State::None | State::Sent => {
                set(&mut self.waker, cx);
                Poll::Pending
            }
        }
    }

    fn set(&mut self, state: State) {
        self.state = state;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
