//! One xDS server: where it is, how to connect to it, and what it can do.
//!
//! Two entries with equal settings are one server, which is why a server can be compared.

use std::{collections::BTreeSet, path::PathBuf};

use super::{CallCredentials, ChannelCredentials, ServerAddress, ServerFeature, TlsFiles, uri};
use crate::Validator;

/// How to reach one xDS server.
///
/// Two that are equal are the same server, to which one connection is enough (gRFC A47, A71).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The URI as it was given.
    pub uri: String,
    /// How the connection may be secured: the first that the client is built with is used (gRFC
    /// A27). None if the bootstrap does not say: then it is secured as connections to backends are.
    pub channel_credentials: Vec<ChannelCredentials>,
    /// How calls are authenticated: all of these at once (gRFC A97).
    pub call_credentials: Vec<CallCredentials>,
    /// What the server is said to do.
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

    /// Where it listens.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Its `host:port`; of a Unix socket `localhost`, as in gRPC.
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

    /// Whether the server is said to do this.
    pub fn has_feature(&self, feature: ServerFeature) -> bool {
        self.features.contains(&feature)
    }
}

/// A server as a program describes it, in plaintext unless it says otherwise.
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

    /// Adds a way to secure the connection, for clients that are built with none of those before.
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

    /// Says that the server does this.
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

    /// The same, where no credentials mean those of backends (gRFC A27 as it was first written).
    pub(super) fn build_as_said(mut self, v: &mut Validator) -> Option<ServerConfig> {
        let credentials = &mut self.channel_credentials;
        let says_none = credentials.is_empty();
        // To ask for TLS and get plaintext would be the worst of readings.
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
