//! The calls that a route is for (gRFC A28). Paths and prefixes are checked here, because gRPC
//! leaves out a route whose path no call can have.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::pattern::{PatternFields, TextPattern};
use super::text::{HeaderName, NonEmpty, Percent, Regex, parsed, unlike};

/// The calls that a route is for; all of them, if nothing is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) path: PathMatch,
    pub(crate) headers: Vec<HeaderMatch>,
    pub(crate) fraction: Option<Percent>,
}

/// A condition on the path of a call, which is `/package.Service/Method`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum PathMatch {
    #[default]
    All,
    Exactly {
        path: String,
        ignore_case: bool,
    },
    /// The whole path must match.
    Like(Regex),
    StartingWith {
        prefix: String,
        ignore_case: bool,
    },
}

/// A condition on a header of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderMatch {
    pub(crate) name: HeaderName,
    pub(crate) value: ValueMatch,
    /// True if the route is for calls that do not fulfil the condition.
    pub(crate) not: bool,
}

/// A condition on the value of a header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueMatch {
    /// The header must be there, or must not.
    Present(bool),
    Range(Range),
    Text(TextPattern),
}

/// Whole numbers from `from` to below `below`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) from: i64,
    pub(crate) below: i64,
}

impl Match {
    /// True if the route is for all calls.
    pub(crate) fn is_everything(&self) -> bool {
        let is_every_path = match &self.path {
            PathMatch::All => true,
            PathMatch::StartingWith { prefix, .. } => prefix == "/",
            PathMatch::Exactly { .. } | PathMatch::Like(_) => false,
        };
        let is_every_time = self.fraction.unwrap_or(Percent::ALL) == Percent::ALL;
        is_every_path && is_every_time && self.headers.is_empty()
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a match, such as {path: /package.Service/Method}"
        )]
        struct Raw {
            #[serde(default, deserialize_with = "path")]
            path: Option<String>,
            #[serde(default, deserialize_with = "prefix")]
            prefix: Option<String>,
            #[serde(default)]
            regex: Option<Regex>,
            #[serde(default)]
            ignore_case: bool,
            #[serde(default)]
            headers: Vec<HeaderMatch>,
            #[serde(default)]
            fraction: Option<Percent>,
        }

        let raw = Raw::deserialize(deserializer)?;
        let ignore_case = raw.ignore_case;
        let path = match (raw.path, raw.prefix, raw.regex) {
            (None, None, Some(_)) if ignore_case => {
                let message =
                    "expected no `ignore_case` with `regex`; the expression can begin with (?i)";
                return Err(D::Error::custom(message));
            }
            (None, None, None) if ignore_case => {
                let message = "expected `ignore_case` with `path` or `prefix` only";
                return Err(D::Error::custom(message));
            }
            (None, None, None) => PathMatch::All,
            (Some(path), None, None) => PathMatch::Exactly { path, ignore_case },
            (None, Some(prefix), None) => PathMatch::StartingWith {
                prefix,
                ignore_case,
            },
            (None, None, Some(regex)) => PathMatch::Like(regex),
            _ => {
                let message = "expected one of path, prefix and regex, got several";
                return Err(D::Error::custom(message));
            }
        };
        Ok(Self {
            path,
            headers: raw.headers,
            fraction: raw.fraction,
        })
    }
}

impl<'de> Deserialize<'de> for HeaderMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a condition on a header, such as {name: x-tier, exact: gold}"
        )]
        struct Raw {
            name: HeaderName,
            #[serde(default)]
            contains: Option<NonEmpty>,
            #[serde(default)]
            exact: Option<String>,
            #[serde(default)]
            prefix: Option<NonEmpty>,
            #[serde(default)]
            present: Option<bool>,
            #[serde(default)]
            range: Option<Range>,
            #[serde(default)]
            regex: Option<Regex>,
            #[serde(default)]
            suffix: Option<NonEmpty>,
            #[serde(default)]
            ignore_case: bool,
            #[serde(default)]
            not: bool,
        }

        let raw = Raw::deserialize(deserializer)?;
        let is_text = raw.present.is_none() && raw.range.is_none();
        if raw.ignore_case && !is_text {
            let message = "expected `ignore_case` with a text only";
            return Err(D::Error::custom(message));
        }
        let texts = PatternFields {
            contains: raw.contains,
            exact: raw.exact,
            prefix: raw.prefix,
            regex: raw.regex,
            suffix: raw.suffix,
            ignore_case: raw.ignore_case,
        };
        let texts = texts.given()?.into_iter().map(ValueMatch::Text);
        let others = [
            raw.present.map(ValueMatch::Present),
            raw.range.map(ValueMatch::Range),
        ];
        let given: Vec<_> = texts.chain(others.into_iter().flatten()).collect();
        let [value] = <[ValueMatch; 1]>::try_from(given).map_err(|given| {
            let count = given.len();
            D::Error::custom(format_args!(
                "expected exactly one of contains, exact, prefix, present, range, regex, suffix, \
                 got {count}"
            ))
        })?;
        Ok(Self {
            name: raw.name,
            value,
            not: raw.not,
        })
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a range, such as {from: 0, below: 10}"
        )]
        struct Raw {
            from: i64,
            below: i64,
        }

        let Raw { from, below } = Raw::deserialize(deserializer)?;
        if from >= below {
            let message = format_args!("expected `from` below `below`, got {from} and {below}");
            return Err(D::Error::custom(message));
        }
        Ok(Self { from, below })
    }
}

/// Reads a path. gRPC leaves out a route with a path of any other form (gRFC A28).
fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    parsed(
        deserializer,
        "a path, such as /package.Service/Method",
        |text| {
            let parts: Vec<_> = text.split('/').collect();
            match parts[..] {
                ["", service, method] if !service.is_empty() && !method.is_empty() => {
                    Ok(Some(text.to_owned()))
                }
                _ => unlike(),
            }
        },
    )
}

/// Reads a prefix. gRPC leaves out a route with a prefix of any other form (gRFC A28).
fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    parsed(
        deserializer,
        "a prefix, such as /package.Service/",
        |text| {
            let parts: Vec<_> = text.split('/').collect();
            match parts[..] {
                ["", _] => Ok(Some(text.to_owned())),
                ["", service, _] if !service.is_empty() => Ok(Some(text.to_owned())),
                _ => unlike(),
            }
        },
    )
}
