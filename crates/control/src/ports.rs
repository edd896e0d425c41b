//! The ports of a control plane, and the machines that can reach them.
//!
//! A port without TLS gives the configuration of all services to anybody who can reach it. So it is
//! on a loopback address, unless the operator says that others are meant to reach it.

use std::net::SocketAddr;

use crowfly_tls::ServerFiles;

use crate::limits::Limits;
use crate::options::StartError;

/// The ports of a control plane.
///
/// ```
/// use crowfly_control::{Limits, Ports};
/// use crowfly_control::tls::ServerFiles;
///
/// # fn main() -> Result<(), std::net::AddrParseError> {
/// let files = ServerFiles::new("control.pem", "control.key").client_ca("ca.pem");
/// let ports = Ports::new("0.0.0.0:18000".parse()?).tls(files).limits(Limits::default());
/// assert_eq!(ports.admin, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ports {
    /// The address for ADS, load reports (LRS), the status of clients (CSDS), health and reflection.
    /// With port 0 the kernel chooses one.
    pub listen: SocketAddr,
    /// The address for the admin pages; `None` for no admin pages. It has no TLS.
    pub admin: Option<SocketAddr>,
    /// The certificates for `listen`; `None` for no TLS.
    pub tls: Option<ServerFiles>,
    /// True if `listen` serves the status of all clients (CSDS) to every client.
    pub csds: bool,
    /// True if ports without TLS may have addresses that other machines can reach.
    pub insecure: bool,
    /// The most that clients may take.
    pub limits: Limits,
}

impl Ports {
    /// A port at this address without TLS, and no admin pages.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            admin: None,
            tls: None,
            csds: true,
            insecure: false,
            limits: Limits::default(),
        }
    }

    /// Adds admin pages at this address.
    pub fn admin(mut self, address: SocketAddr) -> Self {
        self.admin = Some(address);
        self
    }

    /// Serves `listen` with TLS, by these files.
    pub fn tls(mut self, files: ServerFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Leaves out the status of clients (CSDS).
    pub fn without_csds(mut self) -> Self {
        self.csds = false;
        self
    }

    /// Allows ports without TLS that other machines can reach.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Sets the most that clients may take.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Checks that no port without TLS can be reached by accident.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.tls.is_none() {
            self.check_plaintext("ADS", self.listen)?;
        }
        match self.admin {
            Some(admin) => self.check_plaintext("the admin pages", admin),
            None => Ok(()),
        }
    }

    /// Checks the address of a port without TLS.
    pub(crate) fn check_plaintext(
        &self,
        purpose: &'static str,
        address: SocketAddr,
    ) -> Result<(), StartError> {
        if self.insecure || address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(StartError::Exposed { purpose, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-01: an address that is not loopback needs TLS or the operator's word.
    #[test]
    fn ports_without_tls_are_on_loopback() {
        let at = |text: &str| Ports::new(text.parse().unwrap());
        for loopback in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(at(loopback).check().is_ok(), "{loopback}");
        }
        for exposed in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[2001:db8::1]:1"] {
            let refused = at(exposed).check().unwrap_err().to_string();
            assert!(refused.contains(exposed), "{refused}");
            assert!(at(exposed).insecure().check().is_ok());
            let tls = || at(exposed).tls(ServerFiles::new("a", "b"));
            assert!(tls().check().is_ok());
            let admin = tls().admin(exposed.parse().unwrap()).check();
            let refused = admin.unwrap_err().to_string();
            assert!(refused.starts_with("the admin pages"), "{refused}");
        }
    }
}
