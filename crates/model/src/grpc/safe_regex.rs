//! Regular expressions of resources, in RE2's syntax.
//!
//! All of them are compiled here, because a limit could be forgotten in one of several places. Then a control plane
//! could use up the memory of its clients. Matching takes time in proportion to the text, as in RE2.

mod re2;

use std::fmt;

use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, regex_matcher::EngineType};
use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use crate::Validator;

/// The greatest size of a compiled expression in bytes. Patterns that people write need some kB.
const MAX_SIZE: usize = 1 << 20;

/// A regular expression that a whole text matches or does not match.
///
/// ```
/// # use crowfly_model::grpc::SafeRegex;
/// let regex: SafeRegex = r"/a\.A/(Get|List)\w*".parse().unwrap();
/// assert!(regex.matches(b"/a.A/GetAll"));
/// assert!(!regex.matches(b"/a.A/GetAll/more"));
/// assert!("a)(b".parse::<SafeRegex>().is_err());
/// ```
#[derive(Clone)]
pub struct SafeRegex {
    pattern: String,
    compiled: Regex,
}

impl SafeRegex {
    /// True if the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.compiled.is_match(text)
    }

    /// The expression as the resource has it.
    ///
    /// ```
    /// # use crowfly_model::grpc::SafeRegex;
    /// assert_eq!("a+".parse::<SafeRegex>().unwrap().pattern(), "a+");
    /// ```
    pub fn pattern(&self) -> &str {
        &self.pattern
    }
}

impl std::str::FromStr for SafeRegex {
    type Err = InvalidRegex;

    fn from_str(pattern: &str) -> Result<Self, InvalidRegex> {
        // The translation has no unbalanced parentheses, which could escape the anchors.
        let whole = format!(r"\A(?:{})\z", re2::translate(pattern)?);
        Ok(Self {
            pattern: pattern.to_owned(),
            compiled: build(&whole)?,
        })
    }
}

impl fmt::Debug for SafeRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SafeRegex").field(&self.pattern).finish()
    }
}

impl PartialEq for SafeRegex {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for SafeRegex {}

/// The reason why an expression cannot be used, in one line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct InvalidRegex(String);

/// Reads an expression that whole texts match.
pub(super) fn parse(proto: &RegexMatcher, v: &mut Validator) -> Option<SafeRegex> {
    note_engine(proto, v);
    let parsed = proto.regex.parse();
    parsed.map_err(|error| refuse(proto, &error, v)).ok()
}

/// Reads an expression that parts of texts match; `None` after an error.
pub(super) fn parse_partial(proto: &RegexMatcher, v: &mut Validator) -> Option<Regex> {
    note_engine(proto, v);
    let compiled = compile(&proto.regex);
    compiled.map_err(|error| refuse(proto, &error, v)).ok()
}

fn refuse(proto: &RegexMatcher, error: &InvalidRegex, v: &mut Validator) {
    let pattern = &proto.regex;
    v.error_at(
        "regex",
        format!("expected RE2 syntax, got {pattern:?}: {error}"),
    );
}

/// Compiles an expression that may match a part of a text.
pub(super) fn compile(pattern: &str) -> Result<Regex, InvalidRegex> {
    build(&re2::translate(pattern)?)
}

fn build(pattern: &str) -> Result<Regex, InvalidRegex> {
    // Classes such as \d are RE2's: ASCII. The values of headers are ASCII, too (gRPC's Custom-Metadata).
    let built = RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(MAX_SIZE)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            InvalidRegex(format!("it takes more than {limit} bytes"))
        }
        error => {
            // The last line is the reason; the others draw the place.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            InvalidRegex(reason.strip_prefix("error: ").unwrap_or(reason).to_owned())
        }
    })
}

#[expect(deprecated, reason = "a server may still send the field")]
fn note_engine(proto: &RegexMatcher, v: &mut Validator) {
    let Some(EngineType::GoogleRe2(engine)) = &proto.engine_type else {
        return;
    };
    if engine.max_program_size.is_some() {
        let message = "ignored: another limit holds (gRFC A28)";
        v.field("google_re2", |v| {
            v.unsupported_at("max_program_size", message);
        });
    }
}
