//! Matchers for subject alternative names, with the semantics of xDS's `StringMatcher`.
//!
//! An empty prefix, suffix or part is refused, because it would accept every name.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use super::names::Name;

/// A matcher that accepts some subject alternative names.
///
/// ```
/// use crowfly_tls::{SanMatcher, SanPattern};
///
/// let payments = SanPattern::Exact("spiffe://mesh/payments".to_owned());
/// let matcher = SanMatcher::new(payments, false).unwrap();
/// assert_eq!(matcher.to_string(), "exact \"spiffe://mesh/payments\"");
/// ```
#[derive(Clone, Debug)]
pub struct SanMatcher {
    pattern: SanPattern,
    ignore_case: bool,
    /// The compiled pattern, if it is a regular expression.
    regex: Option<Regex>,
}

/// The patterns of xDS's `StringMatcher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SanPattern {
    /// Names that contain this text.
    Contains(String),
    /// Exactly this name. A DNS name is compared without regard to case and to a trailing dot.
    /// `*.example.com` in a certificate stands for every direct subdomain.
    Exact(String),
    /// Names that begin with this text.
    Prefix(String),
    /// Names that match this regular expression from begin to end, in RE2's syntax.
    Regex(String),
    /// Names that end with this text.
    Suffix(String),
}

impl SanMatcher {
    /// `ignore_case` has no effect on a regular expression, as in xDS.
    ///
    /// ```
    /// use crowfly_tls::{SanMatcher, SanPattern};
    ///
    /// assert!(SanMatcher::new(SanPattern::Prefix("spiffe://mesh/".to_owned()), false).is_ok());
    /// // It would accept every name.
    /// assert!(SanMatcher::new(SanPattern::Prefix(String::new()), false).is_err());
    /// ```
    pub fn new(mut pattern: SanPattern, ignore_case: bool) -> Result<Self, InvalidSanMatcher> {
        let mut regex = None;
        match &mut pattern {
            SanPattern::Exact(text) => fold(text, ignore_case),
            SanPattern::Contains(text) | SanPattern::Prefix(text) | SanPattern::Suffix(text) => {
                if text.is_empty() {
                    return Err(InvalidSanMatcher::Empty);
                }
                fold(text, ignore_case);
            }
            SanPattern::Regex(text) => regex = Some(compile(text)?),
        }
        Ok(Self {
            pattern,
            ignore_case,
            regex,
        })
    }

    pub(super) fn accepts(&self, name: &Name) -> bool {
        if let (SanPattern::Exact(expected), Name::Dns(presented)) = (&self.pattern, name) {
            return is_dns_match(expected, presented);
        }
        let mut text = name.text().to_owned();
        fold(&mut text, self.ignore_case);
        match &self.pattern {
            SanPattern::Contains(part) => text.contains(part),
            SanPattern::Exact(whole) => text == *whole,
            SanPattern::Prefix(begin) => text.starts_with(begin),
            SanPattern::Regex(_) => {
                let regex = self.regex.as_ref();
                regex.is_some_and(|regex| regex.is_match(name.text().as_bytes()))
            }
            SanPattern::Suffix(end) => text.ends_with(end),
        }
    }
}

/// The matcher in the text of an error: its kind and its pattern.
impl fmt::Display for SanMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text) = match &self.pattern {
            SanPattern::Contains(text) => ("contains", text),
            SanPattern::Exact(text) => ("exact", text),
            SanPattern::Prefix(text) => ("prefix", text),
            SanPattern::Regex(text) => ("regex", text),
            SanPattern::Suffix(text) => ("suffix", text),
        };
        write!(f, "{kind} {text:?}")?;
        if self.ignore_case {
            write!(f, " (any case)")?;
        }
        Ok(())
    }
}

/// A matcher that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSanMatcher {
    /// A part of a name that every name has.
    #[error("expected a text, got an empty one, which every name would match")]
    Empty,
    /// A regular expression that cannot be compiled.
    #[error("regex: {0}")]
    Regex(String),
}

/// Names in certificates are ASCII, and so is case in xDS.
fn fold(text: &mut str, ignore_case: bool) {
    if ignore_case {
        text.make_ascii_lowercase();
    }
}

/// A match is of the whole name, as RE2's `FullMatch` has it. The pattern must be valid by itself, because
/// one with unbalanced parentheses could escape the anchors.
fn compile(pattern: &str) -> Result<Regex, InvalidSanMatcher> {
    // Classes such as \d are RE2's: ASCII.
    let build = |text: &str| RegexBuilder::new(text).unicode(false).build();
    build(pattern)
        .and_then(|_| build(&format!(r"\A(?:{pattern})\z")))
        .map_err(|error| InvalidSanMatcher::Regex(error.to_string()))
}

/// True if a DNS name in a certificate stands for `expected`. A wildcard is the whole first label, stands
/// for one label, and never for a whole name (RFC 6125, section 6.4.3).
fn is_dns_match(expected: &str, presented: &str) -> bool {
    let expected = expected.strip_suffix('.').unwrap_or(expected);
    let presented = presented.strip_suffix('.').unwrap_or(presented);
    let Some(parent) = presented.strip_prefix("*.") else {
        return !presented.contains('*') && expected.eq_ignore_ascii_case(presented);
    };
    if parent.is_empty() || parent.contains('*') {
        return false;
    }
    match expected.split_once('.') {
        Some((label, rest)) => !label.is_empty() && rest.eq_ignore_ascii_case(parent),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(pattern: SanPattern, ignore_case: bool, name: &Name) -> bool {
        SanMatcher::new(pattern, ignore_case).unwrap().accepts(name)
    }

    fn uri(text: &str) -> Name {
        Name::Other(text.to_owned())
    }

    /// gRFC A29: an exact match of a DNS name follows the rules of wildcards in certificates. The cases are
    /// those that gRPC-Go and gRPC C-core agree on.
    #[test]
    fn an_exact_match_of_a_dns_name_knows_wildcards() {
        for (expected, presented, is_match) in [
            ("test.example.com", "test.example.com", true),
            ("TEST.example.com", "test.EXAMPLE.com", true),
            ("test.example.com", "test.example.com.", true),
            ("test.example.com.", "test.example.com", true),
            ("a.example.com", "*.example.com", true),
            ("a.example.com", "*.EXAMPLE.com.", true),
            ("a.b.example.com", "*.example.com", false),
            ("example.com", "*.example.com", false),
            (".example.com", "*.example.com", false),
            ("a.notexample.com", "*.example.com", false),
            ("aa.example.com", "*a.example.com", false),
            ("aa.example.com", "a*.example.com", false),
            ("abc.example.com", "a*c.example.com", false),
            ("a.b.example.com", "a.*.example.com", false),
            ("a.b.example.com", "*.*.example.com", false),
            ("a", "*", false),
            ("a.", "*.", false),
        ] {
            let pattern = SanPattern::Exact(expected.to_owned());
            let name = Name::Dns(presented.to_owned());
            let got = accepts(pattern, false, &name);
            assert_eq!(got, is_match, "{expected} for {presented}");
        }
    }

    /// gRFC A29: only DNS names have wildcards.
    #[test]
    fn an_exact_match_of_another_name_is_equality() {
        let exact = |text: &str| SanPattern::Exact(text.to_owned());
        let name = uri("spiffe://mesh/payments");
        assert!(accepts(exact("spiffe://mesh/payments"), false, &name));
        assert!(!accepts(exact("spiffe://mesh/payments."), false, &name));
        assert!(!accepts(exact("spiffe://mesh/Payments"), false, &name));
        assert!(accepts(exact("spiffe://mesh/Payments"), true, &name));
        assert!(!accepts(
            exact("a.example.com"),
            false,
            &uri("*.example.com")
        ));
    }

    #[test]
    fn parts_of_names_are_matched_with_and_without_regard_to_case() {
        let name = uri("spiffe://mesh/ns/prod/payments");
        type Make = fn(String) -> SanPattern;
        let kinds: [(Make, &str, &str); 3] = [
            (SanPattern::Prefix, "spiffe://mesh/", "mesh"),
            (SanPattern::Suffix, "/payments", "/payment"),
            (SanPattern::Contains, "/ns/prod/", "/ns/test/"),
        ];
        for (make, good, bad) in kinds {
            assert!(accepts(make(good.to_owned()), false, &name), "{good}");
            assert!(!accepts(make(bad.to_owned()), false, &name), "{bad}");
            let upper = good.to_uppercase();
            assert!(!accepts(make(upper.clone()), false, &name), "{upper}");
            assert!(accepts(make(upper.clone()), true, &name), "{upper}");
        }
    }

    #[test]
    fn a_regular_expression_matches_the_whole_name() {
        let regex = |text: &str| SanPattern::Regex(text.to_owned());
        let name = uri("spiffe://mesh/payments-12");
        assert!(accepts(regex(r"spiffe://mesh/\w+-\d{2}"), false, &name));
        assert!(!accepts(regex(r"mesh/\w+-\d{2}"), false, &name));
        assert!(!accepts(regex(r"spiffe://mesh/\w+"), false, &name));
        assert!(!accepts(regex(r"spiffe://mesh/other|12"), false, &name));
        // xDS: ignore_case is for the other kinds.
        assert!(!accepts(regex(r"SPIFFE://mesh/.*"), true, &name));
    }

    #[test]
    fn matchers_that_accept_everything_or_cannot_be_compiled_are_refused() {
        for make in [SanPattern::Prefix, SanPattern::Suffix, SanPattern::Contains] {
            let error = SanMatcher::new(make(String::new()), false).unwrap_err();
            assert_eq!(error, InvalidSanMatcher::Empty);
        }
        for pattern in ["(", "a)(b"] {
            let error = SanMatcher::new(SanPattern::Regex(pattern.to_owned()), false);
            assert!(
                matches!(error, Err(InvalidSanMatcher::Regex(_))),
                "{pattern}"
            );
        }
    }
}
