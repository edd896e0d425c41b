//! Opening streams on a connection.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, Response, Version};
use http_body::Body;

use super::body::ResponseBody;
use super::error::{SendError, is_usage};
use super::pump::{Pump, PumpHandle};
use super::shared::Shared;

/// The sending side of a [`Connection`](super::Connection): what the balancer's picker hands out.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
}

struct Inner {
    /// While one of these exists, `h2` keeps the connection open: it must not be held by the
    /// connection's own task.
    h2: SendRequest<Bytes>,
    shared: Arc<Shared>,
}

impl Sender {
    pub(super) fn new(h2: SendRequest<Bytes>, shared: Arc<Shared>) -> Self {
        Self {
            inner: Arc::new(Inner { h2, shared }),
        }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// The URI must have a scheme and an authority. If the server's stream limit is reached, the
    /// call waits for its turn; see [`Sender::waiting`]. A body that is at hand, as that of a unary
    /// call, is sent before this first waits; any other is sent by a task of its own, so that
    /// both directions of a stream make progress whether or not the response is being read.
    ///
    /// Dropping the future, or the body of the response before its end, resets the stream with
    /// CANCEL.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shared = &self.inner.shared;
        let permit = shared.permit().await?;
        let (mut head, body) = request.into_parts();
        head.version = Version::HTTP_2;
        let is_bodiless = body.is_end_stream();
        let (mut response, stream) = self.open(Request::from_parts(head, ()), is_bodiless)?;
        let mut pump = if is_bodiless {
            None
        } else {
            self.start(Pump::new(stream, body)).await?
        };
        match (&mut response).await {
            Ok(response) => Ok(response.map(|recv| ResponseBody::new(recv, pump, permit))),
            Err(error) => {
                if let Some(pump) = pump.as_mut().filter(|_| PumpHandle::has_reset(&error))
                    && let Some(status) = pump.failure().await
                {
                    return Err(SendError::request_body(shared.address, status));
                }
                Err(shared.stream_error(response.stream_id().as_u32(), &error))
            }
        }
    }

    /// The backend at the other end.
    pub fn address(&self) -> SocketAddr {
        self.inner.shared.address
    }

    /// Whether new streams may be opened: neither draining nor closed.
    pub fn is_open(&self) -> bool {
        self.inner.shared.is_open()
    }

    /// How many calls wait because the server's MAX_CONCURRENT_STREAMS is reached.
    pub fn waiting(&self) -> usize {
        self.inner.shared.waiting()
    }

    fn open(
        &self,
        head: Request<()>,
        end_of_stream: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), SendError> {
        let shared = &self.inner.shared;
        // A fresh clone has no pending stream, so it may send without asking `poll_ready`.
        let mut h2 = self.inner.h2.clone();
        h2.send_request(head, end_of_stream).map_err(|error| {
            if are_ids_exhausted(&mut h2) {
                shared.handle_ids_exhausted();
            }
            if shared.is_open() {
                return SendError::not_opened(shared.address, &error);
            }
            shared.never_sent()
        })
    }

    /// Sends what the body has at hand, and spawns the rest if there is any.
    async fn start<B>(&self, mut pump: Pump<B>) -> Result<Option<PumpHandle>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shared = &self.inner.shared;
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut pump).poll(cx))).await {
            Poll::Ready(Ok(())) => Ok(None),
            Poll::Ready(Err(status)) => Err(SendError::request_body(shared.address, status)),
            Poll::Pending => Ok(Some(PumpHandle::spawn(pump, &shared.runtime))),
        }
    }
}

/// Whether a request failed for want of a stream id. `h2` has no code for it, but in that state its
/// readiness check fails the same way, while a malformed request does not affect it.
fn are_ids_exhausted(h2: &mut SendRequest<Bytes>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(h2.poll_ready(&mut cx), Poll::Ready(Err(error)) if is_usage(&error))
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("address", &self.address())
            .field("is_open", &self.is_open())
            .field("waiting", &self.waiting())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use h2::client;
    use tokio::runtime::Handle;

    use super::*;
    use crate::transport::connection::Closing;
    use crate::transport::error::SendErrorKind;
    use crate::transport::tap::Seen;

    /// Stream ids have 31 bits: a busy connection uses them up within hours. The call that finds
    /// none goes elsewhere, and the connection makes room for a new one.
    #[tokio::test]
    async fn a_connection_out_of_stream_ids_drains() {
        let (io, _server) = tokio::io::duplex(1024);
        let mut builder = client::Builder::new();
        let (h2, _driver) = builder
            .initial_stream_id((1 << 31) - 1)
            .handshake(io)
            .await
            .unwrap();
        let shared = Arc::new(Shared::new(([127, 0, 0, 1], 1).into(), Handle::current()));
        let unlimited = None;
        shared.handle_seen(Seen::Settings {
            max_concurrent_streams: unlimited,
        });
        let sender = Sender::new(h2, shared.clone());

        let head = || Request::get("http://payments/").body(()).unwrap();
        let _last = sender.open(head(), true).unwrap();
        assert!(sender.is_open());
        let error = sender.open(head(), true).unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::NeverSent);
        assert_eq!(*shared.watch().borrow(), Some(Closing::Draining(None)));
        assert!(!sender.is_open());
    }
}
