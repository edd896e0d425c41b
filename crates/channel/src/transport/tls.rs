//! TLS to backends, with settings that the program gives once.
//!
//! The TLS client itself is in `crowfly-tls`, because the xDS client uses it too. This module has the rules
//! for backends alone: no roots are trusted by default, and a backend has to prove the target's name.

use std::fmt;
use std::sync::Arc;

use crowfly_tls::{HandshakeError, Identity, Material, Roots, ServerCheck, TlsError};
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

    /// Uses a complete rustls configuration instead. Its ALPN is replaced by `h2`, because gRPC needs HTTP/2.
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
        Ok(TlsClient {
            config: self.client_config()?,
            server_name,
        })
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

/// [`BackendTls`] with all decisions made.
pub(super) struct TlsClient {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl TlsClient {
    pub(super) async fn handshake(
        &self,
        dialled: Dialled,
    ) -> Result<TlsStream<Dialled>, HandshakeError> {
        let (config, name) = (Arc::clone(&self.config), self.server_name.clone());
        crowfly_tls::connect(config, name, dialled).await
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
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
