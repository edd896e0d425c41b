//! Standard output. It holds the result of a command and nothing else, because scripts read it.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Prints a line. Unlike `println!` it does not panic when the reader has closed the pipe (`crowfly
/// ... | head`).
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Escapes control characters, because a terminal would obey them and the text comes from other
/// processes.
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
