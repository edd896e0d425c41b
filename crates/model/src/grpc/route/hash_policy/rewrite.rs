//! The rewriting of a header's value before it is hashed.
//!
//! The substitution is in RE2's syntax, where `\1` is the first group of the pattern. The crate `regex` has another
//! syntax, so the substitution is read here.

use std::borrow::Cow;

use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use regex::bytes::{Captures, Regex};

use crate::{Validator, grpc::safe_regex};

/// A pattern, and the text that takes the place of each of its matches.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    pattern: Regex,
    substitution: Box<[Part]>,
}

/// A part of a substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The text that a group of the pattern matched; 0 is the whole match.
    Group(usize),
    Text(Box<str>),
}

impl Rewrite {
    /// The value with every match replaced.
    pub(super) fn apply<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        let replaced = |captures: &Captures<'_>| {
            let mut text = Vec::new();
            for part in &self.substitution {
                text.extend_from_slice(match part {
                    Part::Group(group) => {
                        captures.get(*group).map_or(&[], |found| found.as_bytes())
                    }
                    Part::Text(part) => part.as_bytes(),
                });
            }
            text
        };
        self.pattern.replace_all(value, replaced)
    }
}

/// Equal expressions have equal texts.
impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.pattern.as_str() == other.pattern.as_str() && self.substitution == other.substitution
    }
}

impl Eq for Rewrite {}

/// Reads a rewrite; `None` after an error, and for a substitution that RE2 would refuse. The value of such a header is
/// hashed unchanged, as in gRPC C-core.
pub(super) fn parse(proto: &RegexMatchAndSubstitute, v: &mut Validator) -> Option<Rewrite> {
    let pattern = v.field("pattern", |v| match &proto.pattern {
        Some(pattern) if !pattern.regex.is_empty() => safe_regex::parse_partial(pattern, v),
        _ => {
            v.error_at("regex", "expected a non-empty string, got none");
            None
        }
    })?;
    match parts(&proto.substitution, pattern.captures_len() - 1) {
        Ok(substitution) => Some(Rewrite {
            pattern,
            substitution,
        }),
        Err(why) => {
            v.unsupported_at("substitution", format!("nothing is rewritten: {why}"));
            None
        }
    }
}

/// Reads a substitution for a pattern with this number of groups.
fn parts(substitution: &str, groups: usize) -> Result<Box<[Part]>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = substitution.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            text.push(next);
            continue;
        }
        match rest.next() {
            Some('\\') => text.push('\\'),
            Some(digit @ '0'..='9') => {
                let group = usize::from(digit as u8 - b'0');
                if group > groups {
                    return Err(format!("expected at most {groups} groups, got \\{group}"));
                }
                parts.push(Part::Text(std::mem::take(&mut text).into()));
                parts.push(Part::Group(group));
            }
            other => {
                let got = other.map(String::from).unwrap_or_default();
                return Err(format!(r"expected a digit or \ after \, got {got:?}"));
            }
        }
    }
    parts.push(Part::Text(text.into()));
    parts.retain(|part| *part != Part::Text("".into()));
    Ok(parts.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutions_are_in_the_syntax_of_re2() {
        for (pattern, substitution, value, expected) in [
            (r"(\d+)-(\d+)", r"\2.\1", "1-2 3-4", "2.1 4.3"),
            ("b", r"[\0]", "abcb", "a[b]c[b]"),
            ("b", r"\\", "abc", r"a\c"),
            ("b", "$0", "abc", "a$0c"),
            ("(x)|b", r"<\1>", "abc", "a<>c"),
            ("b", "", "abc", "ac"),
            // RE2: an empty match is replaced too, but not next to another match.
            ("b*", "-", "abc", "-a-c-"),
            ("^/v[0-9]+", "", "/v12/a/v3", "/a/v3"),
        ] {
            let pattern = safe_regex::compile(pattern).unwrap();
            let substitution = parts(substitution, pattern.captures_len() - 1).unwrap();
            let rewrite = Rewrite {
                pattern,
                substitution,
            };
            let applied = rewrite.apply(value.as_bytes());
            assert_eq!(applied, expected.as_bytes(), "{rewrite:?}");
        }
    }

    #[test]
    fn a_substitution_that_re2_refuses_is_an_error() {
        for (substitution, expected) in [
            (r"\2", r"expected at most 1 groups, got \2"),
            (r"\x", r#"expected a digit or \ after \, got "x""#),
            (r"a\", r#"expected a digit or \ after \, got """#),
        ] {
            assert_eq!(parts(substitution, 1).unwrap_err(), expected);
        }
    }
}
