//! The settings of a control plane, and the reasons why it does not start. They are types of the
//! library, so that a program can run a control plane without the command.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crowfly_source::yaml::ConfigErrors;
use crowfly_tls::TlsError;
use thiserror::Error;

use crate::ports::Ports;

/// The time between two load reports of a client, if nothing else is set.
pub const DEFAULT_LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The settings of a control plane.
///
/// ```
/// use crowfly_control::{Options, Ports};
///
/// # fn main() -> Result<(), std::net::AddrParseError> {
/// let ports = Ports::new("127.0.0.1:0".parse()?);
/// let options = Options { allow_empty: true, ..Options::new("control.yaml", ports) };
/// assert_eq!(options.load_report_interval.as_secs(), 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// A file, or a directory of `*.yaml`, `*.yml` and `*.json` files.
    pub config: PathBuf,
    /// True if files without content are accepted. They are refused otherwise, because a file is
    /// empty for a moment while it is rewritten.
    pub allow_empty: bool,
    /// True if resources that gRPC clients refuse are served. They are refused otherwise, because clients would go on
    /// with what they have, or fail.
    pub force: bool,
    /// The ports, and the most that clients may take.
    pub ports: Ports,
    /// The time between two load reports of a client, at least a second;
    /// [`DEFAULT_LOAD_REPORT_INTERVAL`] if there is no reason for another.
    pub load_report_interval: Duration,
    /// The type URLs for which a first request without names asks for nothing. For other types it
    /// asks for all resources, as Envoys do. gRPC clients never mean that.
    pub named_only: BTreeSet<String>,
}

impl Options {
    /// This configuration on these ports, and the usual settings.
    pub fn new(config: impl Into<PathBuf>, ports: Ports) -> Self {
        Self {
            config: config.into(),
            allow_empty: false,
            force: false,
            ports,
            load_report_interval: DEFAULT_LOAD_REPORT_INTERVAL,
            named_only: BTreeSet::new(),
        }
    }
}

/// The reason why a control plane could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A port without TLS has an address that other machines can reach, and the options do not
    /// allow it.
    #[error(
        "{purpose} on {address} would be without TLS, and other machines can reach it: give \
         certificates (ADS alone has TLS), listen on a loopback address such as 127.0.0.1, or allow \
         insecure ports"
    )]
    Exposed {
        /// The purpose of the port.
        purpose: &'static str,
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The reflection service cannot be built.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
