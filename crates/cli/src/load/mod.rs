//! The load generator: it calls `UnaryCall` at a steady rate and counts calls by their result.
//!
//! A call ends in one of three ways: *ok*, *lost in flight* or *an error*. A call is lost in flight
//! if its connection broke after it was sent, because the server may have acted on it. The two
//! failures are counted apart. A server that crashes loses its open calls, but a client that routes
//! well sees no error.

mod command;
mod generator;
mod outcome;
mod report;
mod sessions;
mod stats;
mod target;

pub use command::{LoadArgs, run};
pub use generator::{Generator, LoadOptions, Transport};
pub use outcome::Outcome;
pub use report::{ErrorCount, Latency, Report, SessionCounts};
pub use stats::Stats;
pub use target::{LoadError, LoadTarget, LoadTargetError};
