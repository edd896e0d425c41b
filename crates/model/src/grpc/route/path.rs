//! Conditions that routes set on the path of a call (gRFC A28).
//!
//! A condition also says why a path does not meet it, so that tools need no matcher of their own.

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
}

impl PathMatcher {
    /// True if `path`, the path of a call, meets the condition.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.as_bytes();
        match self {
            Self::Prefix {
                text,
                case_sensitive,
            } => path
                .get(..text.len())
                .is_some_and(|head| same(head, text, *case_sensitive)),
            Self::Exact {
                text,
                case_sensitive,
            } => same(path, text, *case_sensitive),
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
        let (text, path) = (self.text(), path.as_bytes());
        let (compared, other) = match self {
            Self::Exact { .. } => (Some(path), PathMismatch::Exact),
            Self::Prefix { .. } => (path.get(..text.len()), PathMismatch::Prefix),
        };
        let by_case = compared.is_some_and(|path| same(path, text, false));
        Some(if by_case { PathMismatch::Case } else { other })
    }

    fn text(&self) -> &str {
        match self {
            Self::Exact { text, .. } | Self::Prefix { text, .. } => text,
        }
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
        }
    }
}

/// Why a path does not meet the condition of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMismatch {
    /// It differs in case alone, and the route is sensitive to case.
    Case,
    /// The route is for another path.
    Exact,
    /// It does not begin with the prefix.
    Prefix,
}

fn same(path: &[u8], text: &str, case_sensitive: bool) -> bool {
    if case_sensitive {
        path == text.as_bytes()
    } else {
        path.eq_ignore_ascii_case(text.as_bytes())
    }
}
