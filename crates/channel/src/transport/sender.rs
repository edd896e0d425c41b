//! Opening streams on a connection.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::Body;

use super::body::ResponseBody;
use super::error::SendError;
use super::http2::{Client, OpenError, ResponseFuture, SendStream, StreamError};
use super::pump::{Pump, PumpHandle};
use super::shared::Shared;

/// The sending side of a [`Connection`](super::Connection): what the balancer's picker hands out.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
}

struct Inner {
    /// While one of these exists the connection stays open: its own task must not hold one.
    client: Client,
    shared: Arc<Shared>,
}

impl Sender {
    pub(super) fn new(client: Client, shared: Arc<Shared>) -> Self {
        Self {
            inner: Arc::new(Inner { client, shared }),
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
        self.send_with(|| request).await
    }

    /// The same with a request that is made when its turn has come, so that it can say how much time
    /// is left.
    pub async fn send_with<B>(
        &self,
        request: impl FnOnce() -> Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shared = &self.inner.shared;
        let permit = shared.permit().await?;
        let (mut head, body) = request().into_parts();
        head.version = Version::HTTP_2;
        let is_bodiless = body.is_end_stream();
        let (response, stream) = self.open(&Request::from_parts(head, ()), is_bodiless)?;
        let mut pump = if is_bodiless {
            None
        } else {
            self.start(Pump::new(stream, body)).await?
        };
        match response.await {
            Ok(response) => {
                shared.handle_carried();
                Ok(response.map(|receive| ResponseBody::new(receive, pump, permit)))
            }
            Err(error) => {
                if !matches!(error, StreamError::NeverSent(_)) {
                    shared.handle_carried();
                }
                if let Some(pump) = pump.as_mut().filter(|_| PumpHandle::has_reset(&error))
                    && let Some(status) = pump.failure().await
                {
                    return Err(SendError::request_body(shared.address, status));
                }
                Err(shared.stream_error(&error))
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
        head: &Request<()>,
        end_of_stream: bool,
    ) -> Result<(ResponseFuture, SendStream), SendError> {
        let Inner { client, shared } = &*self.inner;
        client.open(head, end_of_stream).map_err(|error| {
            if matches!(error, OpenError::IdsExhausted) {
                shared.handle_ids_exhausted();
            }
            match error {
                OpenError::Invalid(_) => SendError::not_opened(shared.address, &error),
                OpenError::Closed | OpenError::IdsExhausted => shared.never_sent(),
            }
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
            Poll::Pending => {
                // The server may answer before the body has anything to send.
                pump.flush();
                Ok(Some(PumpHandle::spawn(pump, &shared.runtime)))
            }
        }
    }
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
    use tokio::runtime::Handle;

    use super::*;
    use crate::transport::connection::Closing;
    use crate::transport::error::SendErrorKind;
    use crate::transport::http2::{Backend, Config, Event, Socket, Writes};

    /// Stream ids have 31 bits: a busy connection uses them up within hours. The call that finds
    /// none goes elsewhere, and the connection makes room for a new one.
    #[tokio::test]
    async fn a_connection_out_of_stream_ids_drains() {
        let (io, _server) = tokio::io::duplex(1024);
        let config = Config {
            first_stream_id: (1 << 31) - 1,
            ..Config::default()
        };
        let socket = Socket {
            io,
            probe: |_| false,
            writes: Writes::Exact,
        };
        let connected = Client::connect(Backend::Own, socket, config, |_| ()).await;
        let (client, _driver) = connected.unwrap();
        let shared = Arc::new(Shared::new(([127, 0, 0, 1], 1).into(), Handle::current()));
        let unlimited = None;
        shared.handle_event(Event::Settings {
            max_concurrent_streams: unlimited,
        });
        let sender = Sender::new(client, shared.clone());

        let head = Request::get("http://payments/").body(()).unwrap();
        let _last = sender.open(&head, true).unwrap();
        assert!(sender.is_open());
        let error = sender.open(&head, true).unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::NeverSent);
        assert_eq!(*shared.watch().borrow(), Some(Closing::Draining(None)));
        assert!(!sender.is_open());
    }
}
