//! The response body.
//!
//! The body owns the stream of its call, because the rest of a response comes only as fast as it is read. The channel
//! ties a [`Guard`] to it, because deadlines and outcomes last as long as the response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tonic::Status;

use super::connection_state::StreamPermit;
use super::error::{SendError, SendErrorKind};
use super::http2::{ReceiveStream, StreamError};
use super::pump::PumpHandle;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

pin_project! {
    /// The body of a response, and with it the open stream.
    ///
    /// The body gives window back to the server as it hands out data, so a reader that stops reading stops the server.
    /// Dropped before its end, it resets the stream with CANCEL.
    ///
    /// The upper layer ties its part of the call to the body with [`guarded`](Self::guarded). The guard is
    /// a type parameter and pinned in place, so that it costs no allocation.
    pub struct ResponseBody<G = ()> {
        stream: Option<Open>,
        #[pin]
        guard: G,
    }
}

impl ResponseBody {
    pub(super) fn new(
        receive: ReceiveStream,
        pump: Option<PumpHandle>,
        permit: StreamPermit,
    ) -> Self {
        let stream = Open {
            receive,
            data_read: false,
            pump,
            permit,
            failing: false,
        };
        Self {
            stream: Some(stream),
            guard: (),
        }
    }

    /// Ties a guard to the body.
    pub fn guarded<G: Guard>(self, guard: G) -> ResponseBody<G> {
        ResponseBody {
            stream: self.stream,
            guard,
        }
    }
}

/// The default has ended, because tonic's interceptors answer a call that they refuse with it.
impl<G: Default> Default for ResponseBody<G> {
    fn default() -> Self {
        Self {
            stream: None,
            guard: G::default(),
        }
    }
}

impl<G: Guard> Body for ResponseBody<G> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        let Some(stream) = this.stream else {
            return Poll::Ready(None);
        };
        // The guard first: a stream that always has data ready must not outlive its deadline.
        if let Poll::Ready(status) = this.guard.as_mut().poll_end(cx) {
            *this.stream = None;
            return Poll::Ready(Some(Err(this.guard.worded(status))));
        }
        let (frame, end) = match ready!(stream.poll_frame(cx)) {
            Some(Ok(frame)) if frame.is_data() => {
                if let Some(data) = frame.data_ref() {
                    this.guard.received(data);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.guard.as_mut().trailers(trailers);
                }
                let status = frame.trailers_ref().and_then(grpc_status);
                (Some(Ok(frame)), Ok(status))
            }
            Some(Err(error)) => {
                let status = error.to_status();
                let status = match error.kind() {
                    // The caller's own body failed, and its status is the caller's.
                    SendErrorKind::RequestBody => status,
                    _ => this.guard.worded(status),
                };
                (Some(Err(status)), Err(error.kind()))
            }
            None => (None, Ok(None)),
        };
        // Over: the stream, its pump and its permit go now, not when the reader drops the body.
        *this.stream = None;
        this.guard.ended(end);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none()
    }
}

impl<G> fmt::Debug for ResponseBody<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("is_open", &self.stream.is_some())
            .finish_non_exhaustive()
    }
}

/// The upper layer's part of a call. The guard is dropped with the body, and can end it.
pub trait Guard {
    /// Ends the body with a status and resets the stream, for example because a deadline has passed. The body calls
    /// this each time it is polled.
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Status> {
        let _ = cx;
        Poll::Pending
    }

    /// Gets the next DATA of the response.
    fn received(self: Pin<&mut Self>, data: &Bytes) {
        let _ = data;
    }

    /// Turns a failure of the transport into the status that the caller sees.
    fn worded(&self, status: Status) -> Status {
        status
    }

    /// Gets the trailers of the response, before its end.
    fn trailers(self: Pin<&mut Self>, trailers: &HeaderMap) {
        let _ = trailers;
    }

    /// Gets the end of the stream: the gRPC status in the trailers if there is one, or an error. The method is not
    /// called for a body that the guard ended or that was dropped before its end.
    fn ended(self: Pin<&mut Self>, end: Result<Option<i32>, SendErrorKind>) {
        let _ = end;
    }
}

/// The gRPC status in the headers or the trailers of a response.
pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<i32> {
    headers.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

impl Guard for () {}

struct Open {
    receive: ReceiveStream,
    data_read: bool,
    pump: Option<PumpHandle>,
    permit: StreamPermit,
    /// True if the stream failed because the request body did. The pump has the error.
    failing: bool,
}

impl Open {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        if self.failing {
            return self.poll_failure(cx);
        }
        if !self.data_read {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Err(error)) => return self.handle_error(&error, cx),
                None => self.data_read = true,
            }
        }
        match ready!(self.receive.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => self.handle_error(&error, cx),
        }
    }

    fn handle_error(
        &mut self,
        error: &StreamError,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        if self.pump.is_some() && PumpHandle::has_reset(error) {
            self.failing = true;
            return self.poll_failure(cx);
        }
        Poll::Ready(Some(Err(self.permit.state.stream_error(error))))
    }

    fn poll_failure(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        let status = match &mut self.pump {
            Some(pump) => ready!(pump.poll_failure(cx)),
            None => None,
        };
        let status = status.unwrap_or_else(|| Status::cancelled("the request was cancelled"));
        let address = self.permit.state.address;
        Poll::Ready(Some(Err(SendError::request_body(address, status))))
    }
}
