//! TLS to backends, with settings that the program gives once or that a cluster asks for (gRFC A29).
//!
//! The TLS client itself is in `crowfly-tls`, because the xDS client uses it too. The rules here are for backends
//! alone. With settings of the program no roots are trusted by default, and a backend has to prove the target's name.
//! Settings of a cluster are made for each connection, because its certificates change on disk.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_tls::{FileSource, HandshakeError, Identity, Material, Roots, ServerCheck, TlsError};
use rustls_pki_types::ServerName;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;

use super::dial::Dialled;

/// Settings of TLS to backends.
///
/// The certificate of a backend must chain to a CA given here. The system's roots are not used, because
/// backends of a mesh rarely have certificates of a public CA. A service that trusts all public CAs by
/// accident is less safe than one that fails to connect.
///
/// ```no_run
/// use crowfly::BackendTls;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = BackendTls::new()
///     .ca_pem(std::fs::read("ca.pem")?)?
///     .identity_pem(std::fs::read("client.pem")?, std::fs::read("client.key")?)?
///     .server_name("payments.internal")?;
/// # let _ = tls;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct BackendTls {
    roots: Roots,
    identity: Option<Identity>,
    server_name: Option<ServerName<'static>>,
    config: Option<Arc<ClientConfig>>,
}

impl BackendTls {
    /// No CA and no client certificate yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses a complete rustls configuration instead. The ALPN of the configuration is replaced by `h2`, because gRPC
    /// needs HTTP/2.
    pub fn from_config(config: Arc<ClientConfig>) -> Self {
        Self {
            config: Some(config),
            ..Self::new()
        }
    }

    /// Trusts the CA certificates in a PEM file's contents, besides those given before.
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        self.roots = self.roots.add_pem("CA certificate", pem.as_ref())?;
        Ok(self)
    }

    /// Presents a client certificate: its chain and its private key, both in PEM.
    pub fn identity_pem(
        mut self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Self, TlsError> {
        let identity = Identity::from_pem("client certificate", chain.as_ref(), key.as_ref())?;
        self.identity = Some(identity);
        Ok(self)
    }

    /// Expects backends to prove this name, instead of the target's.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsError> {
        self.server_name = Some(crowfly_tls::server_name(name)?);
        Ok(self)
    }

    pub(super) fn client(&self, authority: &str) -> Result<TlsClient, TlsError> {
        let server_name = match &self.server_name {
            Some(name) => name.clone(),
            None => crowfly_tls::server_name(authority)?,
        };
        Ok(TlsClient::Fixed(Handshake {
            config: self.client_config()?,
            server_name,
        }))
    }

    /// The settings of rustls, which do not depend on the server.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = &self.config {
            return Ok(crowfly_tls::for_h2(Arc::clone(config)));
        }
        let mut material = Material::new(self.roots.clone());
        if let Some(identity) = &self.identity {
            material = material.with_identity(identity.clone());
        }
        let config = material.client_config(&ServerCheck::HostName)?;
        Ok(Arc::new(config))
    }
}

/// TLS with all decisions made.
pub(crate) enum TlsClient {
    /// The settings of a cluster, whose certificates are files.
    Files {
        source: Arc<FileSource>,
        check: ServerCheck,
        /// The name in SNI, if the server is asked for one (gRFC A101).
        sni: Option<ServerName<'static>>,
    },
    /// The settings of the program.
    Fixed(Handshake),
    /// Settings of a cluster that cannot work, for this reason.
    Impossible(Arc<str>),
}

impl TlsClient {
    /// Reads the certificates for one connection. The error is the reason in words.
    pub(super) async fn prepare(&self, server: IpAddr) -> Result<Handshake, String> {
        match self {
            Self::Files { source, check, sni } => {
                let material = source.current().await.map_err(|error| error.to_string())?;
                let config = material.client_config(check);
                let config = config.map_err(|error| error.to_string())?;
                // An IP address is never sent in SNI (RFC 6066, section 3), and the check does not use it.
                let unnamed = || ServerName::IpAddress(server.into());
                Ok(Handshake {
                    config: Arc::new(config),
                    server_name: sni.clone().unwrap_or_else(unnamed),
                })
            }
            Self::Fixed(handshake) => Ok(handshake.clone()),
            Self::Impossible(reason) => Err(reason.to_string()),
        }
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files { .. } => "Files",
            Self::Fixed(_) => "Fixed",
            Self::Impossible(_) => "Impossible",
        })
    }
}

/// The settings of one handshake.
#[derive(Clone)]
pub(crate) struct Handshake {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl Handshake {
    /// True if the server gets a certificate when it asks for one.
    pub(super) fn presents_certificate(&self) -> bool {
        self.config.client_auth_cert_resolver.has_certs()
    }

    pub(super) async fn run(self, dialled: Dialled) -> Result<TlsStream<Dialled>, HandshakeError> {
        crowfly_tls::connect(self.config, self.server_name, dialled).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_ca_the_error_says_that_system_roots_are_not_used() {
        let error = BackendTls::new().client("payments").unwrap_err();
        assert!(
            error.to_string().contains("system's roots are not used"),
            "{error}"
        );
    }

    #[test]
    fn pem_without_a_certificate_is_an_error_that_says_what_was_expected() {
        let error = BackendTls::new().ca_pem("nothing").unwrap_err();
        assert!(error.to_string().starts_with("CA certificate: "), "{error}");
    }

    #[test]
    fn a_server_name_that_is_no_name_is_an_error() {
        let error = BackendTls::new().server_name("not a name").unwrap_err();
        assert!(error.to_string().contains("not a name"), "{error}");
    }
}
