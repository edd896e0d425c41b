//! The interface to HTTP/2: everything that the channel needs of it, in the only file that names an implementation.
//!
//! There is one implementation, `crowfly-http2`. The feature `h2-backend`, which is for tests and benchmarks, adds one
//! on the `h2` crate. The transport tests run over both, so that they do not accept our own misreading of HTTP/2.
//! Without the feature each enum here has one variant, and a `match` on it costs nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "h2-backend")]
use super::h2_backend as h2;
pub(crate) use crowfly_http2::AuthorityField;
pub(super) use crowfly_http2::{Config, ConnectionEvent, Error, OpenError, StreamError};
pub use crowfly_http2::{GoAway, Reason};

/// The implementations of HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `crowfly-http2`.
    #[default]
    Own,
    /// The `h2` crate, to compare with.
    #[cfg(feature = "h2-backend")]
    H2,
}

/// A socket, and the facts that a connection needs to know about it.
pub(super) struct Socket<IO> {
    pub(super) io: IO,
    /// True if the server is known to have closed the socket; see [`crowfly_http2::ConnectionTask::probing`].
    pub(super) probe: fn(&IO) -> bool,
    pub(super) writes: Writes,
}

/// The meaning of a write that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    /// The write has taken no byte.
    Exact,
    /// The write may have taken some bytes, because there is a layer above the socket.
    Layered,
}

/// Runs an expression on the value of either backend.
macro_rules! inside {
    ($value:expr, $inner:ident => $run:expr) => {
        match $value {
            Self::Own($inner) => $run,
            #[cfg(feature = "h2-backend")]
            Self::H2($inner) => $run,
        }
    };
}

/// Opens streams on a connection. While there is one, the connection stays open.
pub(super) enum Client {
    Own(crowfly_http2::Client),
    #[cfg(feature = "h2-backend")]
    H2(h2::Client),
}

impl Client {
    /// Begins a connection over a socket that is connected. `observe` gets the events of the connection as a whole.
    pub(super) async fn connect<IO, F>(
        backend: Backend,
        socket: Socket<IO>,
        config: Config,
        observe: F,
    ) -> Result<(Self, Driver<IO, F>), Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: FnMut(ConnectionEvent) + Unpin + Send + 'static,
    {
        match backend {
            Backend::Own => {
                let (client, driver) =
                    crowfly_http2::ConnectionTask::new(socket.io, config, observe);
                let driver = driver.probing(socket.probe);
                let driver = match socket.writes {
                    Writes::Exact => driver.with_exact_writes(),
                    Writes::Layered => driver,
                };
                Ok((Self::Own(client), Driver::Own(driver)))
            }
            #[cfg(feature = "h2-backend")]
            Backend::H2 => {
                let (client, driver) = h2::connect(socket.io, config, observe).await?;
                Ok((Self::H2(client), Driver::H2(driver)))
            }
        }
    }

    /// Opens a stream; see [`crowfly_http2::Client::open`].
    pub(super) fn open(
        &self,
        request: &Request<()>,
        is_ended: bool,
    ) -> Result<(HeadFuture, SendStream), OpenError> {
        match self {
            Self::Own(client) => {
                let (response, stream) = client.open(request, is_ended)?;
                Ok((HeadFuture::Own(response), SendStream::Own(stream)))
            }
            #[cfg(feature = "h2-backend")]
            Self::H2(client) => {
                let (response, stream) = client.open(request, is_ended)?;
                Ok((HeadFuture::H2(response), SendStream::H2(stream)))
            }
        }
    }

    /// A handle to send PINGs with.
    pub(super) fn pings(&self) -> PingSender {
        match self {
            Self::Own(client) => PingSender::Own(client.pings()),
            #[cfg(feature = "h2-backend")]
            Self::H2(client) => PingSender::H2(client.pings()),
        }
    }
}

/// The future that drives a connection to its end. Dropping it ends the connection at once.
pub(super) enum Driver<IO, F> {
    Own(crowfly_http2::ConnectionTask<IO, F>),
    #[cfg(feature = "h2-backend")]
    H2(h2::Driver),
}

impl<IO, F> Future for Driver<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(ConnectionEvent) + Unpin,
{
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        inside!(self.get_mut(), driver => Pin::new(driver).poll(cx))
    }
}

/// The request side of a stream.
#[derive(Debug)]
pub(super) enum SendStream {
    Own(crowfly_http2::SendStream),
    #[cfg(feature = "h2-backend")]
    H2(h2::SendStream),
}

impl SendStream {
    /// Sends DATA as far as flow control allows at this moment. The rest waits in memory.
    pub(super) fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<(), StreamError> {
        inside!(self, stream => stream.send_data(data, is_last))
    }

    /// Ends the request with trailers.
    pub(super) fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
        inside!(self, stream => stream.send_trailers(trailers))
    }

    /// Waits until at least some DATA would be sent at once.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        inside!(self, stream => stream.poll_room(cx))
    }

    /// Sends the head of the request, if it was not sent yet.
    pub(super) fn flush(&mut self) {
        inside!(self, stream => stream.flush());
    }

    /// Cancels the stream.
    pub(super) fn cancel(&mut self) {
        inside!(self, stream => stream.cancel());
    }

    /// Waits until the stream takes no more of the request.
    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        inside!(self, stream => stream.poll_stopped(cx))
    }
}

/// The head of a response, which comes with the handle for the rest of it.
#[derive(Debug)]
pub(super) enum HeadFuture {
    Own(crowfly_http2::HeadFuture),
    #[cfg(feature = "h2-backend")]
    H2(h2::HeadFuture),
}

impl Future for HeadFuture {
    type Output = Result<Response<ReceiveStream>, StreamError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Own(response) => Pin::new(response)
                .poll(cx)
                .map_ok(|head| head.map(ReceiveStream::Own)),
            #[cfg(feature = "h2-backend")]
            Self::H2(response) => Pin::new(response)
                .poll(cx)
                .map_ok(|head| head.map(ReceiveStream::H2)),
        }
    }
}

/// The response side of a stream. Dropped before its end, it cancels the stream.
#[derive(Debug)]
pub(super) enum ReceiveStream {
    Own(crowfly_http2::ReceiveStream),
    #[cfg(feature = "h2-backend")]
    H2(h2::ReceiveStream),
}

impl ReceiveStream {
    /// The next DATA of the response; `None` after the last. Taking it gives window back to the server.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        inside!(self, stream => stream.poll_data(cx))
    }

    /// The trailers of the response, if it has some. The trailers come after the last DATA.
    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        inside!(self, stream => stream.poll_trailers(cx))
    }
}

/// Sends PINGs, because a server that is gone may never close the connection.
pub(super) enum PingSender {
    Own(crowfly_http2::PingSender),
    #[cfg(feature = "h2-backend")]
    H2(h2::PingSender),
}

impl PingSender {
    /// Sends a PING, unless one is under way.
    pub(super) fn send(&self) {
        inside!(self, pings => pings.send());
    }

    /// Waits for the answer to the last PING; `false` if the connection is over.
    pub(super) async fn answer(&self) -> bool {
        inside!(self, pings => pings.answer().await)
    }
}
