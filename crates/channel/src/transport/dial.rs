//! Sockets to backends: by TCP, or by a connector of the program's own.
//!
//! A program needs a connector for Unix sockets, proxies and tests. The rest of the transport does not know
//! which of them made a socket.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tracing::debug;

use super::http2::Writes;

/// A byte stream that can carry HTTP/2.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Makes the sockets of a channel in place of TCP.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(SocketAddr) -> Connecting + Send + Sync>);

impl Connector {
    /// A connector that calls `connect` with the address of an endpoint.
    pub fn new<C, F, S>(connect: C) -> Self
    where
        C: Fn(SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream,
    {
        Self(Arc::new(move |address| {
            let connecting = connect(address);
            Box::pin(async move {
                let stream: Box<dyn Stream> = Box::new(connecting.await?);
                Ok(stream)
            })
        }))
    }

    /// A connector to a Unix socket, for any address. Errors of the connector name the path, because the address says
    /// nothing.
    #[cfg(unix)]
    pub(crate) fn unix(path: &Path) -> Self {
        let path: Arc<Path> = path.into();
        Self::new(move |_| {
            let path = Arc::clone(&path);
            async move {
                let connected = UnixStream::connect(&path).await;
                let named = |error| format!("{}: {error}", path.display());
                connected.map_err(|error| io::Error::new(error.kind(), named(error)))
            }
        })
    }

    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<Dialled> {
        (self.0)(address).await.map(Dialled::Own)
    }

    /// The identity of a connector. Only clones of a connector have the same identity.
    pub(super) fn identity(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// Connects by TCP. Bytes that the other side does not acknowledge for `user_timeout` end the
/// connection (gRFC A18).
pub(super) async fn connect_tcp(
    address: SocketAddr,
    user_timeout: Option<Duration>,
) -> io::Result<Dialled> {
    let tcp = TcpStream::connect(address).await?;
    // A call is complete in one write; waiting for more to send would only delay it.
    tcp.set_nodelay(true)?;
    if let Some(timeout) = user_timeout
        && let Err(error) = set_user_timeout(&tcp, timeout)
    {
        debug!(%address, %error, "TCP_USER_TIMEOUT cannot be set");
    }
    Ok(Dialled::Tcp(tcp))
}

#[cfg(any(target_os = "android", target_os = "linux"))]
fn set_user_timeout(tcp: &TcpStream, timeout: Duration) -> io::Result<()> {
    // The kernel takes no more milliseconds than this.
    let most = Duration::from_millis(i32::MAX as u64);
    SockRef::from(tcp).set_tcp_user_timeout(Some(timeout.min(most)))
}

/// Does nothing, because other systems do not have the option. gRFC A18 allows that.
#[cfg(not(any(target_os = "android", target_os = "linux")))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// A socket that is connected.
pub(super) enum Dialled {
    Own(Box<dyn Stream>),
    Tcp(TcpStream),
}

impl Dialled {
    /// The meaning of a failed write. A stream of the program's own may have passed on some bytes,
    /// because it may have layers with buffers.
    pub(super) fn writes(&self) -> Writes {
        match self {
            Self::Own(_) => Writes::Layered,
            Self::Tcp(_) => Writes::Exact,
        }
    }

    /// True if the server is known to have closed the socket and nothing is left to read.
    pub(super) fn is_hung_up(&self) -> bool {
        let Self::Tcp(tcp) = self else {
            return false;
        };
        match SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]) {
            Ok(len) => len == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock),
        }
    }
}

/// Runs an expression on the stream inside, pinned.
macro_rules! inside {
    ($dialled:expr, $stream:ident => $run:expr) => {
        match $dialled {
            Dialled::Own(stream) => {
                let $stream = Pin::new(stream);
                $run
            }
            Dialled::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $run
            }
        }
    };
}

impl AsyncRead for Dialled {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inside!(self.get_mut(), stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        inside!(self.get_mut(), stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(self.get_mut(), stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(self.get_mut(), stream => stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inside!(self.get_mut(), stream => stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Own(stream) => stream.is_write_vectored(),
            Self::Tcp(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// gRFC A18: TCP_USER_TIMEOUT is the timeout of keepalive, and without keepalive it is not set.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_timeout_of_keepalive_is_tcps_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let long = Duration::from_millis(i32::MAX as u64);
        for (asked, expected) in [
            (None, None),
            (Some(Duration::from_secs(20)), Some(Duration::from_secs(20))),
            (Some(Duration::MAX), Some(long)),
        ] {
            let Dialled::Tcp(tcp) = connect_tcp(address, asked).await.unwrap() else {
                panic!("TCP was asked for");
            };
            let timeout = SockRef::from(&tcp).tcp_user_timeout().unwrap();
            assert_eq!(timeout.filter(|timeout| !timeout.is_zero()), expected);
        }
    }
}
