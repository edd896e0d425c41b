//! The system's trusted CAs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::rustls::RootCertStore;

/// The system's roots, read once for all connections that use them at the same time: they are some
/// hundred certificates, and there may be a client per target (gRFC A71).
pub(super) fn system() -> Result<Arc<RootCertStore>, String> {
    static SHARED: Mutex<Weak<RootCertStore>> = Mutex::new(Weak::new());

    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(roots) = shared.upgrade() {
        return Ok(roots);
    }
    let roots = Arc::new(read()?);
    *shared = Arc::downgrade(&roots);
    Ok(roots)
}

fn read() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(if errors.is_empty() {
        "the system has none".to_owned()
    } else {
        errors.join("; ")
    })
}
