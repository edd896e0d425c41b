//! The debug service: it shows the state and the balancing trees of every channel in the process.
//!
//! CSDS shows the resources that a client holds, but no connections. So an operator who asks why
//! calls fail needs this second service.
//!
//! The service finds channels through a list of weak references, because it must not keep them alive.
//! Each channel answers from its own task, so all of its trees show the same moment.

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
