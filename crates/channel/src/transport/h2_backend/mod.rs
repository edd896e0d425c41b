//! HTTP/2 by the `h2` crate, behind the channel's [interface](super::http2): for tests and
//! benchmarks only.
//!
//! Three things are missing, because `h2` cannot do them:
//! - `h2` does not tell if a byte of a stream was written. A call on a connection that breaks is
//!   [`Lost`](StreamError::Lost), never `NeverSent`.
//! - `h2` does not look at the socket before it begins a stream.
//! - `h2` does not bound the memory of an idle connection.

mod tap;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use self::tap::Tap;
use super::http2::{Config, ConnectionEvent, Error, OpenError, Reason, StreamError};

/// The future that drives a connection to its end.
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Begins a connection: `h2` writes its preface before it returns.
pub(super) async fn connect<IO, F>(
    io: IO,
    config: Config,
    observe: F,
) -> Result<(Client, Driver), Error>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: FnMut(ConnectionEvent) + Unpin + Send + 'static,
{
    let (requests, mut connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(config.stream_window)
        .initial_connection_window_size(config.connection_window)
        .max_header_list_size(config.max_header_list_size)
        .handshake(Tap::new(io, observe))
        .await
        .map_err(connection_error)?;
    let pings = Arc::new(Mutex::new(Pings {
        pings: connection.ping_pong(),
        is_under_way: false,
    }));
    let driver = async move { connection.await.map_err(connection_error) };
    Ok((Client { requests, pings }, Box::pin(driver)))
}

/// Opens streams on a connection.
pub(super) struct Client {
    requests: SendRequest<Bytes>,
    pings: Arc<Mutex<Pings>>,
}

impl Client {
    pub(super) fn open(
        &self,
        request: &Request<()>,
        is_ended: bool,
    ) -> Result<(HeadFuture, SendStream), OpenError> {
        // A clone may open one stream before the server's limit is looked at: the caller does that.
        let opened = self
            .requests
            .clone()
            .send_request(request.clone(), is_ended);
        let (response, stream) = opened.map_err(|error| open_error(&error))?;
        Ok((HeadFuture { response }, SendStream { stream }))
    }

    pub(super) fn pings(&self) -> PingSender {
        PingSender {
            pings: Arc::clone(&self.pings),
        }
    }
}

/// The request side of a stream.
#[derive(Debug)]
pub(super) struct SendStream {
    stream: h2::SendStream<Bytes>,
}

impl SendStream {
    pub(super) fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<(), StreamError> {
        self.stream
            .send_data(data, is_last)
            .map_err(|error| stream_error(&error))
    }

    pub(super) fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
        self.stream
            .send_trailers(trailers)
            .map_err(|error| stream_error(&error))
    }

    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(stream_error(&error))),
                None => return Poll::Ready(Err(StreamError::Cancelled)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Does nothing, because `h2` does not hold back the head of a request.
    pub(super) fn flush(&self) {}

    pub(super) fn cancel(&mut self) {
        self.stream.send_reset(h2::Reason::CANCEL);
    }

    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(drop)
    }
}

/// The head of a response, and with it the rest.
#[derive(Debug)]
pub(super) struct HeadFuture {
    response: h2::client::ResponseFuture,
}

impl Future for HeadFuture {
    type Output = Result<Response<ReceiveStream>, StreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let head = ready!(Pin::new(&mut self.response).poll(cx));
        Poll::Ready(match head {
            Ok(head) => Ok(head.map(|stream| ReceiveStream { stream })),
            Err(error) => Err(stream_error(&error)),
        })
    }
}

/// The response side of a stream.
#[derive(Debug)]
pub(super) struct ReceiveStream {
    stream: h2::RecvStream,
}

impl ReceiveStream {
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let data = match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => data,
            Some(Err(error)) => return Poll::Ready(Some(Err(stream_error(&error)))),
            None => return Poll::Ready(None),
        };
        // Releasing fails only if more is given back than came.
        let _ = self.stream.flow_control().release_capacity(data.len());
        Poll::Ready(Some(Ok(data)))
    }

    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        self.stream
            .poll_trailers(cx)
            .map_err(|error| stream_error(&error))
    }
}

/// Sends PINGs to the server.
pub(super) struct PingSender {
    pings: Arc<Mutex<Pings>>,
}

struct Pings {
    /// The handle for PINGs, of which `h2` gives one per connection.
    pings: Option<PingPong>,
    is_under_way: bool,
}

impl PingSender {
    pub(super) fn send(&self) {
        let mut state = self.pings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pings) = &mut state.pings
            && pings.send_ping(Ping::opaque()).is_ok()
        {
            state.is_under_way = true;
        }
    }

    pub(super) async fn answer(&self) -> bool {
        poll_fn(|cx| {
            let mut state = self.pings.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.is_under_way {
                return Poll::Ready(true);
            }
            let Some(pings) = &mut state.pings else {
                return Poll::Ready(false);
            };
            let answer = ready!(pings.poll_pong(cx));
            state.is_under_way = false;
            Poll::Ready(answer.is_ok())
        })
        .await
    }
}

fn connection_error(error: h2::Error) -> Error {
    let text = error.to_string();
    error
        .into_io()
        .unwrap_or_else(|| io::Error::other(text))
        .into()
}

/// The user errors of `h2` are told apart by their text alone.
fn open_error(error: &h2::Error) -> OpenError {
    let text = error.to_string();
    match text.strip_prefix("user error: ") {
        Some("stream ID overflowed") => OpenError::IdsExhausted,
        Some(text) if text.contains("malformed headers") || text.contains("request URI") => {
            OpenError::Invalid("h2 refuses the request")
        }
        _ => OpenError::Closed,
    }
}

fn stream_error(error: &h2::Error) -> StreamError {
    let text = error.to_string();
    let reason = error.reason().map(|reason| Reason::from(u32::from(reason)));
    match reason {
        Some(reason) if error.is_remote() && error.is_go_away() => StreamError::Refused(reason),
        Some(Reason::REFUSED_STREAM) if error.is_remote() => {
            StreamError::Refused(Reason::REFUSED_STREAM)
        }
        Some(reason) if error.is_remote() => StreamError::Reset(reason),
        Some(_) if error.is_library() && error.is_reset() => {
            StreamError::Malformed("h2 refuses the response")
        }
        Some(Reason::CANCEL) => StreamError::Cancelled,
        _ => StreamError::Lost(text.into()),
    }
}
