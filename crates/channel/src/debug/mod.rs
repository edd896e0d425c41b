//! What the channels of this process are doing, for someone who looks from outside.
//!
//! Channels are found through a list of weak references, and asked one by one: each answers from
//! its own task, so what it shows is one moment of it.

mod convert;
mod registry;
mod service;

pub(crate) use registry::register;
pub use service::{DebugService, debug_service};

/// The service on the wire: messages, client and server.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated from proto/crowfly/debug/v1/debug.proto; tests/codegen.rs keeps it so"
)]
pub mod v1 {
    include!("generated/crowfly.debug.v1.rs");
}
