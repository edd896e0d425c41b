//! The reading of responses by calls.
//!
//! Reading also gives window back to the server, because only the reader knows how many bytes were read.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::core::Core;
use crate::error::StreamError;
use crate::stream::End;

impl Core {
    pub(crate) fn poll_head(
        &mut self,
        id: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<Response<()>, StreamError>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(StreamError::Cancelled));
        };
        if let Some(head) = stream.receive.take_head() {
            return Poll::Ready(Ok(head));
        }
        ready!(stream.poll_receive::<()>(cx))?;
        Poll::Ready(Err(StreamError::Cancelled))
    }

    pub(crate) fn poll_data(
        &mut self,
        id: u32,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Some(Err(StreamError::Cancelled)));
        };
        if let Some(data) = stream.receive.data.pop_front() {
            self.release(id, data.len());
            self.flush_output();
            return Poll::Ready(Some(Ok(data)));
        }
        stream.poll_receive(cx).map(Result::transpose)
    }

    pub(crate) fn poll_trailers(
        &mut self,
        id: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(StreamError::Cancelled));
        };
        match stream.receive.trailers.take() {
            Some(trailers) => Poll::Ready(Ok(Some(trailers))),
            None => stream.poll_receive(cx),
        }
    }

    /// Waits for the server, or the end of the connection, to stop the request.
    pub(crate) fn poll_stopped(&mut self, id: u32, cx: &Context<'_>) -> Poll<()> {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.failed.is_none() && !matches!(stream.send.end, End::Sent) => {
                stream.send.wait(cx);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}
