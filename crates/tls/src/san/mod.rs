//! Servers that prove a subject alternative name (SAN) in place of a host name (gRFC A29).
//!
//! In a mesh the name of a server is its workload identity, such as `spiffe://mesh/payments`. A client
//! reaches the server by an address that no certificate names. So xDS says which names are expected
//! (`match_subject_alt_names`). It is done here, because rustls has no verifier for that.

mod matcher;
mod names;
mod verifier;

pub use matcher::SanMatcher;
pub use names::sans_of;
pub(crate) use verifier::{Expected, SanVerifier};
