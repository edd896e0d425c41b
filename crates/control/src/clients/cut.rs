//! Bounds the texts of clients that are kept and logged, because a client may send megabytes.

use std::borrow::Cow;

/// The most bytes that are kept of a client's reason for a refusal, and of a version that it names.
const KEPT: usize = 4 << 10;

/// The most bytes that the log has of a text of a client. `/clients` shows what is kept.
const LOGGED: usize = 300;

/// Cuts a text that is too long to be kept, and says in it how much is missing.
pub(crate) fn cut(text: &mut String) {
    if let Cow::Owned(short) = shortened(text, KEPT) {
        *text = short;
    }
}

/// A text for the log.
pub(crate) fn logged(text: &str) -> Cow<'_, str> {
    shortened(text, LOGGED)
}

fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.len();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let mut ends = (0..=most).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let end = end.unwrap_or_default();
    Cow::Owned(format!("{} [{} more bytes]", &text[..end], length - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_how_much_is_missing() {
        let mut short = "ä".repeat(KEPT / 2);
        let whole = short.clone();
        cut(&mut short);
        assert_eq!(short, whole);
        let mut long = format!("a{}", "ä".repeat(1 << 20));
        cut(&mut long);
        let (kept, told) = long.split_at(KEPT - 1);
        assert!(kept.ends_with('ä'));
        assert_eq!(told, " [2093058 more bytes]");
        assert_eq!(logged("no"), "no");
        let line = logged(&long).into_owned();
        assert!(line.ends_with("ä [3817 more bytes]"), "{line}");
    }
}
