//! Servers that prove a subject alternative name (SAN) in place of a host name (gRFC A29).
//!
//! In a mesh a server is known by its workload identity, such as `spiffe://mesh/payments`, and a client
//! reaches it by an address that no certificate names. So xDS says which names are expected
//! (`match_subject_alt_names`), and rustls has no verifier for that.

mod matcher;
mod names;
mod verifier;

pub use matcher::{InvalidSanMatcher, SanMatcher, SanPattern};
pub(crate) use verifier::SanVerifier;
