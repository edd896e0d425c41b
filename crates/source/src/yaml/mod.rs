//! YAML documents whose errors name file, line and field.
//!
//! Two programs read such files: the control plane and the node agent. An operator reads their errors
//! while something is down, so both say them in the same way.

mod error;
mod reader;
mod tree;

use std::io;
use std::panic::resume_unwind;
use std::thread;

pub use error::{ConfigError, ConfigErrors, Position};
pub use reader::Problem;
pub use tree::{Key, Node, Placed, Value, parse};

/// The stack size of the thread that parses, because both parsers recurse. In a debug build each
/// level of nesting takes some 40 kB. Unused parts of a stack cost nothing.
const STACK: usize = 32 << 20;

/// Runs `work`, which parses documents, on a stack that is large enough for deeply nested ones.
///
/// # Errors
/// The thread cannot be started.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK);
        let worker = thread.spawn_scoped(scope, work)?;
        Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
