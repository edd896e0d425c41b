//! Conditions that routes set on the headers of a call (gRFC A28, A63).
//!
//! Conditions are apart from the headers themselves ([`VisibleHeader`]), because a hash policy looks at headers too.

use std::fmt;

use envoy_types::pb::envoy::config::route::v3::{
    self as pb, header_matcher::HeaderMatchSpecifier as Specifier,
};

use super::{
    call_head::{Headers, Value},
    visible_header::VisibleHeader,
};
use crate::{
    Validator,
    grpc::{StringMatcher, StringPattern, safe_regex, string_matcher},
};

/// The condition that a route sets on one header of a call.
///
/// ```
/// # use crowfly_model::grpc::{StringMatcher, StringPattern};
/// # use crowfly_model::grpc::route::{HeaderCondition, HeaderMatcher};
/// let ann = StringMatcher::new(StringPattern::Exact("ann".to_owned()), false);
/// let matcher = HeaderMatcher::new("X-User", HeaderCondition::Text(ann), false);
///
/// assert!(matcher.matches(&[("x-user", "ann")][..]));
/// let bob = [("x-user", "bob")];
/// assert_eq!(
///     matcher.mismatch(&bob[..]).unwrap().to_string(),
///     "header x-user is \"bob\", expected exact \"ann\""
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatcher {
    header: VisibleHeader,
    condition: HeaderCondition,
    invert: bool,
}

/// The condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderCondition {
    /// The call has the header (true), or it does not (false).
    Present(bool),
    /// The value is a decimal integer of 64 bits, at least `start` and below `end`.
    Range {
        /// The least value that matches.
        start: i64,
        /// The least value above `start` that does not match.
        end: i64,
    },
    /// The value meets this condition on texts.
    Text(StringMatcher),
}

impl HeaderMatcher {
    /// The condition on the header of this name, of any case. With `invert`, a value must not meet it.
    pub fn new(name: &str, condition: HeaderCondition, invert: bool) -> Self {
        Self {
            header: VisibleHeader::new(name),
            condition,
            invert,
        }
    }

    /// The name of the header, in lower case.
    pub fn name(&self) -> &str {
        self.header.name()
    }

    /// True if the headers of a call meet the condition.
    ///
    /// A header that is absent meets no condition but one about its presence, inverted or not.
    pub fn matches<H: Headers + ?Sized>(&self, headers: &H) -> bool {
        self.takes(self.header.value(headers).as_ref().map(Value::as_bytes))
    }

    /// The reason why the headers of a call do not meet the condition; `None` if they do.
    pub fn mismatch<H: Headers + ?Sized>(&self, headers: &H) -> Option<HeaderMismatch<'_>> {
        let value = self.header.value(headers);
        let value = value.as_ref().map(Value::as_bytes);
        (!self.takes(value)).then(|| HeaderMismatch {
            matcher: self,
            value: value.map(|value| String::from_utf8_lossy(value).into_owned()),
        })
    }

    fn takes(&self, value: Option<&[u8]>) -> bool {
        let is_met = match (&self.condition, value) {
            (HeaderCondition::Present(expected), value) => value.is_some() == *expected,
            (_, None) => return false,
            (HeaderCondition::Range { start, end }, Some(value)) => {
                integer(value).is_some_and(|value| (*start..*end).contains(&value))
            }
            (HeaderCondition::Text(matcher), Some(value)) => matcher.matches(value),
        };
        is_met != self.invert
    }
}

/// The condition without the name: `exact "a"`, `not present`.
impl fmt::Display for HeaderMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (condition, invert) = match &self.condition {
            HeaderCondition::Present(expected) => {
                let is_expected = *expected != self.invert;
                return f.write_str(if is_expected { "present" } else { "absent" });
            }
            condition => (condition, self.invert),
        };
        if invert {
            f.write_str("not ")?;
        }
        match condition {
            HeaderCondition::Present(_) => Ok(()),
            HeaderCondition::Range { start, end } => write!(f, "range [{start}, {end})"),
            HeaderCondition::Text(matcher) => matcher.fmt(f),
        }
    }
}

/// A header that does not meet the condition of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMismatch<'a> {
    /// The condition.
    pub matcher: &'a HeaderMatcher,
    /// The value that the route saw; `None` if the header is absent, or counts as such.
    pub value: Option<String>,
}

impl fmt::Display for HeaderMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, matcher) = (self.matcher.name(), self.matcher);
        match &self.value {
            Some(value) => write!(f, "header {name} is {value:?}, expected {matcher}"),
            None if self.matcher.header.is_hidden() => {
                write!(f, "header {name} counts as absent, expected {matcher}")
            }
            None => write!(f, "header {name} is absent, expected {matcher}"),
        }
    }
}

/// Reads a header matcher. Any kind that gRFC A28 and A63 do not have is an error.
pub(super) fn parse(proto: &pb::HeaderMatcher, v: &mut Validator) -> Option<HeaderMatcher> {
    let condition = parse_condition(proto, v)?;
    let matcher = HeaderMatcher::new(&proto.name, condition, proto.invert_match);
    if matcher.header.is_hidden() {
        let name = matcher.name();
        let message = format!("{name} counts as absent: routes do not see it (gRFC A28)");
        v.unsupported_at("name", message);
    }
    if proto.treat_missing_header_as_empty {
        let message = "ignored: an absent header meets no condition on its value (gRFC A28)";
        v.unsupported_at("treat_missing_header_as_empty", message);
    }
    Some(matcher)
}

#[expect(deprecated, reason = "servers still send the fields (gRFC A63)")]
fn parse_condition(proto: &pb::HeaderMatcher, v: &mut Validator) -> Option<HeaderCondition> {
    let pattern = match &proto.header_match_specifier {
        Some(Specifier::ContainsMatch(text)) => StringPattern::Contains(text.clone()),
        Some(Specifier::ExactMatch(text)) => StringPattern::Exact(text.clone()),
        Some(Specifier::PrefixMatch(text)) => StringPattern::Prefix(text.clone()),
        Some(Specifier::SuffixMatch(text)) => StringPattern::Suffix(text.clone()),
        Some(Specifier::SafeRegexMatch(regex)) => {
            let regex = v.field("safe_regex_match", |v| safe_regex::parse(regex, v));
            StringPattern::Regex(regex?)
        }
        Some(Specifier::PresentMatch(expected)) => {
            return Some(HeaderCondition::Present(*expected));
        }
        Some(Specifier::RangeMatch(range)) => {
            let (start, end) = (range.start, range.end);
            if start > end {
                let message = format!("expected an end of at least {start}, got {end}");
                v.error_at("range_match", message);
                return None;
            }
            return Some(HeaderCondition::Range { start, end });
        }
        Some(Specifier::StringMatch(matcher)) => {
            let matcher = v.field("string_match", |v| string_matcher::parse(matcher, v));
            return matcher.map(HeaderCondition::Text);
        }
        None => {
            v.error("expected a known condition on the header, got none");
            return None;
        }
    };
    Some(HeaderCondition::Text(StringMatcher::new(pattern, false)))
}

fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
