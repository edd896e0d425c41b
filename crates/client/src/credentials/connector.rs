//! Connections to one server: over TCP or a Unix socket, with TLS or without.
//!
//! tonic has a connector too, but its TLS cannot take certificates that change on disk (gRFC A65).

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crowfly_model::bootstrap::{ServerAddress, ServerConfig};
use crowfly_tls::{FileSource, HandshakeError, ServerCheck, TlsError};
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::ClientConfig;
use tower_service::Service;

/// Makes connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    address: Address,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(HttpConnector),
    Unix(Arc<Path>),
}

#[derive(Clone, Debug)]
struct Tls {
    server_name: ServerName<'static>,
    settings: TlsSettings,
}

/// TLS settings that may change between two connections, or not.
#[derive(Clone, Debug)]
pub(super) enum TlsSettings {
    Files(Arc<FileSource>),
    Fixed(Arc<ClientConfig>),
}

impl Connector {
    /// With TLS, the server must prove to be the host in its URI.
    pub(super) fn new(server: &ServerConfig, tls: Option<TlsSettings>) -> Result<Self, TlsError> {
        let address = match server.address() {
            ServerAddress::Unix(path) => Address::Unix(path.as_path().into()),
            _ => {
                let mut tcp = HttpConnector::new();
                tcp.enforce_http(false);
                tcp.set_nodelay(true);
                Address::Tcp(tcp)
            }
        };
        let tls = match tls {
            None => None,
            Some(settings) => Some(Tls {
                server_name: crowfly_tls::server_name(server.authority())?,
                settings,
            }),
        };
        Ok(Self { address, tls })
    }

    /// True if the connection is not encrypted.
    pub(super) fn is_plaintext(&self) -> bool {
        self.tls.is_none()
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<Box<dyn Socket>>, ConnectError> {
        // The files come first, because without them a connection would be of no use.
        let tls = match self.tls {
            None => None,
            Some(tls) => Some((tls.settings.config().await?, tls.server_name)),
        };
        let socket = self.address.connect(uri).await?;
        let Some((config, server_name)) = tls else {
            return Ok(TokioIo::new(socket));
        };
        let stream = crowfly_tls::connect(config, server_name, socket).await?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

impl Address {
    async fn connect(self, uri: Uri) -> Result<Box<dyn Socket>, ConnectError> {
        match self {
            Self::Tcp(mut tcp) => {
                let connected = tcp.call(uri).await.map_err(Box::new)?;
                Ok(Box::new(connected.into_inner()))
            }
            Self::Unix(path) => {
                let unix = |source| ConnectError::Unix {
                    path: path.to_path_buf(),
                    source,
                };
                connect_unix(&path).await.map_err(unix)
            }
        }
    }
}

#[cfg(unix)]
async fn connect_unix(path: &Path) -> io::Result<Box<dyn Socket>> {
    let stream = tokio::net::UnixStream::connect(path).await?;
    Ok(Box::new(stream))
}

#[cfg(not(unix))]
async fn connect_unix(_: &Path) -> io::Result<Box<dyn Socket>> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

impl TlsSettings {
    async fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        match self {
            Self::Files(source) => {
                let material = source.current().await?;
                Ok(Arc::new(material.client_config(&ServerCheck::HostName)?))
            }
            Self::Fixed(config) => Ok(Arc::clone(config)),
        }
    }
}

/// A socket of any kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.address {
            Address::Tcp(tcp) => {
                let tcp = tcp.poll_ready(cx);
                tcp.map_err(|error| ConnectError::Tcp(Box::new(error)))
            }
            Address::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// The reason why there is no connection.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("TLS handshake: {0}")]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Tcp(#[from] Box<<HttpConnector as Service<Uri>>::Error>),
    #[error("{}: {source}", path.display())]
    Unix { path: PathBuf, source: io::Error },
}
