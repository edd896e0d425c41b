//! The retries of a route (gRFC A44). Values that gRPC does not obey, or that lose calls, are
//! refused with the reason.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected};

use super::text::Time;

/// The bounds of `attempts`. gRPC makes at most 5, however many are asked for (gRFC A6).
const ATTEMPTS: std::ops::RangeInclusive<u32> = 2..=5;

/// The least time before a retry. With 1 ms, gRPC C-core 1.85 lets a third of such calls wait until their
/// deadline.
const MIN_BASE: Duration = Duration::from_millis(2);

/// The retries of calls that fail.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "retries, such as {attempts: 3, when: [unavailable]}, or none"
)]
pub(crate) struct Retry {
    /// The largest number of attempts of a call, the first included.
    #[serde(deserialize_with = "attempts")]
    pub(crate) attempts: u32,
    /// The statuses after which a call is tried again.
    #[serde(default = "unavailable", deserialize_with = "statuses")]
    pub(crate) when: Vec<Retriable>,
    /// The time between attempts.
    #[serde(default)]
    pub(crate) backoff: Option<Backoff>,
}

/// The statuses that gRPC can retry by xDS (gRFC A44).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Retriable {
    Cancelled,
    DeadlineExceeded,
    Internal,
    ResourceExhausted,
    Unavailable,
}

/// The time before a retry, which is random. It is at most `base` before the first one, twice as
/// much before each further one, and never more than `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    pub(crate) base: Time,
    /// Ten times `base`, if it is not given.
    pub(crate) max: Option<Time>,
}

impl Retriable {
    /// The name in `retry_on`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::Internal => "internal",
            Self::ResourceExhausted => "resource-exhausted",
            Self::Unavailable => "unavailable",
        }
    }
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a backoff, such as {base: 25ms, max: 250ms}"
        )]
        struct Raw {
            base: Time,
            #[serde(default)]
            max: Option<Time>,
        }

        let Raw { base, max } = Raw::deserialize(deserializer)?;
        if base.0 < MIN_BASE {
            let message =
                "expected a `base` of at least 2ms, because gRPC C-core loses calls otherwise";
            return Err(D::Error::custom(message));
        }
        if max.is_some_and(|max| max < base) {
            return Err(D::Error::custom("expected a `max` of at least `base`"));
        }
        Ok(Self { base, max })
    }
}

fn attempts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let attempts = u32::deserialize(deserializer)?;
    if ATTEMPTS.contains(&attempts) {
        return Ok(attempts);
    }
    let got = Unexpected::Unsigned(attempts.into());
    let expected = "2 to 5 attempts, the first included, because gRPC makes no more";
    Err(D::Error::invalid_value(got, &expected))
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Retriable>, D::Error> {
    let statuses = Vec::deserialize(deserializer)?;
    if statuses.is_empty() {
        return Err(D::Error::custom("expected at least one status, got none"));
    }
    Ok(statuses)
}

fn unavailable() -> Vec<Retriable> {
    vec![Retriable::Unavailable]
}
