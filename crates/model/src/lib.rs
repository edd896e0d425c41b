//! xDS resources as gRPC reads them, and the bootstrap that names the servers to get them from.
//!
//! Parsing turns a proto into a valid value, or reports every problem of it, each with its field path.
//! There are two kinds of I/O here. A bootstrap file is read, and the operating system is asked for the
//! number of a network interface that an endpoint's address names.

// No clock, no sleep, no randomness of the process, no runtime: clippy.toml says why.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bootstrap;
mod errors;
mod features;
pub mod grpc;
pub mod names;
mod resource;
mod unsupported;
pub mod wire;

pub use bootstrap::Bootstrap;
pub use errors::{Errors, FieldError, Validator};
pub use features::Features;
pub use resource::{Decoded, ResourceType};
pub use unsupported::Unsupported;
