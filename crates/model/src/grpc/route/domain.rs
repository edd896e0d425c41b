//! Domain patterns of virtual hosts, and the rank of each pattern for an authority (gRFC A27).
//!
//! The best match wins, so a pattern has a rank and not only a yes or no.

use std::fmt;

/// A pattern of authorities. A virtual host takes the calls whose authority matches one of its patterns.
///
/// Patterns are kept in lower case, because host names do not differ by case.
///
/// ```
/// # use crowfly_model::grpc::route::DomainPattern;
/// let pattern: DomainPattern = "*.Example.com".parse().unwrap();
/// assert!(pattern.matches("api.EXAMPLE.com"));
/// assert!(!pattern.matches("example.com"));
/// assert!("a*b".parse::<DomainPattern>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainPattern {
    /// `*`
    Any,
    /// `x.*`; holds `x.`
    Prefix(String),
    /// `*.x`; holds `.x`
    Suffix(String),
    /// `x`
    Exact(String),
}

impl DomainPattern {
    /// True if `authority` matches the pattern. A leading or trailing `*` matches at least one character.
    pub fn matches(&self, authority: &str) -> bool {
        let authority = authority.as_bytes();
        match self {
            Self::Any => true,
            Self::Exact(text) => authority.eq_ignore_ascii_case(text.as_bytes()),
            Self::Prefix(text) => {
                authority.len() > text.len()
                    && authority[..text.len()].eq_ignore_ascii_case(text.as_bytes())
            }
            Self::Suffix(text) => {
                authority.len() > text.len()
                    && authority[authority.len() - text.len()..]
                        .eq_ignore_ascii_case(text.as_bytes())
            }
        }
    }

    /// The rank of the pattern; a greater rank is a better match. `None` if `authority` does not match.
    pub(super) fn rank(&self, authority: &str) -> Option<Rank> {
        let rank = match self {
            Self::Any => Rank(Kind::Any, 0),
            Self::Prefix(text) => Rank(Kind::Prefix, text.len()),
            Self::Suffix(text) => Rank(Kind::Suffix, text.len()),
            Self::Exact(text) => Rank(Kind::Exact, text.len()),
        };
        self.matches(authority).then_some(rank)
    }
}

impl std::str::FromStr for DomainPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if lower.is_empty() {
            return Err("expected a domain, got an empty string".to_owned());
        }
        if lower == "*" {
            return Ok(Self::Any);
        }
        // Only the first or the last character is a wildcard. Beside such a wildcard any other `*` is an ordinary
        // character, because gRFC A27 has no rule against it.
        if let Some(suffix) = lower.strip_prefix('*') {
            return Ok(Self::Suffix(suffix.to_owned()));
        }
        if let Some(prefix) = lower.strip_suffix('*') {
            return Ok(Self::Prefix(prefix.to_owned()));
        }
        if lower.contains('*') {
            return Err(format!("expected `*` only first or last, got {text:?}"));
        }
        Ok(Self::Exact(lower))
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(text) => write!(f, "{text}*"),
            Self::Suffix(text) => write!(f, "*{text}"),
            Self::Exact(text) => f.write_str(text),
        }
    }
}

/// The rank of a pattern: first its kind, then its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(Kind, usize);

/// Kinds of patterns, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Any,
    Prefix,
    Suffix,
    Exact,
}
