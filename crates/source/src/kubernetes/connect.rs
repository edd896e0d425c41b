//! Connections to the API server, with TLS or without.
//!
//! Files of certificates are read for each connection, because a cluster rotates them. Connections are
//! few: a watch stays on one for minutes.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crowfly_tls::{Identity, Material, Roots, ServerCheck, server_name};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::transport::BoxError;

/// The time that a connection may be silent before its peer is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(15);

/// The time that a peer has to answer each question for a sign of life.
const BETWEEN_SIGNS: Duration = Duration::from_secs(5);

/// The number of unanswered questions after which the connection has failed: half a minute after the last byte.
const SIGNS: u32 = 3;

/// A text in PEM.
#[derive(Clone)]
pub(super) enum Pem {
    /// In a file, which is read for each connection, because it may be replaced.
    File(PathBuf),
    /// In a kubeconfig, as this field.
    Inline(&'static str, Vec<u8>),
}

impl Pem {
    fn read(&self) -> Result<(String, Vec<u8>), BoxError> {
        match self {
            Self::File(path) => {
                let what = path.display().to_string();
                let text = std::fs::read(path).map_err(|error| format!("{what}: {error}"))?;
                Ok((what, text))
            }
            Self::Inline(what, text) => Ok(((*what).to_owned(), text.clone())),
        }
    }
}

/// The certificates of connections.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// The roots; the system's if there are none.
    pub(super) roots: Option<Pem>,
    /// A certificate of our own, and its key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The name that the server must prove, if it is not its host.
    pub(super) server_name: Option<String>,
}

impl Certificates {
    fn read(&self) -> Result<TlsConnector, BoxError> {
        let roots = match &self.roots {
            Some(roots) => {
                let (what, pem) = roots.read()?;
                Roots::default().add_pem(&what, &pem)?
            }
            None => Roots::system()?,
        };
        let mut material = Material::new(roots);
        if let Some((certificate, key)) = &self.identity {
            let (what, certificate) = certificate.read()?;
            let (_, key) = key.read()?;
            material = material.with_identity(Identity::from_pem(&what, &certificate, &key)?);
        }
        let mut config = material.client_config(&ServerCheck::HostName)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<Certificates>);

impl Connector {
    async fn connect(self, to: Uri) -> Result<TokioIo<Io>, BoxError> {
        let host = to.host().unwrap_or_default();
        let is_tls = to.scheme_str() != Some("http");
        let port = to.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((address, port)).await?;
        socket.set_nodelay(true)?;
        notice_silence(&socket)?;
        if !is_tls {
            return Ok(TokioIo::new(Io(Box::new(socket))));
        }
        let name = self.0.server_name.as_deref().unwrap_or(host).to_owned();
        let name = server_name(&name)?;
        let read = tokio::task::spawn_blocking(move || self.0.read());
        let connector = read.await??;
        let connected = connector.connect(name, socket).await;
        let stream = connected.map_err(|error| crowfly_tls::reason(&error))?;
        Ok(TokioIo::new(Io(Box::new(stream))))
    }
}

/// Makes the kernel ask a silent peer for a sign of life. A watch waits for minutes, and a server
/// that lost its power says nothing. Without this, changes would be missed until the watch ends by
/// itself.
fn notice_silence(socket: &TcpStream) -> io::Result<()> {
    let signs = TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(BETWEEN_SIGNS);
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let signs = signs.with_retries(SIGNS);
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&signs)?;
    // The time limit for a request that the peer does not acknowledge.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE + BETWEEN_SIGNS * SIGNS))?;
    Ok(())
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Io>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

/// Checks certificates before anything is asked for, so that a mistake stops the start.
pub(super) fn check(certificates: &Certificates) -> Result<(), BoxError> {
    certificates.read().map(drop)
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection.
pub(super) struct Io(Box<dyn Duplex>);

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-58: an API server that vanished without a word is noticed within half a minute, and not when the watch
    /// would have ended.
    #[tokio::test]
    async fn a_server_that_vanished_is_noticed() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(server.local_addr().unwrap());
        let socket = socket.await.unwrap();
        notice_silence(&socket).unwrap();
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), SILENCE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), BETWEEN_SIGNS);
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), SIGNS);
            let patience = socket.tcp_user_timeout().unwrap();
            assert_eq!(patience, Some(Duration::from_secs(30)));
        }
    }
}
