//! One xDS server: its address, its credentials and its features.
//!
//! A server can be compared, because two entries with equal settings are one server and share a connection.

use std::{collections::BTreeSet, path::PathBuf};

use super::{CallCredentials, ChannelCredentials, ServerAddress, ServerFeature, TlsFiles, uri};
use crate::Validator;

/// The address, the credentials and the features of one xDS server.
///
/// Two equal values are one server, so they share one connection (gRFC A47, A71).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The URI as it was given.
    pub uri: String,
    /// The ways to secure the connection. The client uses the first that it is built with (gRFC A27). If the
    /// list is empty, the connection has the credentials of connections to backends.
    pub channel_credentials: Vec<ChannelCredentials>,
    /// The credentials of calls. Each call carries all of them (gRFC A97).
    pub call_credentials: Vec<CallCredentials>,
    /// The features that the bootstrap says the server has.
    pub features: BTreeSet<ServerFeature>,
    address: ServerAddress,
}

impl ServerConfig {
    /// Describes a server in code.
    ///
    /// ```
    /// # use crowfly_model::bootstrap::{Bootstrap, ServerConfig, ServerFeature, TlsFiles};
    /// let server = ServerConfig::builder("control:443")
    ///     .tls(TlsFiles::default().ca_certificate("/etc/xds/ca.pem"))
    ///     .feature(ServerFeature::Delta);
    /// let bootstrap = Bootstrap::builder(server)?.build();
    /// assert!(bootstrap.servers[0].has_feature(ServerFeature::Delta));
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    pub fn builder(uri: impl Into<String>) -> ServerBuilder {
        ServerBuilder {
            uri: uri.into(),
            channel_credentials: Vec::new(),
            call_credentials: Vec::new(),
            features: BTreeSet::new(),
        }
    }

    /// The address on which the server listens.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The `host:port` of the server; `localhost` for a Unix socket, as in gRPC.
    pub fn authority(&self) -> &str {
        match &self.address {
            ServerAddress::Tcp(authority) => authority,
            ServerAddress::Unix(_) => "localhost",
        }
    }

    /// True if the server's URI asks for TLS.
    pub fn wants_tls(&self) -> bool {
        wants_tls(&self.uri)
    }

    /// True if the bootstrap says that the server has this feature.
    pub fn has_feature(&self, feature: ServerFeature) -> bool {
        self.features.contains(&feature)
    }
}

/// A server as a program describes it. The connection is plaintext if the program sets no credentials.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerBuilder {
    pub(super) uri: String,
    pub(super) channel_credentials: Vec<ChannelCredentials>,
    pub(super) call_credentials: Vec<CallCredentials>,
    pub(super) features: BTreeSet<ServerFeature>,
}

impl ServerBuilder {
    /// Secures the connection with TLS.
    pub fn tls(self, files: TlsFiles) -> Self {
        self.channel_credentials(ChannelCredentials::Tls(files))
    }

    /// Adds a way to secure the connection. A client uses it if it is built with none of the ways added before.
    pub fn channel_credentials(mut self, credentials: ChannelCredentials) -> Self {
        self.channel_credentials.push(credentials);
        self
    }

    /// Sends the JSON web token in this file with every call (gRFC A97).
    pub fn jwt_token_file(mut self, path: impl Into<PathBuf>) -> Self {
        let credentials = CallCredentials::JwtTokenFile(path.into());
        self.call_credentials.push(credentials);
        self
    }

    /// Adds a feature that the server has.
    pub fn feature(mut self, feature: ServerFeature) -> Self {
        self.features.insert(feature);
        self
    }

    pub(super) fn build(mut self, v: &mut Validator) -> Option<ServerConfig> {
        if self.channel_credentials.is_empty() {
            self.channel_credentials.push(ChannelCredentials::Insecure);
        }
        self.build_as_said(v)
    }

    /// Builds the server without a default for its credentials. A server without credentials is reached with the
    /// credentials of backends (the first version of gRFC A27).
    pub(super) fn build_as_said(mut self, v: &mut Validator) -> Option<ServerConfig> {
        let credentials = &mut self.channel_credentials;
        let says_none = credentials.is_empty();
        // An https URI asks for TLS, so it must never get a plaintext connection.
        if wants_tls(&self.uri) {
            credentials.retain(|credentials| *credentials != ChannelCredentials::Insecure);
        }
        let address = if credentials.is_empty() && !says_none {
            let uri = &self.uri;
            Err(format!(
                "expected a URI without https for insecure channel_creds, got {uri:?}"
            ))
        } else {
            uri::parse(&self.uri)
        };
        let address = address
            .inspect_err(|message| v.error_at("server_uri", message))
            .ok()?;
        Some(ServerConfig {
            uri: self.uri,
            channel_credentials: self.channel_credentials,
            call_credentials: self.call_credentials,
            features: self.features,
            address,
        })
    }
}

fn wants_tls(uri: &str) -> bool {
    uri.starts_with("https:")
}

impl From<&str> for ServerBuilder {
    fn from(uri: &str) -> Self {
        ServerConfig::builder(uri)
    }
}

impl From<&String> for ServerBuilder {
    fn from(uri: &String) -> Self {
        ServerConfig::builder(uri)
    }
}
