//! Reading of PEM. Every error names the expected item and its file.
//!
//! The errors of the PEM library name neither, and an operator needs both to find the bad file.

use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// At least one certificate.
pub(crate) fn certificates(
    what: &str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| not_pem(what, source))?;
    if found.is_empty() {
        return Err(not_pem(what, PemError::NoItemsFound));
    }
    Ok(found)
}

pub(crate) fn private_key(what: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|source| not_pem(what, source))
}

fn not_pem(what: &str, source: PemError) -> TlsError {
    TlsError::Pem {
        what: what.to_owned(),
        source,
    }
}
