//! xDS resources as gRPC reads them, and the bootstrap that says where to get them.
//!
//! Parsing turns a proto into a value that cannot be wrong, and reports everything that stands in
//! the way of that, each problem with its field path. The only I/O is the reading of a bootstrap
//! file, and the number of a network interface that the address of an endpoint names.

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
