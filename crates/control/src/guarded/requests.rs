//! The requests to a guarded service: short ones, at the pace of their connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tracing::warn;

use super::{MAX_REQUEST_BYTES, Refusal};
use crate::incoming::{Messages, Peer, Share};
use crate::limits::{Beyond, Limit};

/// A body of requests. The largest one so far is on the account of the client.
pub(super) struct Requests {
    body: Body,
    messages: Messages,
    peer: Peer,
    share: Share,
    /// The time until which nothing is read; `None` if it is over.
    pause: Option<Pin<Box<Sleep>>>,
    refusal: Refusal,
}

impl Requests {
    /// Requests that are read from `from` on.
    pub(super) fn new(body: Body, peer: Peer, from: Instant, refusal: Refusal) -> Self {
        Self {
            body,
            messages: Messages::default(),
            share: peer.share(),
            peer,
            pause: Some(Box::pin(sleep_until(from.into()))),
            refusal,
        }
    }

    /// Looks at the next bytes.
    fn look(&mut self, data: &[u8], now: Instant) -> Result<(), Beyond> {
        let seen = self.messages.advance(data);
        if seen.announced > MAX_REQUEST_BYTES {
            let got = seen.announced;
            let text =
                format!("expected at most {MAX_REQUEST_BYTES} bytes in a request, got {got}");
            return Err(Beyond::new(Limit::RequestBytes, text));
        }
        self.share.raise(seen.largest)?;
        let until = self.peer.pace_small(seen.ended, now);
        if until > now {
            self.pause = Some(Box::pin(sleep_until(until.into())));
            let reason = "it is read more slowly: too many requests";
            self.reached(Limit::RequestsPerSecond, reason);
        }
        Ok(())
    }

    /// Names a client that reached a limit.
    fn reached(&self, limit: Limit, reason: &str) {
        let node = self.peer.node_id();
        self.peer.reached(limit, node);
        if let Some(left_out) = self.peer.may_tell() {
            let (peer, limit) = (self.peer.address(), limit.name());
            warn!(%peer, node, limit, reason, left_out, "client at a limit");
        }
    }

    fn refuse(&self, beyond: Beyond) -> Status {
        self.reached(beyond.limit, &beyond.text);
        let status = beyond.status();
        // The first one is the reason for the end.
        self.refusal.set(beyond).ok();
        status
    }
}

impl http_body::Body for Requests {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(beyond) = this.look(data, Instant::now())
        {
            return Poll::Ready(Some(Err(this.refuse(beyond))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
