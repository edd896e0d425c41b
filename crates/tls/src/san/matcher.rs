//! Matchers for subject alternative names (gRFC A29).
//!
//! The text patterns of xDS are not here, because headers and paths use the same patterns. The module adds the one rule
//! that only names in certificates have: the wildcards of DNS names.

use std::fmt;

use super::names::Name;

/// A condition on a subject alternative name, such as xDS's `StringMatcher`. `Display` is its text in
/// errors.
pub trait SanMatcher: fmt::Debug + fmt::Display + Send + Sync {
    /// The one name that the matcher accepts, if it accepts one only. A DNS name is then compared as such:
    /// without regard to case, and with `*.example.com` in a certificate for every direct subdomain.
    fn exact(&self) -> Option<&str>;

    /// True if the matcher accepts the name.
    fn matches(&self, name: &str) -> bool;
}

/// True if a matcher accepts a name of a certificate.
pub(super) fn accepts(matcher: &dyn SanMatcher, name: &Name) -> bool {
    match (matcher.exact(), name) {
        (Some(expected), Name::Dns(presented)) => is_dns_match(expected, presented),
        (_, name) => matcher.matches(name.text()),
    }
}

/// True if a DNS name in a certificate matches `expected`. A wildcard must be the whole first label. It matches one
/// label, and never a whole name (RFC 6125, section 6.4.3).
pub(super) fn is_dns_match(expected: &str, presented: &str) -> bool {
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

    /// One text, compared byte by byte.
    #[derive(Debug)]
    struct Exact(&'static str);

    impl SanMatcher for Exact {
        fn exact(&self) -> Option<&str> {
            Some(self.0)
        }

        fn matches(&self, name: &str) -> bool {
            self.0 == name
        }
    }

    impl fmt::Display for Exact {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
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
            let got = accepts(&Exact(expected), &Name::Dns(presented.to_owned()));
            assert_eq!(got, is_match, "{expected} for {presented}");
        }
    }

    /// gRFC A29: only DNS names have wildcards.
    #[test]
    fn an_exact_match_of_another_name_is_left_to_the_matcher() {
        let uri = |text: &str| Name::Other(text.to_owned());
        let name = uri("spiffe://mesh/payments");
        assert!(accepts(&Exact("spiffe://mesh/payments"), &name));
        assert!(!accepts(&Exact("spiffe://mesh/payments."), &name));
        assert!(!accepts(&Exact("spiffe://mesh/Payments"), &name));
        assert!(!accepts(&Exact("a.example.com"), &uri("*.example.com")));
    }
}
