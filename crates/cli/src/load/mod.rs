//! The load generator: calls `UnaryCall` at a steady rate and says what became of each call.
//!
//! Every call ends in one of three ways, and the difference between the last two is the point: *ok*,
//! *lost in flight* (it was sent, then its connection died, and nobody can know whether the server
//! acted on it), or *an error*. A server that dies loses the calls it held; a client that routes well
//! turns that into nothing else.

mod command;
mod generator;
mod outcome;
mod report;
mod stats;
mod target;

pub use command::{LoadArgs, run};
pub use generator::{Generator, LoadOptions, Transport};
pub use outcome::Outcome;
pub use report::{ErrorCount, Latency, Report};
pub use stats::Stats;
pub use target::{LoadError, LoadTarget, LoadTargetError};
