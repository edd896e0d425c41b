//! Patterns for texts: values of headers, names in certificates, and ids and clusters of clients.
//! One type reads them all, so that a pattern is written alike everywhere.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::text::{NonEmpty, Regex};

/// A pattern for a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextPattern {
    pub(crate) is: TextIs,
    pub(crate) ignore_case: bool,
}

/// The relation of a text to a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextIs {
    Containing(String),
    Exactly(String),
    /// The whole text must match.
    Like(Regex),
    StartingWith(String),
    EndingWith(String),
}

/// The fields of a pattern, of which one is given.
pub(super) struct PatternFields {
    pub(super) contains: Option<NonEmpty>,
    pub(super) exact: Option<String>,
    pub(super) prefix: Option<NonEmpty>,
    pub(super) regex: Option<Regex>,
    pub(super) suffix: Option<NonEmpty>,
    pub(super) ignore_case: bool,
}

impl PatternFields {
    /// All patterns that are given.
    pub(super) fn given<E: Error>(self) -> Result<Vec<TextPattern>, E> {
        if self.regex.is_some() && self.ignore_case {
            let message =
                "expected no `ignore_case` with `regex`; the expression can begin with (?i)";
            return Err(E::custom(message));
        }
        let given = [
            self.contains.map(|NonEmpty(text)| TextIs::Containing(text)),
            self.exact.map(TextIs::Exactly),
            self.prefix.map(|NonEmpty(text)| TextIs::StartingWith(text)),
            self.regex.map(TextIs::Like),
            self.suffix.map(|NonEmpty(text)| TextIs::EndingWith(text)),
        ];
        let ignore_case = self.ignore_case;
        let given = given.into_iter().flatten();
        Ok(given.map(|is| TextPattern { is, ignore_case }).collect())
    }
}

impl<'de> Deserialize<'de> for TextPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PatternVisitor)
    }
}

struct PatternVisitor;

impl<'de> Visitor<'de> for PatternVisitor {
    type Value = TextPattern;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a pattern such as {prefix: \"spiffe://prod/\"}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextPattern, E> {
        Ok(TextPattern {
            is: TextIs::Exactly(text.to_owned()),
            ignore_case: false,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextPattern, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            #[serde(default)]
            contains: Option<NonEmpty>,
            #[serde(default)]
            exact: Option<String>,
            #[serde(default)]
            ignore_case: bool,
            #[serde(default)]
            prefix: Option<NonEmpty>,
            #[serde(default)]
            regex: Option<Regex>,
            #[serde(default)]
            suffix: Option<NonEmpty>,
        }

        let raw = Raw::deserialize(MapAccessDeserializer::new(map))?;
        let fields = PatternFields {
            contains: raw.contains,
            exact: raw.exact,
            prefix: raw.prefix,
            regex: raw.regex,
            suffix: raw.suffix,
            ignore_case: raw.ignore_case,
        };
        match <[TextPattern; 1]>::try_from(fields.given()?) {
            Ok([pattern]) => Ok(pattern),
            Err(given) => {
                let count = given.len();
                Err(A::Error::custom(format_args!(
                    "expected exactly one of contains, exact, prefix, regex, suffix, got {count}"
                )))
            }
        }
    }
}
