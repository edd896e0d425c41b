//! Credentials of a connection to an xDS server, and of the calls on it.
//!
//! A bootstrap lists them in order of preference, and a client takes the first that it supports.

use std::{path::PathBuf, time::Duration};

/// The way in which the connection to an xDS server is secured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ChannelCredentials {
    /// TLS with the system's roots, and a token of Google's application default credentials with
    /// every call (gRFC A27). Not every client is built with it.
    GoogleDefault,
    /// The connection is not secured: plaintext.
    Insecure,
    /// TLS (gRFC A65).
    Tls(TlsFiles),
}

impl ChannelCredentials {
    /// The name of the credentials in a bootstrap.
    pub fn name(&self) -> &'static str {
        match self {
            Self::GoogleDefault => "google_default",
            Self::Insecure => "insecure",
            Self::Tls(_) => "tls",
        }
    }
}

/// The files that TLS is set up from (gRFC A65). With none, servers are checked against the
/// system's roots and the client shows no certificate.
///
/// ```
/// # use crowfly_model::bootstrap::TlsFiles;
/// let files = TlsFiles::default()
///     .ca_certificate("/etc/xds/ca.pem")
///     .identity("/etc/xds/client.pem", "/etc/xds/client.key");
/// assert_eq!(files.refresh_interval.as_secs(), 600);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[must_use]
pub struct TlsFiles {
    /// The CAs to trust, in PEM. If unset, the CAs of the system are trusted.
    pub ca_certificate: Option<PathBuf>,
    /// The certificate that the client presents to servers, with its key; `None` if it presents none.
    pub identity: Option<IdentityFiles>,
    /// The time between two readings of the files.
    pub refresh_interval: Duration,
}

impl TlsFiles {
    /// Trusts the CAs in this file instead of the system's.
    pub fn ca_certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_certificate = Some(path.into());
        self
    }

    /// Shows servers a certificate.
    pub fn identity(
        mut self,
        certificate: impl Into<PathBuf>,
        private_key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some(IdentityFiles {
            certificate: certificate.into(),
            private_key: private_key.into(),
        });
        self
    }

    /// Sets the time between two readings of the files.
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }
}

impl Default for TlsFiles {
    fn default() -> Self {
        Self {
            ca_certificate: None,
            identity: None,
            refresh_interval: Duration::from_secs(600),
        }
    }
}

/// A client certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityFiles {
    /// The certificate, and the certificates between it and its CA.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub private_key: PathBuf,
}

/// The way in which calls to an xDS server are authenticated, in addition to the credentials of the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallCredentials {
    /// A JSON web token in a file, which is read again before the token expires (gRFC A97).
    JwtTokenFile(PathBuf),
}
