//! The settings of the driver, and their mistakes.
//!
//! A mistake is found before the driver connects, so that it is an error at the start and not a
//! failure of a connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crowfly_tls::{CertificateFiles, RootSource, TlsError};
use thiserror::Error;

/// The addresses and credentials of an etcd, and the limits of what is read from it.
///
/// ```
/// use crowfly_source::etcd::EtcdOptions;
///
/// let options = EtcdOptions::new(["https://etcd-0.example:2379", "https://etcd-1.example:2379"]);
/// assert!(options.validate().is_ok());
/// assert!(EtcdOptions::new(["ftp://etcd.example"]).validate().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members, as `http://host:port`, `https://host:port` or `host:port`. One is used at a time.
    pub endpoints: Vec<String>,
    /// The files of TLS. With them, an endpoint without a scheme is spoken to with TLS.
    pub tls: Option<CertificateFiles>,
    /// The name that the certificate of every member must have, instead of the host in its endpoint.
    pub server_name: Option<String>,
    /// The user of etcd's own authentication.
    pub credentials: Option<Credentials>,
    /// The sign of life that is expected of those who write to the etcd.
    pub heartbeat: Option<Heartbeat>,
    /// The number of keys that are asked for at once.
    pub page: u32,
    /// The limits of a listing, because a reader holds all of it in memory.
    pub limits: Limits,
}

/// A key that somebody writes to again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The key.
    pub key: Bytes,
    /// The longest time without an update of the key. After it another member is asked, because this
    /// one may be cut off from the others.
    pub patience: Duration,
}

/// The largest listing of a prefix that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of keys.
    pub keys: usize,
    /// The bytes of all keys and values.
    pub bytes: usize,
    /// The bytes of one message.
    pub message: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keys: 200_000,
            bytes: 512 << 20,
            message: 16 << 20,
        }
    }
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: Password,
}

/// A password. Its `Debug` does not show it.
#[derive(Clone)]
pub enum Password {
    /// The password itself.
    Given(Arc<str>),
    /// A file that has it. The file is read for each connection; a line feed at its end is left off.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("(hidden)"),
            Self::File(path) => write!(f, "(in {})", path.display()),
        }
    }
}

/// Settings that cannot work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The list of endpoints is empty.
    #[error("endpoints: expected at least one, such as https://etcd.example:2379")]
    NoEndpoint,
    /// An endpoint is not an address.
    #[error(
        "endpoint {endpoint:?}: expected http://HOST:PORT, https://HOST:PORT or HOST:PORT: {reason}"
    )]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The mistake.
        reason: String,
    },
    /// A setting with a number that is out of range.
    #[error("{setting}: expected {expected}, got {found}")]
    Number {
        /// The setting.
        setting: &'static str,
        /// The numbers that it can have.
        expected: &'static str,
        /// The number that was given.
        found: String,
    },
    /// `server_name` cannot be the name of a certificate.
    #[error("server name: {0}")]
    ServerName(#[source] TlsError),
}

/// A member, as it is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// `host:port`.
    pub(super) authority: String,
    pub(super) is_tls: bool,
}

impl EtcdOptions {
    /// These members, without TLS files, credentials and heartbeat.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            server_name: None,
            credentials: None,
            heartbeat: None,
            page: 500,
            limits: Limits::default(),
        }
    }

    /// Tells whether the settings can work.
    ///
    /// # Errors
    /// The first setting that cannot.
    pub fn validate(&self) -> Result<(), EtcdError> {
        self.members()?;
        if !(1..=100_000).contains(&self.page) {
            return Err(EtcdError::Number {
                setting: "page",
                expected: "1 to 100000",
                found: self.page.to_string(),
            });
        }
        if let Some(heartbeat) = &self.heartbeat
            && heartbeat.patience < Duration::from_secs(1)
        {
            return Err(EtcdError::Number {
                setting: "heartbeat",
                expected: "at least 1s",
                found: format!("{:?}", heartbeat.patience),
            });
        }
        if let Some(name) = &self.server_name {
            crowfly_tls::server_name(name).map_err(EtcdError::ServerName)?;
        }
        Ok(())
    }

    pub(super) fn members(&self) -> Result<Vec<Member>, EtcdError> {
        if self.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let members = self.endpoints.iter().map(|endpoint| self.member(endpoint));
        members.collect()
    }

    fn member(&self, endpoint: &str) -> Result<Member, EtcdError> {
        let wrong = |reason: &str| EtcdError::Endpoint {
            endpoint: endpoint.to_owned(),
            reason: reason.to_owned(),
        };
        let (scheme, authority) = match endpoint.split_once("://") {
            Some((scheme, authority)) => (Some(scheme), authority),
            None => (None, endpoint),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let is_tls = match scheme {
            Some("https") => true,
            Some("http") if self.tls.is_some() => {
                return Err(wrong("TLS files are given, and http has no TLS"));
            }
            Some("http") => false,
            Some(other) => return Err(wrong(&format!("unknown scheme {other:?}"))),
            None => self.tls.is_some(),
        };
        if authority.contains(['/', '@', '?', '#']) {
            return Err(wrong("neither a path nor a user has a place in it"));
        }
        let port = authority.rsplit_once(':').map(|(_, port)| port.parse());
        match port {
            Some(Ok(1..=u16::MAX)) => {}
            _ => return Err(wrong("there is no port")),
        }
        crowfly_tls::server_name(authority).map_err(|error| wrong(&error.to_string()))?;
        Ok(Member {
            authority: authority.to_owned(),
            is_tls,
        })
    }

    /// The files of TLS; the roots of the system if there are none.
    pub(super) fn certificate_files(&self) -> CertificateFiles {
        let system = || CertificateFiles::new(RootSource::System);
        self.tls.clone().unwrap_or_else(system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_with_and_without_a_scheme() {
        let member = |endpoint: &str, tls: bool| {
            let mut options = EtcdOptions::new([endpoint]);
            options.tls = tls.then(|| CertificateFiles::new(RootSource::System));
            options.members().map(|members| members[0].clone())
        };
        let is = |authority: &str, is_tls| Member {
            authority: authority.to_owned(),
            is_tls,
        };
        assert_eq!(
            member("etcd.example:2379", false).unwrap(),
            is("etcd.example:2379", false)
        );
        assert_eq!(
            member("etcd.example:2379", true).unwrap(),
            is("etcd.example:2379", true)
        );
        assert_eq!(
            member("https://[::1]:2379/", false).unwrap(),
            is("[::1]:2379", true)
        );
        for (endpoint, tls, reason) in [
            ("http://etcd:2379", true, "http has no TLS"),
            ("etcd", false, "there is no port"),
            ("etcd:0", false, "there is no port"),
            ("ftp://etcd:1", false, "unknown scheme \"ftp\""),
            ("http://me@etcd:1", false, "neither a path nor a user"),
            ("http://et cd:1", false, "server name"),
        ] {
            let error = member(endpoint, tls).unwrap_err().to_string();
            assert!(
                error.contains(endpoint) && error.contains(reason),
                "{error}"
            );
        }
    }

    #[test]
    fn a_password_is_not_in_the_debug_output() {
        let mut options = EtcdOptions::new(["etcd:2379"]);
        options.credentials = Some(Credentials {
            user: "remote".into(),
            password: Password::Given("hunter2".into()),
        });
        let shown = format!("{options:?}");
        assert!(
            shown.contains("remote") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let mut options = EtcdOptions::new(["etcd:2379"]);
        options.page = 0;
        assert!(
            options
                .validate()
                .unwrap_err()
                .to_string()
                .starts_with("page: ")
        );
        options.page = 1;
        options.heartbeat = Some(Heartbeat {
            key: Bytes::new(),
            patience: Duration::ZERO,
        });
        assert!(
            options
                .validate()
                .unwrap_err()
                .to_string()
                .starts_with("heartbeat: ")
        );
    }
}
