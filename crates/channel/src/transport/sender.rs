//! Opening streams on a connection.
//!
//! A call does this from its own task, so that a unary call needs neither a queue nor a task of its own.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::uri::{Scheme, Uri};
use http::{Request, Response, Version};
use http_body::Body;

use crate::authority::CallAuthority;

use super::body::ResponseBody;
use super::connection_state::{ConnectionState, Purpose};
use super::error::SendError;
use super::http2::{Client, HeadFuture, OpenError, SendStream, StreamError};
use super::pump::{Pump, PumpHandle};

/// The sending side of a [`Connection`](super::Connection), which the balancer's picker hands to calls.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
    hostname: Option<Arc<CallAuthority>>,
}

struct Inner {
    /// The connection stays open while a client exists, so the connection's own task must not hold one.
    client: Client,
    state: Arc<ConnectionState>,
    /// The `:scheme` of requests: `https` over TLS.
    scheme: Scheme,
}

impl Sender {
    pub(super) fn new(client: Client, state: Arc<ConnectionState>, scheme: Scheme) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                state,
                scheme,
            }),
            hostname: None,
        }
    }

    /// A sender on the same connection, for the endpoint of this host name. Endpoints of several clusters may share a
    /// connection under different names.
    pub(crate) fn named(&self, hostname: Option<&Arc<CallAuthority>>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            hostname: hostname.map(Arc::clone),
        }
    }

    /// The host name of the endpoint, if it has one (gRFC A81).
    pub(crate) fn hostname(&self) -> Option<&CallAuthority> {
        self.hostname.as_deref()
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// The URI must have a scheme and an authority. The scheme is replaced by that of the connection, which
    /// is `https` over TLS. If the server's stream limit is reached, the call
    /// waits for its turn; see [`Sender::waiting`]. A body that is at hand, as that of a unary call, is
    /// sent before this first waits. Any other body is sent by a task of its own, because the request must
    /// go on even if the response is not read.
    ///
    /// Dropping the future, or the body of the response before its end, resets the stream with
    /// CANCEL.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.send_with(|| owned(request)).await
    }

    /// Sends a request as [`send`](Self::send) does. Head and body are made when the request's turn has come,
    /// so that the head can say how much time is left. The head may be borrowed, because it is only read: a
    /// call keeps its own for further attempts.
    pub(crate) async fn send_with<'a, B>(
        &self,
        request: impl FnOnce() -> (RequestHead<'a>, B),
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.send_for(Purpose::Call, request).await
    }

    /// Sends a request that checks the server's health (gRFC A17), as [`send`](Self::send) does. The request is no
    /// call, so it does not make the connection one that has carried a call.
    pub(crate) async fn send_check<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.send_for(Purpose::HealthCheck, || owned(request)).await
    }

    async fn send_for<'a, B>(
        &self,
        purpose: Purpose,
        request: impl FnOnce() -> (RequestHead<'a>, B),
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let state = &self.inner.state;
        let permit = state.permit(purpose).await?;
        let (head, body) = request();
        let is_bodiless = body.is_end_stream();
        let (response, stream) = self.open(head, is_bodiless)?;
        let mut pump = if is_bodiless {
            None
        } else {
            self.start(Pump::new(stream, body)).await?
        };
        match response.await {
            Ok(response) => {
                permit.handle_carried();
                Ok(response.map(|receive| ResponseBody::new(receive, pump, permit)))
            }
            Err(error) => {
                if !matches!(error, StreamError::NeverSent(_)) {
                    permit.handle_carried();
                }
                if let Some(pump) = pump.as_mut().filter(|_| PumpHandle::has_reset(&error))
                    && let Some(status) = pump.failure().await
                {
                    return Err(SendError::request_body(state.address, status));
                }
                Err(state.stream_error(&error))
            }
        }
    }

    /// The backend at the other end.
    pub fn address(&self) -> SocketAddr {
        self.inner.state.address
    }

    /// True while new streams may be opened: the connection is neither draining nor closed.
    pub fn is_open(&self) -> bool {
        self.inner.state.is_open()
    }

    /// The number of calls that wait because the server's MAX_CONCURRENT_STREAMS is reached.
    pub fn waiting(&self) -> usize {
        self.inner.state.waiting()
    }

    fn open(
        &self,
        mut head: RequestHead<'_>,
        end_of_stream: bool,
    ) -> Result<(HeadFuture, SendStream), SendError> {
        let Inner {
            client,
            state,
            scheme,
        } = &*self.inner;
        if head.version() != Version::HTTP_2 {
            head = head.changed(|head| *head.version_mut() = Version::HTTP_2);
        }
        if let Some(uri) = with_scheme(head.uri(), scheme) {
            head = head.changed(|head| *head.uri_mut() = uri);
        }
        client.open(&head, end_of_stream).map_err(|error| {
            if matches!(error, OpenError::IdsExhausted) {
                state.handle_ids_exhausted();
            }
            match error {
                OpenError::Invalid(_) => SendError::not_opened(state.address, &error),
                OpenError::Closed | OpenError::IdsExhausted => state.never_sent(),
            }
        })
    }

    /// Sends the part of the body that is at hand, and spawns a task for the rest if there is any.
    async fn start<B>(&self, mut pump: Pump<B>) -> Result<Option<PumpHandle>, SendError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let state = &self.inner.state;
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut pump).poll(cx))).await {
            Poll::Ready(Ok(())) => Ok(None),
            Poll::Ready(Err(status)) => Err(SendError::request_body(state.address, status)),
            Poll::Pending => {
                // The server may answer before the body has anything to send.
                pump.flush();
                Ok(Some(PumpHandle::spawn(pump, &state.runtime)))
            }
        }
    }
}

fn owned<'a, B>(request: Request<B>) -> (RequestHead<'a>, B) {
    let (head, body) = request.into_parts();
    let head = Box::new(Request::from_parts(head, ()));
    (RequestHead::Owned(head), body)
}

/// The head of a request, copied when it is changed. A copy is boxed, because a head takes hundreds of bytes and
/// is moved more than once.
#[derive(Clone, Debug)]
pub(crate) enum RequestHead<'a> {
    Borrowed(&'a Request<()>),
    Owned(Box<Request<()>>),
}

impl RequestHead<'_> {
    /// The head after a change.
    pub(crate) fn changed(self, change: impl FnOnce(&mut Request<()>)) -> Self {
        let mut head = match self {
            Self::Borrowed(head) => Box::new(head.clone()),
            Self::Owned(head) => head,
        };
        change(&mut head);
        Self::Owned(head)
    }
}

impl Deref for RequestHead<'_> {
    type Target = Request<()>;

    fn deref(&self) -> &Request<()> {
        match self {
            Self::Borrowed(head) => head,
            Self::Owned(head) => head,
        }
    }
}

/// The URI with this scheme; `None` if it has it already, or has none at all.
fn with_scheme(uri: &Uri, scheme: &Scheme) -> Option<Uri> {
    if uri.scheme().is_none_or(|present| present == scheme) {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(scheme.clone());
    // `from_parts` fails for URIs without an authority or a path, which the check of the request refuses.
    Uri::from_parts(parts).ok()
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
    use crate::transport::http2::{Backend, Config, ConnectionEvent, Socket, Writes};

    /// Stream ids have 31 bits: a busy connection uses them up within hours. The call that finds no id goes to another
    /// connection, and the connection is replaced by a new one.
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
        let state = Arc::new(ConnectionState::new(
            ([127, 0, 0, 1], 1).into(),
            Handle::current(),
        ));
        let unlimited = None;
        state.handle_event(ConnectionEvent::Settings {
            max_concurrent_streams: unlimited,
        });
        let sender = Sender::new(client, state.clone(), Scheme::HTTP);

        let head = Request::get("http://payments/").body(()).unwrap();
        let head = RequestHead::Borrowed(&head);
        let _last = sender.open(head.clone(), true).unwrap();
        assert!(sender.is_open());
        let error = sender.open(head, true).unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::NeverSent);
        assert_eq!(*state.closing(), Some(Closing::Draining(None)));
        assert!(!sender.is_open());
    }
}
