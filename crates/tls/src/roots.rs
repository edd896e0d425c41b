//! The CAs that may have issued the certificates of servers.
//!
//! There are no default roots, because each user of this crate must choose the CAs that it trusts.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::rustls::RootCertStore;

use crate::{TlsError, pem};

/// CAs to trust. By default there are none, and settings without roots are refused.
///
/// ```no_run
/// use crowfly_tls::Roots;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let of_the_mesh = Roots::default().add_pem("CA certificate", &std::fs::read("ca.pem")?)?;
/// let of_the_system = Roots::system()?;
/// # let _ = (of_the_mesh, of_the_system);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// The system's roots.
    ///
    /// The system has a hundred certificates or more, and there may be a client per target (gRFC A71). So the roots are
    /// read once for all clients that use them at the same time.
    pub fn system() -> Result<Self, TlsError> {
        static SHARED: Mutex<Weak<RootCertStore>> = Mutex::new(Weak::new());

        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(roots) = shared.upgrade() {
            return Ok(Self(roots));
        }
        let roots = Arc::new(read_system()?);
        *shared = Arc::downgrade(&roots);
        Ok(Self(roots))
    }

    /// Trusts the certificates in `pem` too. `what` names them in errors.
    pub fn add_pem(mut self, what: &str, pem: &[u8]) -> Result<Self, TlsError> {
        let roots = Arc::make_mut(&mut self.0);
        for certificate in pem::certificates(what, pem)? {
            roots.add(certificate).map_err(|source| TlsError::Ca {
                what: what.to_owned(),
                source,
            })?;
        }
        Ok(self)
    }

    pub(crate) fn store(&self) -> Result<Arc<RootCertStore>, TlsError> {
        if self.0.is_empty() {
            return Err(TlsError::NoCa);
        }
        Ok(Arc::clone(&self.0))
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self(Arc::new(RootCertStore::empty()))
    }
}

impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.roots == other.0.roots
    }
}

impl Eq for Roots {}

fn read_system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have certificates that rustls refuses. Those certificates are left out, because the others are
    // enough.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(TlsError::SystemRoots(if errors.is_empty() {
        "the system has none".to_owned()
    } else {
        errors.join("; ")
    }))
}
