//! xDS's `StringMatcher`: a condition on a text.
//!
//! Headers of calls, paths and names in certificates are all compared here (gRFC A63, A29), because two
//! implementations of a condition could disagree.

use std::fmt;

use envoy_types::pb::envoy::r#type::matcher::v3::{self as pb, string_matcher::MatchPattern};

use super::safe_regex::{self, SafeRegex};
use crate::Validator;

/// A condition on a text.
///
/// ```
/// # use crowfly_model::grpc::{StringMatcher, StringPattern};
/// let matcher = StringMatcher::new(StringPattern::Suffix("-beta".to_owned()), true);
/// assert!(matcher.matches(b"v2-BETA"));
/// assert_eq!(matcher.to_string(), "suffix \"-beta\" (any case)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringMatcher {
    pattern: StringPattern,
    ignore_case: bool,
}

/// The kinds of conditions on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringPattern {
    /// Texts that contain this one.
    Contains(String),
    /// Only this text.
    Exact(String),
    /// Texts that begin with this one.
    Prefix(String),
    /// Texts that match the expression from begin to end.
    Regex(SafeRegex),
    /// Texts that end with this one.
    Suffix(String),
}

impl StringMatcher {
    /// The condition. `ignore_case` is about ASCII letters, and has no effect on a regular expression (gRFC A63).
    pub const fn new(pattern: StringPattern, ignore_case: bool) -> Self {
        Self {
            pattern,
            ignore_case,
        }
    }

    /// True if `text` meets the condition.
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.pattern {
            StringPattern::Contains(part) => contains(text, part, self.ignore_case),
            StringPattern::Exact(whole) => is_same(text, whole, self.ignore_case),
            StringPattern::Prefix(begin) => starts_with(text, begin, self.ignore_case),
            StringPattern::Regex(regex) => regex.matches(text),
            StringPattern::Suffix(end) => text
                .len()
                .checked_sub(end.len())
                .is_some_and(|at| is_same(&text[at..], end, self.ignore_case)),
        }
    }

    /// The kind of the condition, and its text.
    ///
    /// ```
    /// # use crowfly_model::grpc::{StringMatcher, StringPattern};
    /// let exact = StringPattern::Exact("a".to_owned());
    /// assert_eq!(StringMatcher::new(exact.clone(), false).pattern(), &exact);
    /// ```
    pub const fn pattern(&self) -> &StringPattern {
        &self.pattern
    }

    /// True if upper case and lower case are the same.
    ///
    /// ```
    /// # use crowfly_model::grpc::{StringMatcher, StringPattern};
    /// assert!(StringMatcher::new(StringPattern::Exact("a".to_owned()), true).ignores_case());
    /// ```
    pub const fn ignores_case(&self) -> bool {
        self.ignore_case && !matches!(self.pattern, StringPattern::Regex(_))
    }
}

/// The kind of the condition and its text, as errors name it.
impl fmt::Display for StringMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text) = match &self.pattern {
            StringPattern::Contains(text) => ("contains", text.as_str()),
            StringPattern::Exact(text) => ("exact", text.as_str()),
            StringPattern::Prefix(text) => ("prefix", text.as_str()),
            StringPattern::Regex(regex) => ("regex", regex.pattern()),
            StringPattern::Suffix(text) => ("suffix", text.as_str()),
        };
        let case = if self.ignores_case() {
            " (any case)"
        } else {
            ""
        };
        write!(f, "{kind} {text:?}{case}")
    }
}

/// Reads a string matcher.
///
/// ```
/// use crowfly_model::{Validator, grpc::steps};
/// use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
///
/// let mut v = Validator::default();
/// assert!(steps::string_matcher(&StringMatcher::default(), &mut v).is_none());
/// assert!(v.has_errors());
/// ```
pub fn parse(proto: &pb::StringMatcher, v: &mut Validator) -> Option<StringMatcher> {
    let pattern = match &proto.match_pattern {
        Some(MatchPattern::Contains(text)) => StringPattern::Contains(text.clone()),
        Some(MatchPattern::Exact(text)) => StringPattern::Exact(text.clone()),
        Some(MatchPattern::Prefix(text)) => StringPattern::Prefix(text.clone()),
        Some(MatchPattern::SafeRegex(regex)) => {
            if proto.ignore_case {
                v.unsupported_at("ignore_case", "ignored for a regex (gRFC A63)");
            }
            let regex = v.field("safe_regex", |v| safe_regex::parse(regex, v));
            StringPattern::Regex(regex?)
        }
        Some(MatchPattern::Suffix(text)) => StringPattern::Suffix(text.clone()),
        Some(MatchPattern::Custom(_)) => return refuse("custom", v),
        None => return refuse("none", v),
    };
    Some(StringMatcher::new(pattern, proto.ignore_case))
}

fn refuse(got: &str, v: &mut Validator) -> Option<StringMatcher> {
    v.error(format!(
        "expected exact, prefix, suffix, contains or safe_regex, got {got}"
    ));
    None
}

/// True if both are the same text. Case is ASCII's, as in gRPC C-core.
pub(super) fn is_same(text: &[u8], other: &str, ignore_case: bool) -> bool {
    if ignore_case {
        text.eq_ignore_ascii_case(other.as_bytes())
    } else {
        text == other.as_bytes()
    }
}

/// True if `text` begins with `begin`.
pub(super) fn starts_with(text: &[u8], begin: &str, ignore_case: bool) -> bool {
    // An empty text is common, and some processors take long to compare one with another.
    begin.is_empty()
        || text
            .get(..begin.len())
            .is_some_and(|head| is_same(head, begin, ignore_case))
}

fn contains(text: &[u8], part: &str, ignore_case: bool) -> bool {
    // `windows` takes no length of 0.
    part.is_empty()
        || text
            .windows(part.len())
            .any(|window| is_same(window, part, ignore_case))
}
