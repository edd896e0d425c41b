//! The one choice of cryptography.
//!
//! rustls can take its provider from a variable of the process. Crowfly never does, because a library
//! must not depend on which other library set that variable first.

use std::sync::{Arc, LazyLock};

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// The provider of all TLS in Crowfly: ring.
///
/// ```
/// assert!(!crowfly_tls::provider().cipher_suites.is_empty());
/// ```
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// Makes ring the process's provider if it has none, for libraries that use that variable. A provider
/// that the program has chosen already stays.
///
/// ```
/// crowfly_tls::install_default_provider();
/// crowfly_tls::install_default_provider();
/// ```
pub fn install_default_provider() {
    // The only error is that there is a provider already.
    let _ = ring::default_provider().install_default();
}
