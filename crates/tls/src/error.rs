//! The error of TLS settings.
//!
//! The client and the channel share it, so that both report the same reasons.

use std::io;
use std::path::PathBuf;

use rustls_pki_types::InvalidDnsNameError;
use rustls_pki_types::pem::Error as PemError;
use thiserror::Error;
use tokio_rustls::rustls;

/// TLS settings that cannot work.
///
/// ```
/// use crowfly_tls::{Roots, TlsError};
///
/// let error = Roots::default().add_pem("CA certificate", b"nothing").unwrap_err();
/// assert!(matches!(error, TlsError::Pem { .. }));
/// assert!(error.to_string().starts_with("CA certificate: "));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The runtime ended while files were read.
    #[error("reading the certificates was aborted")]
    Aborted,
    /// A CA certificate that cannot be used as one.
    #[error("{what}: {source}")]
    Ca {
        /// The certificate's role, and its file if it came from one.
        what: String,
        /// The reason.
        source: rustls::Error,
    },
    /// CAs with which certificates of clients cannot be verified.
    #[error("CA certificates of clients: {0}")]
    ClientVerifier(#[source] rustls::server::VerifierBuilderError),
    /// Settings that rustls does not accept.
    #[error("TLS settings: {0}")]
    Config(#[source] rustls::Error),
    /// A certificate and a private key that do not belong together, or of a kind that is not supported.
    #[error("{what}: {source}")]
    Identity {
        /// The certificate's role, and its file if it came from one.
        what: String,
        /// The reason.
        source: rustls::Error,
    },
    /// No CA was given, so no server could be trusted.
    #[error(
        "no CA certificate was given, and the system's roots are not used: give the CA of the servers \
         (ca_pem), or a whole rustls configuration (from_config)"
    )]
    NoCa,
    /// Text that is not PEM, or PEM without the item that was expected.
    #[error("{what}: {source}")]
    Pem {
        /// The expected item, and its file if it came from one.
        what: String,
        /// The reason.
        source: PemError,
    },
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A name that is neither a DNS name nor an IP address.
    #[error("server name {name:?}: {source}")]
    ServerName {
        /// The name.
        name: String,
        /// The reason.
        source: InvalidDnsNameError,
    },
    /// The system has no usable roots.
    #[error("no system roots: {0}")]
    SystemRoots(String),
}
