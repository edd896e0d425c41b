//! One stream: a request that is being sent, and its response.
//!
//! The two sides are apart because each ends by itself: a server may answer before it has read all.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};

use crate::error::StreamError;
use crate::frame::MAX_WINDOW;
use crate::output::Output;
use crate::window::ReceiveWindow;

/// DATA is joined with unread DATA before it up to this length.
const JOINED: usize = 1024;

/// A stream, for as long as a call holds a handle of it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send: SendSide,
    pub(crate) receive: ReceiveSide,
    /// The error that ended the stream. DATA that came before can still be read.
    pub(crate) failed: Option<StreamError>,
    /// The place of its HEADERS among all bytes that are sent on the connection.
    pub(crate) begins_at: u64,
    /// True while a call has the sending handle.
    pub(crate) has_sender: bool,
    /// True while a call has the receiving handle.
    pub(crate) has_receiver: bool,
}

/// The request of a stream.
#[derive(Debug)]
pub(crate) struct SendSide {
    /// The bytes that the server lets us send. A change of its SETTINGS can make it negative.
    pub(crate) window: i64,
    /// DATA that waits for a window.
    pub(crate) queue: VecDeque<Bytes>,
    pub(crate) end: End,
    /// True if the stream is in the connection's queue.
    pub(crate) is_queued: bool,
    waker: Option<Waker>,
}

/// The end of a request.
#[derive(Debug)]
pub(crate) enum End {
    /// More is to come from the application.
    Open,
    /// The request ends with the queue.
    AfterQueue,
    /// The request ends with these trailers after the queue.
    Trailers(HeaderMap),
    /// The last frame of the request is in the output.
    Sent,
}

impl SendSide {
    pub(crate) fn new(window: i64, is_ended: bool) -> Self {
        Self {
            window,
            queue: VecDeque::new(),
            end: if is_ended { End::Sent } else { End::Open },
            is_queued: false,
            waker: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if the stream could send, as far as its own window is concerned.
    pub(crate) fn can_go_on(&self) -> bool {
        self.window > 0 && (!self.queue.is_empty() || self.waker.is_some())
    }

    /// Puts a frame from the queue into the output, of at most `limit` bytes and as the window allows.
    pub(crate) fn put_frame(&mut self, id: u32, limit: usize, out: &mut Output) -> usize {
        let is_last_chunk = self.queue.len() == 1;
        let window = usize::try_from(self.window).unwrap_or(0);
        let Some(data) = self.queue.front_mut() else {
            return 0;
        };
        let len = data.len().min(limit).min(window);
        if len == 0 {
            return 0;
        }
        let is_whole = len == data.len();
        let ends = is_whole && is_last_chunk && matches!(self.end, End::AfterQueue);
        out.put_data(id, ends, data.split_to(len));
        if is_whole {
            self.queue.pop_front();
        }
        if ends {
            self.end = End::Sent;
        }
        self.window -= len as i64;
        len
    }

    /// Stops the request. The queue is thrown away.
    pub(crate) fn stop(&mut self) {
        self.queue = VecDeque::new();
        self.end = End::Sent;
        self.wake();
    }

    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        set(&mut self.waker, cx);
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The response of a stream.
#[derive(Debug)]
pub(crate) struct ReceiveSide {
    pub(crate) window: ReceiveWindow,
    pub(crate) head: ResponseHead,
    pub(crate) data: VecDeque<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// True if the server has ended the response.
    pub(crate) is_ended: bool,
    waker: Option<Waker>,
}

/// The head of a response, on its way from the server to the call.
#[derive(Debug)]
pub(crate) enum ResponseHead {
    Awaited,
    Here(Response<()>),
    Taken,
}

impl ReceiveSide {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window: ReceiveWindow::new(window, window),
            head: ResponseHead::Awaited,
            data: VecDeque::new(),
            trailers: None,
            is_ended: false,
            waker: None,
        }
    }

    pub(crate) fn set_head(&mut self, head: Response<()>) {
        self.head = ResponseHead::Here(head);
        self.wake();
    }

    /// Queues DATA for the reader. Short DATA is joined with short DATA before it. Otherwise a
    /// server that sends single bytes could make us hold many times the memory that its window
    /// allows.
    pub(crate) fn push(&mut self, data: Bytes) {
        match self.data.back_mut() {
            Some(last) if last.len() + data.len() <= JOINED => {
                let mut joined = BytesMut::from(std::mem::take(last));
                joined.extend_from_slice(&data);
                *last = joined.freeze();
            }
            _ => self.data.push_back(data),
        }
        self.wake();
    }

    pub(crate) fn end(&mut self, trailers: Option<HeaderMap>) {
        self.trailers = trailers;
        self.is_ended = true;
        self.wake();
    }

    pub(crate) fn take_head(&mut self) -> Option<Response<()>> {
        match std::mem::replace(&mut self.head, ResponseHead::Taken) {
            ResponseHead::Here(head) => Some(head),
            other => {
                self.head = other;
                None
            }
        }
    }

    /// Throws away unread DATA, and returns its length.
    pub(crate) fn discard(&mut self) -> usize {
        let data = std::mem::take(&mut self.data);
        data.iter().map(Bytes::len).sum()
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Stream {
    pub(crate) fn fail(&mut self, error: StreamError) {
        self.failed.get_or_insert(error);
        self.send.stop();
        self.receive.wake();
    }

    /// Changes the window of the request. False if it becomes too large (RFC 9113, section 6.9.1).
    #[must_use]
    pub(crate) fn widen(&mut self, change: i64) -> bool {
        if self.is_over() {
            return true;
        }
        self.send.window += change;
        self.send.window <= MAX_WINDOW
    }

    /// True if both sides have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.is_some() || self.receive.is_ended && matches!(self.send.end, End::Sent)
    }

    /// Waits for the server. The result is `Ok(None)` if the response has ended.
    pub(crate) fn poll_receive<T>(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<T>, StreamError>> {
        if self.receive.is_ended {
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        set(&mut self.receive.waker, cx);
        Poll::Pending
    }
}

pub(crate) fn set(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}
