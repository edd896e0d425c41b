//! Bounds the texts of clients that are kept and logged, because a client may send megabytes.

/// The most bytes that are kept of a client's reason for a refusal, and of a version that it names.
const MOST: usize = 4 << 10;

/// Cuts a text that is too long, and says in it how much is missing.
pub(crate) fn cut(text: &mut String) {
    let length = text.len();
    if length <= MOST {
        return;
    }
    let mut ends = (0..=MOST).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let end = end.unwrap_or_default();
    *text = format!("{} [{} more bytes]", &text[..end], length - end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_how_much_is_missing() {
        let mut short = "ä".repeat(MOST / 2);
        let whole = short.clone();
        cut(&mut short);
        assert_eq!(short, whole);
        let mut long = format!("a{}", "ä".repeat(1 << 20));
        cut(&mut long);
        let (kept, told) = long.split_at(MOST - 1);
        assert!(kept.ends_with('ä'));
        assert_eq!(told, " [2093058 more bytes]");
    }
}
