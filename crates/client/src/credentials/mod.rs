//! From a server's bootstrap entry to a connection to it and the metadata of its calls.
//!
//! Everything that is read from disk is read again while the client runs: certificates for each new
//! connection, tokens before they expire. A file that cannot be read at that time is no reason to
//! stop using what was read before, so only a first reading can fail an attempt to connect; and that
//! only until the file is there.

#[cfg(feature = "google-default")]
mod google;
mod jwt;
mod roots;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use crowfly_model::bootstrap::{CallCredentials, ChannelCredentials, ServerConfig};
use http::Uri;
use http::uri::{Authority, Scheme};
use thiserror::Error;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use self::jwt::JwtFile;
use self::tls::{TlsConnector, TlsSource};
use crate::stream::error_chain;
use crate::transports::{CONNECTION_WINDOW, STREAM_WINDOW};

/// Covers name resolution, TCP, TLS and the HTTP/2 preface.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Servers of other languages answer more frequent pings with GOAWAY.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to one server as its bootstrap entry says. Clones share what was read from disk.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    endpoint: Endpoint,
    security: Security,
    tokens: Arc<[TokenSource]>,
}

impl Dialer {
    /// Reads no files yet. Must be called in a tokio runtime.
    pub(crate) fn new(server: &ServerConfig) -> Result<Self, CredentialsError> {
        let channel_credentials = supported(server)?;
        let tokens = token_sources(server, channel_credentials);
        let security = match channel_credentials {
            ChannelCredentials::Insecure => Security::Plaintext,
            ChannelCredentials::Tls(files) => {
                let source = TlsSource::start(files.clone());
                Security::Tls(tls_connector(server, source)?)
            }
            #[cfg(feature = "google-default")]
            ChannelCredentials::GoogleDefault => {
                let source = TlsSource::start(Default::default());
                Security::Tls(tls_connector(server, source)?)
            }
            other => return Err(unsupported(server, other.name())),
        };
        if matches!(security, Security::Plaintext) && !tokens.is_empty() {
            return Err(CredentialsError::PlaintextToken {
                server: server.uri.clone(),
            });
        }
        Ok(Self {
            endpoint: endpoint(server, &security)?,
            security,
            tokens: tokens.into(),
        })
    }

    /// Connects, with what is in the files now. The error is the reason.
    pub(crate) async fn connect(&self) -> Result<Channel, String> {
        let connected = match &self.security {
            Security::Plaintext => self.endpoint.connect().await,
            Security::Tls(connector) => {
                let connector = connector.clone();
                self.endpoint.connect_with_connector(connector).await
            }
        };
        connected.map_err(|error| error_chain(&error))
    }

    /// Adds what the server wants to see of the caller. Each call has to ask anew.
    pub(crate) async fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        for source in &*self.tokens {
            metadata.append("authorization", source.token().await?);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Security {
    Plaintext,
    Tls(TlsConnector),
}

#[derive(Debug)]
enum TokenSource {
    #[cfg(feature = "google-default")]
    Google(google::Google),
    Jwt(JwtFile),
}

impl TokenSource {
    async fn token(&self) -> Result<Token, Status> {
        match self {
            #[cfg(feature = "google-default")]
            Self::Google(google) => google.token().await,
            Self::Jwt(file) => file.token().await.map_err(Status::from),
        }
    }
}

/// `Bearer <token>`, which is not for logs.
type Token = MetadataValue<Ascii>;

/// Credentials that cannot be used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The server's address is not one.
    #[error("xDS server {server}: server_uri: {reason}")]
    Address {
        /// The server's URI.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A token would be sent in plaintext.
    #[error(
        "xDS server {server}: call_creds: expected TLS to send a token over, \
         got channel_creds of type insecure"
    )]
    PlaintextToken {
        /// The server's URI.
        server: String,
    },
    /// The client is built with none of the kinds on offer.
    #[error(
        "xDS server {server}: channel_creds: expected a type that this client is built with \
         ({}), got {got}", BUILT_WITH.join(", ")
    )]
    Unsupported {
        /// The server's URI.
        server: String,
        /// The kinds on offer.
        got: String,
    },
}

const BUILT_WITH: &[&str] = &[
    "insecure",
    "tls",
    #[cfg(feature = "google-default")]
    "google_default",
];

/// The first entry that this client is built with (gRFC A27).
fn supported(server: &ServerConfig) -> Result<&ChannelCredentials, CredentialsError> {
    let offered = &server.channel_credentials;
    let is_supported = |credentials: &&ChannelCredentials| BUILT_WITH.contains(&credentials.name());
    offered.iter().find(is_supported).ok_or_else(|| {
        let names: Vec<_> = offered.iter().map(ChannelCredentials::name).collect();
        unsupported(server, &names.join(", "))
    })
}

fn unsupported(server: &ServerConfig, got: &str) -> CredentialsError {
    CredentialsError::Unsupported {
        server: server.uri.clone(),
        got: got.to_owned(),
    }
}

/// Call credentials of all kinds that are known; others are ignored (gRFC A97).
fn token_sources(server: &ServerConfig, channel: &ChannelCredentials) -> Vec<TokenSource> {
    let files = server
        .call_credentials
        .iter()
        .filter_map(|call| match call {
            CallCredentials::JwtTokenFile(path) => {
                Some(TokenSource::Jwt(JwtFile::new(path.clone())))
            }
            _ => None,
        });
    let google = match channel {
        #[cfg(feature = "google-default")]
        ChannelCredentials::GoogleDefault => Some(TokenSource::Google(google::Google::default())),
        _ => None,
    };
    files.chain(google).collect()
}

fn tls_connector(
    server: &ServerConfig,
    source: Arc<TlsSource>,
) -> Result<TlsConnector, CredentialsError> {
    TlsConnector::new(server.authority(), source).map_err(|error| CredentialsError::Address {
        server: server.uri.clone(),
        reason: error.to_string(),
    })
}

fn endpoint(server: &ServerConfig, security: &Security) -> Result<Endpoint, CredentialsError> {
    let malformed = |error: http::Error| CredentialsError::Address {
        server: server.uri.clone(),
        reason: error.to_string(),
    };
    let uri = |scheme: Scheme| {
        let authority: Authority = server.authority().parse()?;
        let uri = Uri::builder().scheme(scheme).authority(authority);
        uri.path_and_query("/").build()
    };
    // tonic refuses to dial `https` unless TLS is its own, so that is only what requests say.
    let dialled = uri(Scheme::HTTP).map_err(malformed)?;
    let origin = match security {
        Security::Plaintext => dialled.clone(),
        Security::Tls(_) => uri(Scheme::HTTPS).map_err(malformed)?,
    };
    Ok(Endpoint::from(dialled)
        .origin(origin)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}
