//! The verifier of certificates that rustls calls.
//!
//! It replaces rustls's own, because that can check host names only.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use thiserror::Error;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::SanMatcher;
use super::matcher::{accepts, is_dns_match};
use super::names::{Name, subject_alt_names};
use crate::provider;

/// Verifies a server's chain as rustls does, and then its names by matchers.
///
/// The verifier ignores the name that the connection was made for, because gRFC A29 and A101 expect
/// others.
#[derive(Debug)]
pub(crate) struct SanVerifier {
    roots: Arc<RootCertStore>,
    expected: Expected,
    provider: Arc<CryptoProvider>,
}

/// The names that a server may have.
#[derive(Debug)]
pub(crate) enum Expected {
    /// A name that one of the matchers accepts. Without matchers, the certificate may have any
    /// names or none.
    AnyOf(Arc<[Box<dyn SanMatcher>]>),
    /// A certificate for this DNS name (gRFC A101).
    DnsName(Arc<str>),
}

impl Expected {
    fn accepts(&self, name: &Name) -> bool {
        match (self, name) {
            (Self::AnyOf(matchers), name) => matchers.iter().any(|m| accepts(&**m, name)),
            (Self::DnsName(expected), Name::Dns(presented)) => is_dns_match(expected, presented),
            (Self::DnsName(_), Name::Other(_)) => false,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyOf(matchers) => f.write_str(&joined(matchers.iter())),
            Self::DnsName(name) => write!(f, "DNS name {name}"),
        }
    }
}

impl SanVerifier {
    pub(crate) fn new(roots: Arc<RootCertStore>, expected: Expected) -> Self {
        Self {
            roots,
            expected,
            provider: provider(),
        }
    }

    fn check_names(&self, certificate: &CertificateDer<'_>) -> Result<(), CertificateError> {
        if matches!(&self.expected, Expected::AnyOf(matchers) if matchers.is_empty()) {
            return Ok(());
        }
        let names = subject_alt_names(certificate).map_err(|_| CertificateError::BadEncoding)?;
        if names.iter().any(|name| self.expected.accepts(name)) {
            return Ok(());
        }
        let mismatch = SanMismatch {
            presented: joined(names.iter().map(Name::text)),
            expected: self.expected.to_string(),
        };
        Err(CertificateError::Other(OtherError(Arc::new(mismatch))))
    }
}

impl ServerCertVerifier for SanVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        self.check_names(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The error for a certificate of a trusted CA without a name that the matchers accept.
#[derive(Debug, Error)]
#[error(
    "no subject alternative name matches: expected {expected}; the certificate has {presented}"
)]
struct SanMismatch {
    expected: String,
    presented: String,
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(", ")
    }
}
