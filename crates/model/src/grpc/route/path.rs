//! Conditions that routes set on the path of a call (gRFC A28).
//!
//! A condition also says why a path does not meet it, so that tools need no matcher of their own.

use std::fmt;

use envoy_types::pb::envoy::config::route::v3::{self as pb, route_match::PathSpecifier};

use crate::{
    Validator,
    grpc::{
        safe_regex::{self, SafeRegex},
        string_matcher::{is_same, starts_with},
    },
};

/// The condition that a route sets on the path of a call (gRFC A28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatcher {
    /// The path begins with `text`.
    Prefix {
        /// Empty, `/`, or the beginning of `/service/method`.
        text: String,
        /// True if upper case and lower case must match too.
        case_sensitive: bool,
    },
    /// The path is `text`.
    Exact {
        /// `/service/method`
        text: String,
        /// True if upper case and lower case must match too.
        case_sensitive: bool,
    },
    /// The whole path matches the expression. The expression itself says whether case matters.
    Regex(SafeRegex),
}

impl PathMatcher {
    /// True if `path`, the path of a call, meets the condition.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.as_bytes();
        match self {
            Self::Prefix {
                text,
                case_sensitive,
            } => starts_with(path, text, !case_sensitive),
            Self::Exact {
                text,
                case_sensitive,
            } => is_same(path, text, !case_sensitive),
            Self::Regex(regex) => regex.matches(path),
        }
    }

    /// The reason why `path` does not meet the condition; `None` if it does.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::{PathMatcher, PathMismatch};
    /// let matcher = PathMatcher::Prefix { text: "/a.A/".to_owned(), case_sensitive: true };
    /// assert_eq!(matcher.mismatch("/a.A/M"), None);
    /// assert_eq!(matcher.mismatch("/a.a/M"), Some(PathMismatch::Case));
    /// assert_eq!(matcher.mismatch("/b.B/M"), Some(PathMismatch::Prefix));
    /// ```
    pub fn mismatch(&self, path: &str) -> Option<PathMismatch> {
        if self.matches(path) {
            return None;
        }
        let path = path.as_bytes();
        let (by_case, other) = match self {
            Self::Exact { text, .. } => (is_same(path, text, true), PathMismatch::Exact),
            Self::Prefix { text, .. } => (starts_with(path, text, true), PathMismatch::Prefix),
            Self::Regex(_) => (false, PathMismatch::Regex),
        };
        Some(if by_case { PathMismatch::Case } else { other })
    }

    /// True if some path of the form `/service/method` can match. A route whose condition never can is
    /// left out (gRFC A28).
    pub(super) fn can_match(&self) -> bool {
        match self {
            Self::Prefix { text, .. } if text.is_empty() => true,
            Self::Prefix { text, .. } => match text.strip_prefix('/') {
                None => false,
                Some(rest) => match rest.split_once('/') {
                    None => true,
                    Some((service, method)) => !service.is_empty() && !method.contains('/'),
                },
            },
            Self::Exact { text, .. } => text
                .strip_prefix('/')
                .and_then(|rest| rest.split_once('/'))
                .is_some_and(|(service, method)| {
                    !service.is_empty() && !method.is_empty() && !method.contains('/')
                }),
            Self::Regex(_) => true,
        }
    }
}

/// The kind of the condition and its text: `prefix /a.A/`.
impl fmt::Display for PathMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text, case_sensitive) = match self {
            Self::Prefix {
                text,
                case_sensitive,
            } => ("prefix", text, case_sensitive),
            Self::Exact {
                text,
                case_sensitive,
            } => ("path", text, case_sensitive),
            Self::Regex(regex) => return write!(f, "regex {}", regex.pattern()),
        };
        if text.is_empty() {
            return write!(f, "{kind} \"\"");
        }
        let case = if *case_sensitive { "" } else { " in any case" };
        write!(f, "{kind} {text}{case}")
    }
}

/// The reason why a path does not meet the condition of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMismatch {
    /// The path differs in case alone, and the route is sensitive to case.
    Case,
    /// The route is for another path.
    Exact,
    /// The path does not begin with the prefix.
    Prefix,
    /// The path does not match the regular expression.
    Regex,
}

impl fmt::Display for PathMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Case => "the path differs in case",
            Self::Exact => "the path is another",
            Self::Prefix => "the path does not begin with it",
            Self::Regex => "the path does not match it",
        })
    }
}

/// Reads the path specifier. gRFC A28 knows three kinds. Any other kind is an error, because the calls of
/// a route that is left out would take the next route.
pub(super) fn parse(proto: &pb::RouteMatch, v: &mut Validator) -> Option<PathMatcher> {
    let case_sensitive = proto.case_sensitive.is_none_or(|flag| flag.value);
    let got = match &proto.path_specifier {
        Some(PathSpecifier::Prefix(text)) => {
            let text = text.clone();
            return Some(PathMatcher::Prefix {
                text,
                case_sensitive,
            });
        }
        Some(PathSpecifier::Path(text)) => {
            let text = text.clone();
            return Some(PathMatcher::Exact {
                text,
                case_sensitive,
            });
        }
        Some(PathSpecifier::SafeRegex(regex)) => {
            if !case_sensitive {
                v.unsupported_at("case_sensitive", "ignored for a regex (gRFC A28)");
            }
            let regex = v.field("safe_regex", |v| safe_regex::parse(regex, v));
            return regex.map(PathMatcher::Regex);
        }
        Some(PathSpecifier::ConnectMatcher(_)) => "connect_matcher",
        Some(PathSpecifier::PathSeparatedPrefix(_)) => "path_separated_prefix",
        Some(PathSpecifier::PathMatchPolicy(_)) => "path_match_policy",
        None => "none",
    };
    v.error(format!("expected prefix, path or safe_regex, got {got}"));
    None
}
