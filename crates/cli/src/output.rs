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

/// Text from elsewhere, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
    }
    clean
}
