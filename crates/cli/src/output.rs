//! Standard output, for what a command reports.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Prints a line. That nobody reads it any more (`crowfly ... | head`) is no reason to panic, as
/// `println!` would.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}
