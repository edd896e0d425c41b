//! Gives the same calls to gRPC C-core and to our channel, and compares what becomes of them.
//!
//! Both clients are served by one control plane and call the same backends, because a difference can
//! then only come from the clients.
//!
//! ```text
//!            ┌─> C-core client ─┐
//! Call list ─┤                  ├─> Backends, which do as each call's Script says
//!            └─> our channels ──┘
//! ```

mod backends;
mod calls;
mod rig;

pub use backends::{Attempt, Backends};
pub use calls::{Call, Outcome, Script};
pub use rig::{Both, Rig};
