//! Limits of the length of a response.
//!
//! The client of `kube` collects a listing, and each line of a watch, however long they are. A server
//! that never stops would fill the memory of the agent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::transport::BoxError;

/// The largest event of a watch. The API server itself takes objects of up to 3 MiB.
const LINE: usize = 16 << 20;

/// The largest page of a listing: far more than 500 objects of a usual size.
const PAGE: usize = 512 << 20;

/// A response that is given up when it is too long.
pub(super) struct Limited {
    body: Incoming,
    /// True for a watch: the limit is that of one line, and the response may have any number of lines.
    is_per_line: bool,
    limit: usize,
    length: usize,
}

impl Limited {
    pub(super) fn new(body: Incoming, is_watch: bool) -> Self {
        Self {
            body,
            is_per_line: is_watch,
            limit: if is_watch { LINE } else { PAGE },
            length: 0,
        }
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref() {
            self.length = length_after(self.length, data, self.is_per_line);
            if self.length > self.limit {
                let (limit, what) = match self.is_per_line {
                    true => (LINE, "an event"),
                    false => (PAGE, "a page of a listing"),
                };
                let mib = limit >> 20;
                let error = format!("{what} is longer than {mib} MiB, so that it is given up");
                return Poll::Ready(Some(Err(error.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The length of what is being collected, after more data.
fn length_after(length: usize, data: &[u8], is_per_line: bool) -> usize {
    let newline = data.iter().rposition(|byte| *byte == b'\n');
    match newline {
        Some(at) if is_per_line => data.len() - at - 1,
        _ => length.saturating_add(data.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_measured_one_by_one() {
        assert_eq!(length_after(5, b"abc", true), 8);
        assert_eq!(length_after(5, b"a\nb\ncd", true), 2);
        assert_eq!(length_after(5, b"a\n", true), 0);
        assert_eq!(length_after(5, b"a\nb\ncd", false), 11);
    }
}
