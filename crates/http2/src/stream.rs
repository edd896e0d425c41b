//! One stream: a request that is being sent, and its response.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};

use crate::error::StreamError;
use crate::frame::MAX_WINDOW;
use crate::output::Output;
use crate::window::ReceiveWindow;

/// DATA that comes before the last was read is joined with it up to this length.
const JOINED: usize = 1024;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send: SendSide,
    pub(crate) receive: ReceiveSide,
    /// Why it ended before its time. What came before that can still be read.
    pub(crate) failed: Option<StreamError>,
    /// Where in all that is sent on the connection it begins.
    pub(crate) begins_at: u64,
    /// Whether someone still has the handle to send with.
    pub(crate) has_sender: bool,
    /// Whether someone still has the handle to receive with.
    pub(crate) has_receiver: bool,
}

#[derive(Debug)]
pub(crate) struct SendSide {
    /// What the server lets us send. A change of its settings can make it negative.
    pub(crate) window: i64,
    /// DATA that waits for a window.
    pub(crate) queue: VecDeque<Bytes>,
    pub(crate) end: End,
    /// Whether it is among those that wait for the connection.
    pub(crate) is_queued: bool,
    waker: Option<Waker>,
}

/// How a request comes to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// More is to come from the application.
    Open,
    /// It ends when the queue does.
    AfterQueue,
    /// It ends with these when the queue does.
    Trailers(HeaderMap),
    /// The last of it is among what is written to the connection.
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

    /// Whether the queue could go on, were it not for the connection.
    pub(crate) fn can_go_on(&self) -> bool {
        self.window > 0 && (!self.queue.is_empty() || self.waker.is_some())
    }

    /// Sends a frame from the queue, if the window allows: at most `limit` bytes.
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

    /// Nothing more is sent.
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

#[derive(Debug)]
pub(crate) struct ReceiveSide {
    pub(crate) window: ReceiveWindow,
    pub(crate) head: Head,
    pub(crate) data: VecDeque<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether the server has sent all.
    pub(crate) is_ended: bool,
    waker: Option<Waker>,
}

/// Where the head of a response is.
#[derive(Debug)]
pub(crate) enum Head {
    Awaited,
    Here(Response<()>),
    Taken,
}

impl ReceiveSide {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window: ReceiveWindow::new(window, window),
            head: Head::Awaited,
            data: VecDeque::new(),
            trailers: None,
            is_ended: false,
            waker: None,
        }
    }

    pub(crate) fn set_head(&mut self, head: Response<()>) {
        self.head = Head::Here(head);
        self.wake();
    }

    /// Takes DATA. A few bytes after a few are put together: a server that sends a byte at a time
    /// must not make us hold many times what its window allows.
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
        match std::mem::replace(&mut self.head, Head::Taken) {
            Head::Here(head) => Some(head),
            other => {
                self.head = other;
                None
            }
        }
    }

    /// Forgets what was not read; how much that was.
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

    /// Changes what may be sent; whether it may be so much (RFC 9113, section 6.9.1).
    #[must_use]
    pub(crate) fn widen(&mut self, change: i64) -> bool {
        if self.is_over() {
            return true;
        }
        self.send.window += change;
        self.send.window <= MAX_WINDOW
    }

    /// Whether there is nothing left to say on either side.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.is_some() || self.receive.is_ended && matches!(self.send.end, End::Sent)
    }

    /// Waits for something to receive, unless nothing more will come.
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
