//! The flags for the ports of a control plane, and for their TLS. Ports without TLS are on loopback
//! unless a flag allows more.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use clap::Args;
use crowfly_control::{Limits, Ports, tls::ServerFiles};

use crate::args;

/// The ports of `crowfly control`.
#[derive(Args, Clone, Debug)]
pub struct PortArgs {
    /// The address for ADS, LRS, health and reflection; port 0 lets the kernel choose one, and :PORT is
    /// on every IPv4 address. An address that other machines can reach needs --tls-cert or
    /// --insecure-listen
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:18000",
        value_parser = args::listen_address,
        env = "CROWFLY_CONTROL_LISTEN"
    )]
    pub listen: SocketAddr,

    /// The address for the admin pages, or `off`. They have no TLS, so an address that other machines
    /// can reach needs --insecure-listen
    #[arg(
        long,
        value_name = "ADDR|off",
        default_value = "127.0.0.1:18001",
        env = "CROWFLY_CONTROL_ADMIN"
    )]
    pub admin: AdminPort,

    /// Serve --listen with TLS: the certificate with its chain, as PEM. A changed file is used for new
    /// connections after 10 s, or at once on SIGHUP
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "CROWFLY_CONTROL_TLS_CERT"
    )]
    pub tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert, as PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "CROWFLY_CONTROL_TLS_KEY"
    )]
    pub tls_key: Option<PathBuf>,

    /// Refuse clients without a certificate of these CAs (mTLS), as PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "CROWFLY_CONTROL_TLS_CLIENT_CA"
    )]
    pub tls_client_ca: Option<PathBuf>,

    /// Do not serve the status of clients (CSDS), which shows every client to all who reach --listen
    #[arg(long, env = "CROWFLY_CONTROL_NO_CSDS")]
    pub no_csds: bool,

    /// Let other machines reach ports without TLS: everyone who reaches them can read the whole configuration
    /// and report loads
    #[arg(long, env = "CROWFLY_CONTROL_INSECURE_LISTEN")]
    pub insecure_listen: bool,
}

impl PortArgs {
    /// The ports that the flags set.
    pub fn ports(&self, limits: Limits) -> Ports {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let mut files = ServerFiles::new(certificate, key);
                files.client_ca.clone_from(&self.tls_client_ca);
                Some(files)
            }
            _ => None,
        };
        Ports {
            listen: self.listen,
            admin: match self.admin {
                AdminPort::At(address) => Some(address),
                AdminPort::Off => None,
            },
            tls,
            csds: !self.no_csds,
            insecure: self.insecure_listen,
            limits,
        }
    }
}

/// The address of the admin pages, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminPort {
    /// The address of the pages.
    At(SocketAddr),
    /// There are no pages.
    Off,
}

impl FromStr for AdminPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => args::listen_address(address)
                .map(Self::At)
                .map_err(|error| format!("{error}, or off")),
        }
    }
}
