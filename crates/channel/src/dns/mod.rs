//! Lookups of host names, for clusters whose endpoints are a DNS name (`LOGICAL_DNS`, gRFC A37).
//!
//! [`SystemResolver`] does what other programs on the machine do. Plug in another [`Resolve`] with
//! [`ChannelBuilder::dns_resolver`](crate::ChannelBuilder::dns_resolver):
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//!
//! use crowfly::dns::{Lookup, Resolve, LookupError};
//!
//! /// Knows one host.
//! #[derive(Debug)]
//! struct Fixed;
//!
//! impl Resolve for Fixed {
//!     fn resolve(&self, host: &str) -> Lookup {
//!         let answer = match host {
//!             "backend" => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
//!             _ => Err(LookupError::NoSuchHost),
//!         };
//!         Box::pin(async { answer })
//!     }
//! }
//! ```

mod names;
mod schedule;
mod system;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use thiserror::Error;

pub(crate) use names::Names;
pub use system::SystemResolver;

/// Looks up host names.
///
/// The channel looks a name up once, and again when connections to its addresses fail, but not more than
/// once in 30 seconds. An implementation should not cache answers, because the channel would then get the
/// addresses that have just failed.
pub trait Resolve: Debug + Send + Sync + 'static {
    /// Looks up the addresses of `host`, which may also be an IP address. Connections are tried in the order of the
    /// addresses.
    ///
    /// The future is polled in a tokio runtime, and is dropped when the answer is no longer of interest. The future
    /// should end by itself, because calls may wait for it until it does.
    fn resolve(&self, host: &str) -> Lookup;
}

/// A lookup that is under way.
pub type Lookup = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupError>> + Send>>;

/// The reason why a lookup found no addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The host exists, but has no addresses.
    #[error("no addresses")]
    NoAddresses,
    /// The host does not exist.
    #[error("no such host (NXDOMAIN)")]
    NoSuchHost,
    /// The name server answered with a failure.
    #[error("the name server failed (SERVFAIL)")]
    ServerFailure,
    /// The lookup had no answer for this long.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}
