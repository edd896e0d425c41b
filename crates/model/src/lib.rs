//! xDS resources as gRPC reads them, and the bootstrap that says where to get them.
//!
//! Parsing turns a proto into a value that cannot be wrong, and reports everything that stands in
//! the way of that, each problem with its field path. No I/O happens here.

mod errors;
mod resource;

pub use errors::{Errors, FieldError, Validator};
pub use resource::{Decoded, ResourceType};
