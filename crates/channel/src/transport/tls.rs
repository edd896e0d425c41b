//! TLS to backends with fixed settings.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use http::uri::Authority;
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

use super::dial::Dialled;

/// Settings of TLS to backends.
///
/// Certificates that backends present must chain to a CA given here: the system's roots are not
/// used, since backends of a mesh rarely have certificates of a public CA, and a service that
/// trusts all of those by accident is worse off than one that fails to connect.
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
#[derive(Debug)]
pub struct BackendTls {
    roots: RootCertStore,
    identity: Option<Identity>,
    server_name: Option<ServerName<'static>>,
    config: Option<Arc<ClientConfig>>,
}

impl BackendTls {
    /// No CA and no client certificate yet.
    pub fn new() -> Self {
        Self {
            roots: RootCertStore::empty(),
            identity: None,
            server_name: None,
            config: None,
        }
    }

    /// Uses a complete rustls configuration instead. ALPN is set to `h2` whatever it says.
    pub fn from_config(config: Arc<ClientConfig>) -> Self {
        Self {
            config: Some(config),
            ..Self::new()
        }
    }

    /// Trusts the CA certificates in a PEM file's contents, besides those given before.
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        for certificate in certificates("CA certificate", pem.as_ref())? {
            self.roots.add(certificate).map_err(TlsError::Ca)?;
        }
        Ok(self)
    }

    /// Presents a client certificate: its chain and its private key, both in PEM.
    pub fn identity_pem(
        mut self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Self, TlsError> {
        let chain = certificates("client certificate", chain.as_ref())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|source| TlsError::Pem {
            what: "private key",
            source,
        })?;
        self.identity = Some(Identity { chain, key });
        Ok(self)
    }

    /// Expects backends to prove this name, instead of the target's.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsError> {
        self.server_name = Some(parse_name(name)?);
        Ok(self)
    }

    pub(super) fn client(&self, authority: &str) -> Result<TlsClient, TlsError> {
        let server_name = match &self.server_name {
            Some(name) => name.clone(),
            None => parse_name(host_of(authority))?,
        };
        Ok(TlsClient {
            connector: TlsConnector::from(self.client_config()?),
            server_name,
        })
    }

    /// The settings of rustls that are the same for every server.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut config = match &self.config {
            Some(config) => ClientConfig::clone(config),
            None => self.build()?,
        };
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(Arc::new(config))
    }

    fn build(&self) -> Result<ClientConfig, TlsError> {
        if self.roots.is_empty() {
            return Err(TlsError::NoCa);
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_root_certificates(self.roots.clone());
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(TlsError::Identity),
        }
    }
}

impl Default for BackendTls {
    fn default() -> Self {
        Self::new()
    }
}

/// TLS settings that cannot work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A CA certificate that cannot be used as one.
    #[error("CA certificate: {0}")]
    Ca(#[source] rustls::Error),
    /// rustls accepts no such configuration.
    #[error("TLS settings: {0}")]
    Config(#[source] rustls::Error),
    /// A client certificate and key that do not go together.
    #[error("client certificate and private key: {0}")]
    Identity(#[source] rustls::Error),
    /// No CA was given.
    #[error(
        "no CA certificate for backends was given, and the system's roots are not used: \
         call ca_pem() or use from_config()"
    )]
    NoCa,
    /// Something that is not PEM, or holds nothing of the kind.
    #[error("{what}: {source}")]
    Pem {
        /// What was expected.
        what: &'static str,
        /// What is wrong with it.
        source: PemError,
    },
    /// A name that is neither a DNS name nor an IP address.
    #[error("server name {name:?}: {source}")]
    ServerName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
}

/// [`BackendTls`] with all decisions made.
pub(super) struct TlsClient {
    connector: TlsConnector,
    server_name: ServerName<'static>,
}

impl TlsClient {
    pub(super) async fn handshake(&self, dialled: Dialled) -> Result<TlsStream<Dialled>, String> {
        let stream = self
            .connector
            .connect(self.server_name.clone(), dialled)
            .await
            .map_err(|error| format!("{error}{}", hint(&error)))?;
        // gRPC requires ALPN: a server that does not choose h2 would read our preface as nonsense.
        match stream.get_ref().1.alpn_protocol() {
            Some(ALPN_H2) => Ok(stream),
            _ => Err("the server did not choose h2 by ALPN".to_owned()),
        }
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

const ALPN_H2: &[u8] = b"h2";

/// A hint for the reader of the error, if the server's answer to a handshake is no TLS.
fn hint(error: &io::Error) -> &'static str {
    let inner = error.get_ref().and_then(|error| error.downcast_ref());
    match (inner, error.kind()) {
        (Some(rustls::Error::InvalidMessage(_)), _)
        | (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            " (we speak TLS: does the server speak plaintext?)"
        }
        _ => "",
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let error = |source| TlsError::Pem { what, source };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(error)?;
    if found.is_empty() {
        return Err(error(PemError::NoItemsFound));
    }
    Ok(found)
}

fn parse_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    match ServerName::try_from(name) {
        Ok(parsed) => Ok(parsed.to_owned()),
        Err(source) => Err(TlsError::ServerName {
            name: name.to_owned(),
            source,
        }),
    }
}

/// The host of an authority, without port and without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    let Ok(parsed) = authority.parse::<Authority>() else {
        return authority;
    };
    let start = authority.len() - authority.rsplit('@').next().unwrap_or(authority).len();
    let host = &authority[start..start + parsed.host().len()];
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_authority_has_no_port() {
        assert_eq!(host_of("payments"), "payments");
        assert_eq!(host_of("payments:50051"), "payments");
        assert_eq!(host_of("[::1]:443"), "::1");
    }

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
