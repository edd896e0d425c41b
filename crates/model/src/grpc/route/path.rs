//! Paths of calls, and what routes say about them.

/// Which paths a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatcher {
    /// The path begins with `text`.
    Prefix {
        /// Empty, `/`, or the beginning of `/service/method`.
        text: String,
        /// Whether case counts.
        case_sensitive: bool,
    },
    /// The path is `text`.
    Exact {
        /// `/service/method`
        text: String,
        /// Whether case counts.
        case_sensitive: bool,
    },
}

impl PathMatcher {
    /// Whether the route is for a call with this path.
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

    /// Whether some path of the form `/service/method` matches; a route that never can is left out
    /// (gRFC A28).
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

fn same(path: &[u8], text: &str, case_sensitive: bool) -> bool {
    if case_sensitive {
        path == text.as_bytes()
    } else {
        path.eq_ignore_ascii_case(text.as_bytes())
    }
}
