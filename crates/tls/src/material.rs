//! Roots and certificates, apart from their source.
//!
//! Certificates come from files, from PEM in memory and, for servers, from other sources. All of them become
//! a [`Material`], so that one function makes the settings of rustls.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::handshake::offer_h2;
use crate::san::{Expected, SanVerifier};
use crate::{Roots, SanMatcher, TlsError, pem, provider};

/// The roots to trust, and the certificate to present if there is one.
///
/// Two are equal if connections with them are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    roots: Roots,
    identity: Option<Identity>,
}

impl Material {
    /// Trusts `roots`, and presents no certificate.
    pub fn new(roots: Roots) -> Self {
        Self {
            roots,
            identity: None,
        }
    }

    /// Presents this certificate.
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The settings of a client for HTTP/2.
    ///
    /// Make new settings when the material or the check changes. The settings hold TLS sessions, and
    /// rustls does not verify a certificate again when it resumes a session.
    ///
    /// ```
    /// use crowfly_tls::{Material, Roots, ServerCheck, TlsError};
    ///
    /// let no_roots = Material::new(Roots::default());
    /// let error = no_roots.client_config(&ServerCheck::HostName).unwrap_err();
    /// assert!(matches!(error, TlsError::NoCa));
    /// ```
    pub fn client_config(&self, check: &ServerCheck) -> Result<ClientConfig, TlsError> {
        let roots = self.roots.store()?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?;
        let builder = match check {
            ServerCheck::HostName => builder.with_root_certificates(roots),
            ServerCheck::DnsName(name) => {
                let verifier = SanVerifier::new(roots, Expected::DnsName(Arc::clone(name)));
                let verifier = Arc::new(verifier);
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
            ServerCheck::SubjectAltNames(matchers) => {
                let verifier = SanVerifier::new(roots, Expected::AnyOf(Arc::clone(matchers)));
                let verifier = Arc::new(verifier);
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity(key)) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(key))))
            }
        };
        offer_h2(&mut config);
        Ok(config)
    }
}

/// The names that a server's certificate must prove, after its chain has been verified.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerCheck {
    /// A DNS name, which need not be the name that the connection was made for (gRFC A101).
    DnsName(Arc<str>),
    /// The host name or IP address that the connection was made for.
    HostName,
    /// Any subject alternative name that one of these matchers accepts, in place of the host name
    /// (gRFC A29's `match_subject_alt_names`). Without matchers, every certificate of a trusted root will
    /// do.
    SubjectAltNames(Arc<[Box<dyn SanMatcher>]>),
}

/// A certificate chain with its private key.
///
/// Two identities are equal if their chains are, because a key that fits the same certificate is the same key.
#[derive(Clone, Debug)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// Reads a chain and its key from PEM. A key that does not belong to the certificate is an error, because then a
    /// rotation of two files is half done.
    ///
    /// `what` names the certificate in errors.
    ///
    /// ```
    /// use crowfly_tls::Identity;
    ///
    /// let error = Identity::from_pem("client certificate", b"", b"").unwrap_err();
    /// assert!(error.to_string().starts_with("client certificate: "));
    /// ```
    pub fn from_pem(what: &str, chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = pem::certificates(what, chain)?;
        let key = pem::private_key(&format!("private key of {what}"), key)?;
        let certified = CertifiedKey::from_der(chain, key, &provider());
        let certified = certified.map_err(|source| TlsError::Identity {
            what: what.to_owned(),
            source,
        })?;
        Ok(Self(Arc::new(certified)))
    }

    pub(crate) fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.0
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.cert == other.0.cert
    }
}

impl Eq for Identity {}
