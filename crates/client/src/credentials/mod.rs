//! Credentials for xDS servers: from a bootstrap entry to a connection, and to the metadata of calls.
//!
//! Files are read again while the client runs: certificates for each new connection, tokens before they
//! expire. When a file cannot be read, its last good content stays in use. So only a first reading can
//! fail an attempt to connect, and the next attempt reads again.

mod connector;
#[cfg(feature = "google-default")]
mod google;
mod jwt;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::bootstrap::{CallCredentials, ChannelCredentials, ServerConfig, TlsFiles};
use crowfly_tls::{CertificateFiles, FileSource, RootSource};
use http::Uri;
use http::uri::{Authority, Scheme};
use thiserror::Error;
use tokio_rustls::rustls::ClientConfig;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tracing::warn;

use self::connector::{Connector, TlsSettings};
use self::jwt::JwtFile;
use crate::stream::error_chain;
use crate::transports::{CONNECTION_WINDOW, STREAM_WINDOW};

/// The limit of an attempt to connect: name resolution, TCP, TLS and the HTTP/2 preface together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The time between two PINGs. The interval is long, because gRPC servers answer more frequent PINGs with GOAWAY.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The time for which nothing may have come from a server when its connection times out.
pub(crate) const SILENCE: Duration =
    Duration::from_secs(KEEPALIVE_INTERVAL.as_secs() + KEEPALIVE_TIMEOUT.as_secs());

/// The credentials of a channel for its backends: TLS, or none. Backend credentials are used for xDS servers whose
/// bootstrap entry has no `channel_creds` (gRFC A27 as it was first written).
///
/// A value equals its clones only, because TLS settings cannot be compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendCredentials(Option<Arc<ClientConfig>>);

impl BackendCredentials {
    pub(crate) fn tls(config: Arc<ClientConfig>) -> Self {
        Self(Some(crowfly_tls::for_h2(config)))
    }

    /// Returns a copy of the credentials if `server` needs them, and none if not. Clients whose servers do not need
    /// them can then be shared.
    pub(crate) fn of(&self, server: &ServerConfig) -> Self {
        if server.channel_credentials.is_empty() {
            self.clone()
        } else {
            Self::default()
        }
    }

    fn key(&self) -> Option<*const ClientConfig> {
        self.0.as_ref().map(Arc::as_ptr)
    }
}

impl PartialEq for BackendCredentials {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for BackendCredentials {}

impl Hash for BackendCredentials {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// Connects to one server as its bootstrap entry says. Clones share the content that was read from disk.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    endpoint: Endpoint,
    connector: Connector,
    tokens: Arc<[TokenSource]>,
}

impl Dialer {
    /// Reads no files yet. Must be called in a tokio runtime.
    pub(crate) fn new(
        server: &ServerConfig,
        backend: &BackendCredentials,
    ) -> Result<Self, CredentialsError> {
        let (tls, tokens) = if server.channel_credentials.is_empty() {
            (as_backends(server, backend)?, Vec::new())
        } else {
            let credentials = supported(server)?;
            let tokens = token_sources(server, credentials);
            (tls_settings(server, credentials)?, tokens)
        };
        let connector = Connector::new(server, tls).map_err(|error| CredentialsError::Address {
            server: server.uri.clone(),
            reason: error.to_string(),
        })?;
        if connector.is_plaintext() && !tokens.is_empty() {
            return Err(CredentialsError::PlaintextToken {
                server: server.uri.clone(),
            });
        }
        Ok(Self {
            endpoint: endpoint(server, &connector)?,
            connector,
            tokens: tokens.into(),
        })
    }

    /// Connects with the present content of the files. The error is the reason.
    pub(crate) async fn connect(&self) -> Result<Channel, String> {
        let connector = self.connector.clone();
        let connected = self.endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| error_chain(&error))
    }

    /// Adds the tokens to a call's metadata. Every call needs this, because tokens are renewed.
    pub(crate) async fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        for source in &*self.tokens {
            metadata.append("authorization", source.token().await?);
        }
        Ok(())
    }
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

/// A header value `Bearer <token>`. The value must not be logged, because the token is a secret.
type Token = MetadataValue<Ascii>;

/// Credentials that cannot be used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The server's URI has no valid address.
    #[error("xDS server {server}: server_uri: {reason}")]
    Address {
        /// The server's URI.
        server: String,
        /// The reason why the URI is not valid.
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
    /// The client is built with none of the kinds that the bootstrap lists.
    #[error(
        "xDS server {server}: channel_creds: expected a type that this client is built with \
         ({}), got {got}", BUILT_WITH.join(", ")
    )]
    Unsupported {
        /// The server's URI.
        server: String,
        /// The kinds that the bootstrap lists.
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

fn tls_settings(
    server: &ServerConfig,
    credentials: &ChannelCredentials,
) -> Result<Option<TlsSettings>, CredentialsError> {
    let files = match credentials {
        ChannelCredentials::Insecure => return Ok(None),
        ChannelCredentials::Tls(files) => files.clone(),
        #[cfg(feature = "google-default")]
        ChannelCredentials::GoogleDefault => Default::default(),
        other => return Err(unsupported(server, other.name())),
    };
    let source = FileSource::start(certificate_files(files));
    Ok(Some(TlsSettings::Files(Arc::new(source))))
}

/// gRFC A65: without a CA file, the system's roots are trusted.
fn certificate_files(files: TlsFiles) -> CertificateFiles {
    let roots = files.ca_certificate.map(RootSource::File);
    let roots = roots.unwrap_or(RootSource::System);
    let found = CertificateFiles::new(roots).refresh_interval(files.refresh_interval);
    match files.identity {
        Some(identity) => found.identity(identity.certificate, identity.private_key),
        None => found,
    }
}

/// gRFC A27, as it was first written: a server without `channel_creds` is given the credentials for backends. Tokens
/// are left out, because they are meant for other servers. Newer texts require the field.
fn as_backends(
    server: &ServerConfig,
    backend: &BackendCredentials,
) -> Result<Option<TlsSettings>, CredentialsError> {
    let BackendCredentials(tls) = backend;
    let used = match tls {
        None if server.wants_tls() => {
            return Err(CredentialsError::Address {
                server: server.uri.clone(),
                reason: "expected channel_creds for https, or TLS to backends".to_owned(),
            });
        }
        None => "plaintext",
        Some(_) => "TLS",
    };
    warn!(
        server = server.uri,
        "the xDS bootstrap has no channel_creds for this server: spoken to as to backends, in {used}, \
         without call credentials"
    );
    Ok(tls.clone().map(TlsSettings::Fixed))
}

fn endpoint(server: &ServerConfig, connector: &Connector) -> Result<Endpoint, CredentialsError> {
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
    let origin = if connector.is_plaintext() {
        dialled.clone()
    } else {
        uri(Scheme::HTTPS).map_err(malformed)?
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
