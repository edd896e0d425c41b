//! From RE2's syntax to that of the `regex` crate.
//!
//! The two are nearly the same. Where they differ, a pattern would be refused, or would match other texts without
//! a word. In a class, for example, `[`, `&&`, `--` and `~~` are characters for RE2 and operators for the crate.

use std::iter::Peekable;
use std::str::Chars;

use super::InvalidRegex;

/// The pattern in the syntax of the `regex` crate. Its parentheses are balanced, so that it can be put into others.
pub(super) fn translate(pattern: &str) -> Result<String, InvalidRegex> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        written: String::with_capacity(pattern.len()),
        depth: 0,
    };
    while let Some(c) = translation.rest.next() {
        translation.outside_class(c)?;
    }
    match translation.depth {
        0 => Ok(translation.written),
        _ => Err(InvalidRegex("unclosed group".to_owned())),
    }
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    written: String,
    /// The number of open groups.
    depth: usize,
}

impl Translation<'_> {
    fn outside_class(&mut self, c: char) -> Result<(), InvalidRegex> {
        match c {
            '(' => self.depth += 1,
            ')' => {
                let depth = self.depth.checked_sub(1);
                self.depth = depth.ok_or_else(|| InvalidRegex("unopened group".to_owned()))?;
            }
            '[' => return self.class(),
            '\\' => return self.escape(),
            '{' if !self.is_repetition() => {
                self.literal('{');
                return Ok(());
            }
            _ => {}
        }
        self.written.push(c);
        Ok(())
    }

    /// True if `{` begins `{n}`, `{n,}` or `{n,m}`. In RE2 any other `{` is a character.
    fn is_repetition(&self) -> bool {
        let ahead = self.ahead();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match ahead
            .split_once('}')
            .map(|(count, _)| (count, count.split_once(',')))
        {
            Some((_, Some((least, most)))) => {
                is_number(least) && (most.is_empty() || is_number(most))
            }
            Some((count, None)) => is_number(count),
            None => false,
        }
    }

    /// The next characters. No count and no name of a class is longer, and more would make a hostile pattern
    /// costly.
    fn ahead(&self) -> String {
        self.rest.clone().take(32).collect()
    }

    fn escape(&mut self) -> Result<(), InvalidRegex> {
        match self.rest.next() {
            None => return Err(InvalidRegex("trailing \\".to_owned())),
            Some('Q') => self.quotation(),
            // Any byte.
            Some('C') => self.written.push_str("(?s:.)"),
            // In the crate these are borders of words.
            Some(c @ ('<' | '>')) => self.written.push(c),
            Some(c) => self.escaped(c),
        }
        Ok(())
    }

    /// `\Q...\E`, or to the end: characters, whatever they are.
    fn quotation(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(c);
        }
    }

    fn class(&mut self) -> Result<(), InvalidRegex> {
        self.written.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.written.push('^');
        }
        let mut is_first = true;
        loop {
            match self.rest.next() {
                None => return Err(InvalidRegex("unclosed character class".to_owned())),
                Some(']') if !is_first => break,
                Some(c) => self.class_item(c)?,
            }
            is_first = false;
        }
        self.written.push(']');
        Ok(())
    }

    /// A character or a class of its own, or a range of characters.
    fn class_item(&mut self, c: char) -> Result<(), InvalidRegex> {
        if c == '[' && self.named_class()? {
            return Ok(());
        }
        if self.class_character(c)? == Item::Class {
            return Ok(());
        }
        let mut ahead = self.rest.clone();
        let is_range = ahead.next() == Some('-') && !matches!(ahead.next(), None | Some(']'));
        if is_range {
            self.written.push('-');
            self.rest.next();
            if let Some(end) = self.rest.next() {
                self.class_character(end)?;
            }
        }
        Ok(())
    }

    fn class_character(&mut self, c: char) -> Result<Item, InvalidRegex> {
        if c != '\\' {
            self.literal(c);
            return Ok(Item::Character);
        }
        match self.rest.next() {
            None => return Err(InvalidRegex("trailing \\".to_owned())),
            Some(c @ ('<' | '>')) => self.written.push(c),
            Some(c) => self.escaped(c),
        }
        let is_class = self.written.ends_with(['d', 'D', 's', 'S', 'w', 'W']);
        Ok(if is_class {
            Item::Class
        } else {
            Item::Character
        })
    }

    /// `[:name:]` or `[:^name:]`, after its `[`. Without a `:]` the `[` is a character.
    fn named_class(&mut self) -> Result<bool, InvalidRegex> {
        let ahead = self.ahead();
        let Some((name, _)) = ahead
            .strip_prefix(':')
            .and_then(|rest| rest.split_once(":]"))
        else {
            return Ok(false);
        };
        if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            let reason = format!("unknown character class [:{name}:]");
            return Err(InvalidRegex(reason));
        }
        self.written.push_str(&format!("[:{name}:]"));
        self.rest.nth(name.chars().count() + 2);
        Ok(true)
    }

    fn escaped(&mut self, c: char) {
        self.written.push('\\');
        self.written.push(c);
    }

    /// A character that stands for itself.
    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.written.push('\\');
        }
        self.written.push(c);
    }
}

/// An item of a class. A class in it cannot begin a range.
#[derive(PartialEq, Eq)]
enum Item {
    Character,
    Class,
}

const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

#[cfg(test)]
mod tests {
    use crate::grpc::SafeRegex;

    /// RE2's syntax page: patterns that the `regex` crate alone would read in another way, or refuse.
    #[test]
    fn patterns_are_read_as_re2_reads_them() {
        for (pattern, matching, other) in [
            ("[a[b]", &["a", "[", "b"][..], &["]"][..]),
            ("[a[b]]", &["a]", "[]"], &["a", "b"]),
            ("[a&&b]", &["a", "&", "b"], &["c"]),
            ("[a~~b]", &["~"], &["c"]),
            ("[+--]", &["+", ",", "-"], &["."]),
            ("[--0]", &["-", ".", "0"], &["1"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[a-c-]", &["b", "-"], &["d"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[^]a]", &["b"], &["]", "a"]),
            (r"[\]a]", &["]"], &["b"]),
            ("[[:alpha:]_]", &["x", "_"], &["1", ":"]),
            ("[[:^digit:]]", &["x"], &["1"]),
            ("[[:a]", &["[", ":", "a"], &["b"]),
            (r"[\d-]", &["1", "-"], &["x"]),
            (r"[\d-x]", &["1", "-", "x"], &["a"]),
            ("a{", &["a{"], &["a"]),
            ("a{,2}", &["a{,2}"], &["aa"]),
            ("a{2,}", &["aa", "aaa"], &["a"]),
            ("a{2}", &["aa"], &["a{2}"]),
            ("{a}", &["{a}"], &["a"]),
            (r"\Qa.b*\Ec", &["a.b*c"], &["axbc"]),
            (r"\Q(\", &[r"(\"], &["("]),
            (r"\<a\>", &["<a>"], &["a"]),
            (r"a\Cb", &["axb", "a\nb"], &["ab"]),
            ("(?i)Get", &["GET", "get"], &["got"]),
            (r"\d+", &["42"], &["4 2", "x"]),
        ] {
            let regex: SafeRegex = match pattern.parse() {
                Ok(regex) => regex,
                Err(error) => panic!("{pattern}: {error}"),
            };
            for text in matching {
                assert!(regex.matches(text.as_bytes()), "{pattern} on {text}");
            }
            for text in other {
                assert!(!regex.matches(text.as_bytes()), "{pattern} on {text}");
            }
        }
    }

    #[test]
    fn patterns_that_re2_refuses_are_refused_in_one_line() {
        for (pattern, reason) in [
            ("(", "unclosed group"),
            ("a)(b", "unopened group"),
            ("[a", "unclosed character class"),
            ("[]", "unclosed character class"),
            ("[[:nose:]]", "unknown character class [:nose:]"),
            (r"a\", "trailing \\"),
            ("*", "repetition operator missing expression"),
            (
                "a{2,1}",
                "invalid repetition count range, the start must be <= the end",
            ),
            (
                "[a--]",
                "invalid character class range, the start must be <= the end",
            ),
            (r"\1", "backreferences are not supported"),
            (
                "(?=a)",
                "look-around, including look-ahead and look-behind, is not supported",
            ),
            ("(a{1000}){1000}", "it takes more than 1048576 bytes"),
        ] {
            let error = pattern.parse::<SafeRegex>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{pattern}");
        }
    }
}
