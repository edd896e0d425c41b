//! A connection of a client, with TLS or without. The server can close it at once, because a client
//! that does not read would hold it open for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::Peer;

/// The bytes with which a client begins to speak HTTP/2: the preface and the head of its settings.
const BEGINNING: usize = 24 + 9;

/// A connection of a client.
pub(crate) struct Connection {
    socket: Socket,
    peer: Peer,
    /// The bytes that are missing until the client has begun to speak HTTP/2.
    missing: usize,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A socket, with TLS or without.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// A connection that ends when its peer or `all` is closed.
    pub(super) fn new(socket: Socket, peer: Peer, mut all: watch::Receiver<bool>) -> Self {
        let mut own = peer.closed();
        let closed = async move {
            tokio::select! {
                _ = own.wait_for(|closed| *closed) => {}
                _ = all.wait_for(|closed| *closed) => {}
            }
        };
        Self {
            socket,
            peer,
            missing: BEGINNING,
            closed: Box::pin(closed),
        }
    }

    /// Fails once the connection is closed from our side. Writes ask, too, because a client that does
    /// not read keeps HTTP/2 from reading.
    fn check_closed(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                self.closed = Box::pin(std::future::ready(()));
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_closed(cx)?;
        let before = buffer.filled().len();
        ready!(match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Socket::Tls(socket) => Pin::new(socket).poll_read(cx, buffer),
        })?;
        if self.missing > 0 {
            let read = buffer.filled().len() - before;
            self.missing = self.missing.saturating_sub(read);
            if self.missing == 0 {
                self.peer.speaks();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_closed(cx)?;
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Tls(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_closed(cx)?;
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Socket::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_closed(cx)?;
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_closed(cx)?;
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
