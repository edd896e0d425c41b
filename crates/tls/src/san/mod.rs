//! Servers that prove a subject alternative name (SAN) in place of a host name (gRFC A29).
//!
//! In a mesh the name of a server is its workload identity, such as `spiffe://mesh/payments`. A
//! client reaches the server by an address that no certificate names. So xDS lists the names that a
//! client expects (`match_subject_alt_names`). The check is done here, because rustls has no
//! verifier for those names.

mod matcher;
mod names;
mod verifier;

pub use matcher::SanMatcher;
pub use names::sans_of;
pub(crate) use verifier::{Expected, SanVerifier};
