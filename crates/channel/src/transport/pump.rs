//! Moves a request body into its stream.
//!
//! The pump is a future of its own, because a request may still be sent while its response is read. A unary request is
//! done after the first poll, and then no task is spawned for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::Status;

use super::http2::{SendStream, StreamError};

/// A future that sends a body frame by frame, as fast as flow control allows.
///
/// The pump reads one frame ahead, because a tonic body does not know its last frame until it is asked for the next. So
/// a unary request becomes one DATA frame that ends the stream, without an empty frame after it.
///
/// The pump fails only if the body does. A stream that the server or the connection ended is no failure of the request
/// side, because the response reports it.
pub(super) struct Pump<B> {
    stream: SendStream,
    body: B,
    /// DATA to send next.
    held: Option<Bytes>,
    /// The frame that the body gave after `held`.
    ahead: Option<Ahead>,
}

enum Ahead {
    Data(Bytes),
    End,
    Trailers(HeaderMap),
}

impl<B> Pump<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(super) fn new(stream: SendStream, body: B) -> Self {
        Self {
            stream,
            body,
            held: None,
            ahead: None,
        }
    }

    /// Sends the head of the request, if it was not sent together with DATA.
    pub(super) fn flush(&mut self) {
        self.stream.flush();
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        loop {
            if self.ahead.is_none() {
                match self.poll_ahead(cx) {
                    Poll::Ready(ahead) => self.ahead = Some(ahead?),
                    Poll::Pending if self.held.is_none() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            match (self.held.take(), self.ahead.take()) {
                (None, Some(Ahead::Data(data))) => self.held = Some(data),
                // The last DATA: nothing follows that could pile up, so it need not wait here for
                // a window that the connection waits for as well.
                (held, Some(Ahead::End)) => {
                    self.stream.send_data(held.unwrap_or_default(), true)?;
                    return Poll::Ready(Ok(()));
                }
                (held, Some(Ahead::Trailers(trailers))) => {
                    if let Some(data) = held {
                        self.stream.send_data(data, false)?;
                    }
                    self.stream.send_trailers(trailers)?;
                    return Poll::Ready(Ok(()));
                }
                // The whole chunk goes out once there is room for a byte: it is in memory already.
                (Some(data), ahead) => {
                    self.ahead = ahead;
                    match self.stream.poll_room(cx) {
                        Poll::Ready(room) => room?,
                        Poll::Pending => {
                            self.held = Some(data);
                            return Poll::Pending;
                        }
                    }
                    self.stream.send_data(data, false)?;
                }
                (None, None) => return Poll::Pending,
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ahead, Stopped>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
                return Poll::Ready(Ok(Ahead::End));
            };
            let frame = frame.map_err(|error| Stopped::Body(Status::from_error(error.into())))?;
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Poll::Ready(Ok(Ahead::Data(data))),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(Ok(Ahead::Trailers(trailers)));
                    }
                }
            }
        }
    }
}

impl<B> Future for Pump<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = Result<(), Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.poll_send(cx) {
            Poll::Ready(Ok(()) | Err(Stopped::Stream)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(Stopped::Body(status))) => {
                this.stream.cancel();
                Poll::Ready(Err(status))
            }
            // While the body has nothing to send, the stream may end.
            Poll::Pending => this.stream.poll_stopped(cx).map(Ok),
        }
    }
}

enum Stopped {
    Body(Status),
    Stream,
}

impl From<StreamError> for Stopped {
    fn from(_: StreamError) -> Self {
        Self::Stream
    }
}

/// A pump that runs in its own task until it is done or this handle is dropped.
#[derive(Debug)]
pub(super) struct PumpHandle {
    task: JoinHandle<Result<(), Status>>,
}

impl PumpHandle {
    pub(super) fn spawn<B>(pump: Pump<B>, runtime: &Handle) -> Self
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self {
            task: runtime.spawn(pump),
        }
    }

    /// True if a stream ended because the body of its pump failed. Nothing else on this side resets
    /// streams.
    pub(super) fn has_reset(error: &StreamError) -> bool {
        matches!(error, StreamError::Cancelled)
    }

    /// The error of the body. The method is for streams that [`has_reset`](Self::has_reset) is true of, because only
    /// then has the pump ended.
    pub(super) async fn failure(&mut self) -> Option<Status> {
        std::future::poll_fn(|cx| self.poll_failure(cx)).await
    }

    pub(super) fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        let outcome = ready!(Pin::new(&mut self.task).poll(cx));
        Poll::Ready(outcome.ok().and_then(Result::err))
    }
}

impl Drop for PumpHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
