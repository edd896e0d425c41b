//! A body of responses that knows when its bytes have left.
//!
//! HTTP/2 takes bytes from a body before the client has room for them, and holds them. So the end of
//! a body says nothing about its client. Each frame here holds the stream's place until HTTP/2 drops
//! it, and closes the connection of a client that does not take it in time.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;

use crate::incoming::Peer;
use crate::limits::Limit;

/// A body whose client has [`close_after`](crate::Limits::close_after) to take each frame.
pub(crate) struct Timed {
    body: Body,
    peer: Peer,
    kept: Arc<dyn Any + Send + Sync>,
}

/// A frame that HTTP/2 has not written.
struct Unwritten {
    bytes: Bytes,
    _deadline: Deadline,
    _kept: Arc<dyn Any + Send + Sync>,
}

/// Closes a connection after a while, unless it is dropped before.
struct Deadline(AbortHandle);

impl Timed {
    /// A body for a client. `kept` is dropped when the body and all of its frames are gone.
    pub(crate) fn new(body: Body, peer: Peer, kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { body, peer, kept }
    }

    fn timed(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Unwritten {
            bytes,
            _deadline: Deadline::start(self.peer.clone()),
            _kept: Arc::clone(&self.kept),
        })
    }
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| self.timed(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deadline {
    fn start(peer: Peer) -> Self {
        let task = tokio::spawn(async move {
            sleep(peer.limits().close_after).await;
            peer.reached(Limit::CloseAfter, peer.node_id());
            peer.close();
        });
        Self(task.abort_handle())
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.0.abort();
    }
}
