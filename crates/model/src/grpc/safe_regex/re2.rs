//! From RE2's syntax to that of the `regex` crate.
//!
//! The two are nearly the same. Where the two differ, the crate would refuse a pattern, or match other texts without an
//! error. In a class, for example, `[`, `&&`, `--` and `~~` are characters for RE2 and operators for the crate.
//!
//! Texts are ASCII (gRPC's Custom-Metadata), so a character beyond ASCII needs no more than to match none of them.

mod repetition;
mod unicode;

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use self::repetition::Counts;
use super::InvalidRegex;

/// The pattern in the syntax of the `regex` crate. The parentheses of the pattern are balanced, so that it can be put
/// into others.
pub(super) fn translate(pattern: &str) -> Result<String, InvalidRegex> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        written: String::with_capacity(pattern.len()),
        counts: Counts::default(),
    };
    while let Some(c) = translation.rest.next() {
        translation.outside_class(c)?;
    }
    if translation.counts.is_in_group() {
        return Err(InvalidRegex("unclosed group".to_owned()));
    }
    Ok(translation.written)
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    written: String,
    counts: Counts,
}

impl Translation<'_> {
    fn outside_class(&mut self, c: char) -> Result<(), InvalidRegex> {
        match c {
            '(' => return self.group(),
            ')' => self.counts.close()?,
            '*' | '+' | '?' => {
                self.counts.repeat(None)?;
                self.repetition(&c.to_string());
                return Ok(());
            }
            '{' => return self.brace(),
            _ => self.counts.atom(),
        }
        match c {
            '[' => return self.class(),
            '\\' => return self.escape(),
            _ => self.written.push(c),
        }
        Ok(())
    }

    /// The beginning of a group. The crate has flags that RE2 does not.
    fn group(&mut self) -> Result<(), InvalidRegex> {
        self.counts.open();
        self.written.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.written.push('?');
        let ahead = self.ahead();
        let mut flags = ahead
            .chars()
            .take_while(|c| c.is_ascii_alphabetic() || *c == '-');
        match flags.find(|flag| matches!(flag, 'R' | 'u' | 'x')) {
            Some(flag) => Err(InvalidRegex(format!("unknown flag {flag}"))),
            None => Ok(()),
        }
    }

    /// `{n}`, `{n,}` or `{n,m}`. In RE2 any other `{` is a character.
    fn brace(&mut self) -> Result<(), InvalidRegex> {
        let ahead = self.ahead();
        let Some((inside, range)) = repetition::range(&ahead) else {
            self.counts.atom();
            self.literal('{');
            return Ok(());
        };
        self.counts.repeat(Some(range))?;
        self.rest.nth(inside.len());
        self.repetition(&format!("{{{inside}}}"));
        Ok(())
    }

    /// Writes a repetition, and the `?` after it that makes it match as little as it can.
    fn repetition(&mut self, operator: &str) {
        self.written.push_str(operator);
        if self.rest.next_if_eq(&'?').is_some() {
            self.written.push('?');
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
            Some(c @ ('A' | 'b' | 'B' | 'z')) => self.escaped(c),
            Some(c) => {
                self.escaped_item(c, Place::Outside)?;
            }
        }
        Ok(())
    }

    /// An escape that may be in a class, too.
    fn escaped_item(&mut self, c: char, place: Place) -> Result<Item, InvalidRegex> {
        match c {
            'd' | 'D' | 'w' | 'W' => self.escaped(c),
            // In the crate \s has the vertical tab, too.
            's' => self.written.push_str(r"[\t\n\f\r ]"),
            'S' => self.written.push_str(r"[^\t\n\f\r ]"),
            'p' | 'P' => self.unicode_group(c == 'P')?,
            _ => {
                self.escaped_character(c, place)?;
                return Ok(Item::Character);
            }
        }
        Ok(Item::Class)
    }

    fn escaped_character(&mut self, c: char, place: Place) -> Result<(), InvalidRegex> {
        match c {
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => self.escaped(c),
            '0'..='7' => {
                let code = self.octal(c)?;
                self.code(code, place);
            }
            'x' => {
                let code = self.hexadecimal()?;
                self.code(code, place);
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c),
            c => return Err(InvalidRegex(format!("unknown escape \\{c}"))),
        }
        Ok(())
    }

    /// Up to three octal digits, of which `first` is the first one.
    fn octal(&mut self, first: char) -> Result<u32, InvalidRegex> {
        let digit = |c: char| c.to_digit(8);
        let is_number = first == '0' || self.rest.peek().copied().and_then(digit).is_some();
        if !is_number {
            let reason = "backreferences are not supported";
            return Err(InvalidRegex(reason.to_owned()));
        }
        let mut code = digit(first).unwrap_or_default();
        for _ in 0..2 {
            let Some(next) = self.rest.next_if(|c| c.is_digit(8)).and_then(digit) else {
                break;
            };
            code = code * 8 + next;
        }
        Ok(code)
    }

    /// Two hexadecimal digits, or some in braces.
    fn hexadecimal(&mut self) -> Result<u32, InvalidRegex> {
        let ahead = self.ahead();
        let (digits, length) = match ahead.strip_prefix('{').and_then(|it| it.split_once('}')) {
            Some((digits, _)) => (digits, digits.len() + 2),
            None => (ahead.get(..2).unwrap_or_default(), 2),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok();
        let code = code.filter(|code| is_number && *code <= u32::from(char::MAX));
        let code = code.ok_or_else(|| InvalidRegex("invalid hexadecimal escape".to_owned()))?;
        self.rest.nth(length - 1);
        Ok(code)
    }

    /// The character with this code.
    fn code(&mut self, code: u32, place: Place) {
        let character = char::from_u32(code).filter(|c| !c.is_ascii());
        match (character, place) {
            // Writing to a string cannot fail.
            (Some(c), Place::Outside) => {
                let _ = write!(self.written, "(?:{c})");
            }
            _ => {
                let _ = write!(self.written, r"\x{:02X}", code.min(0xFF));
            }
        }
    }

    /// `\pN`, `\p{Name}` or `\p{^Name}`, after its `p`.
    fn unicode_group(&mut self, is_negated: bool) -> Result<(), InvalidRegex> {
        let ahead = self.ahead();
        let braced = ahead.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, length) = match braced {
            Some((name, _)) => (name, name.chars().count() + 2),
            None => {
                let end = ahead.chars().next().map_or(0, char::len_utf8);
                (&ahead[..end], 1)
            }
        };
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, !is_negated),
            None => (name, is_negated),
        };
        let Some(members) = unicode::ascii_of(name) else {
            let reason = format!("unknown group of characters \\p{{{name}}}");
            return Err(InvalidRegex(reason));
        };
        self.written.push_str(&match (members, is_negated) {
            ("", false) => r"[^\x00-\xFF]".to_owned(),
            ("", true) => r"[\x00-\xFF]".to_owned(),
            (members, false) => format!("[{members}]"),
            (members, true) => format!("[^{members}]"),
        });
        self.rest.nth(length - 1);
        Ok(())
    }

    /// `\Q...\E`, or to the end: every character between them is an ordinary one.
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
            let end = self.rest.next();
            let end = end.map(|end| self.class_character(end)).transpose()?;
            if end == Some(Item::Class) {
                return Err(InvalidRegex("a range that ends with a class".to_owned()));
            }
        }
        Ok(())
    }

    fn class_character(&mut self, c: char) -> Result<Item, InvalidRegex> {
        if c != '\\' {
            self.code_or_literal(c);
            return Ok(Item::Character);
        }
        match self.rest.next() {
            None => Err(InvalidRegex("trailing \\".to_owned())),
            Some(c) => self.escaped_item(c, Place::Class),
        }
    }

    /// A character of a class.
    fn code_or_literal(&mut self, c: char) {
        if c.is_ascii() {
            self.literal(c);
        } else {
            self.code(c.into(), Place::Class);
        }
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

    /// An ordinary character.
    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.written.push('\\');
        }
        self.written.push(c);
    }
}

/// A place in a pattern. Outside of a class, a character beyond ASCII is several bytes.
#[derive(Clone, Copy)]
enum Place {
    Class,
    Outside,
}

/// An item of a class. An item that is a class cannot begin a range.
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
            (r"\pL+", &["aZ"], &["1", "_"]),
            (r"\p{Lu}\P{Lu}", &["Aa", "A1"], &["AA", "aa"]),
            (r"(?i)\p{Lu}+", &["aZ"], &["1"]),
            (r"\p{^Nd}", &["a"], &["1"]),
            (r"\P{^Nd}", &["1"], &["a"]),
            (r"[\p{Nd}_]+", &["1_2"], &["a"]),
            (r"[^\p{Nd}_]+", &["ab"], &["1", "_"]),
            (r"\p{Greek}|a", &["a"], &["b"]),
            (r"\P{Greek}", &["a", "~"], &["ab"]),
            (r"[\p{Han}a]", &["a"], &["b"]),
            (r"[[:digit:]\pP]+", &["1.2"], &["a"]),
            (r"\101\102", &["AB"], &["ab"]),
            (r"\1018", &["A8"], &["A"]),
            (r"[\101-\103]+", &["ABC"], &["D"]),
            (r"[\000-\377]", &["a"], &["ab"]),
            (r"\x41\x{42}\x{00043}", &["ABC"], &["A"]),
            (r"\x{e9}|a", &["a", "é"], &["b"]),
            (r"\351+|a", &["a", "éé"], &["b"]),
            ("[é-ü]|a", &["a"], &["b"]),
            (r"[^\x{4e00}]", &["a"], &["ab"]),
            (r"a\_b\-\ c", &["a_b- c"], &["ab"]),
            (r"\s\S", &[" a"], &["\u{b}a", "ab"]),
            ("a{01}", &["a{01}"], &["a"]),
            ("(a{2}){3}", &["aaaaaa"], &["aaaa"]),
            ("a*?b+?c??d{2}?", &["bdd", "aabbcdd"], &["ad"]),
            ("(?s-i:a)(?P<n>b)", &["ab"], &["aB"]),
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
            ("((a{100}){10}){2}", "a count of more than 1000 in all"),
            ("a{1001}", "a count of more than 1000 in all"),
            ("a{1001,}", "a count of more than 1000 in all"),
            (&r"\w{1000}".repeat(40), "it takes more than 1048576 bytes"),
            ("a**", "a repetition of a repetition"),
            ("a+*", "a repetition of a repetition"),
            ("a*??", "a repetition of a repetition"),
            ("a{2}{3}", "a repetition of a repetition"),
            ("a*{2,}", "a repetition of a repetition"),
            (r"\E", r"unknown escape \E"),
            (r"\q", r"unknown escape \q"),
            (r"\u0041", r"unknown escape \u"),
            (r"[\b]", r"unknown escape \b"),
            (r"\8", r"unknown escape \8"),
            (r"\18", "backreferences are not supported"),
            (r"\x4", "invalid hexadecimal escape"),
            (r"\x{}", "invalid hexadecimal escape"),
            (r"\x{110000}", "invalid hexadecimal escape"),
            (r"\p{Klingon}", r"unknown group of characters \p{Klingon}"),
            (r"\p", r"unknown group of characters \p{}"),
            (r"[a-\d]", "a range that ends with a class"),
            ("(?x)a b", "unknown flag x"),
            ("(?iu:a)", "unknown flag u"),
        ] {
            let error = pattern.parse::<SafeRegex>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{pattern}");
        }
    }
}
