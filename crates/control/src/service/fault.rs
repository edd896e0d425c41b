//! The faults that a route injects, to test how callers cope (gRFC A33).

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::text::{Percent, Time};

/// The faults of a route.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) delay: Option<Delay>,
    pub(crate) abort: Option<Abort>,
    /// The largest number of calls that have a fault at one time; no limit if it is not given.
    pub(crate) max_active: Option<u32>,
}

/// A delay of some calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delay {
    /// The time, or `None` if a header of the call has it.
    pub(crate) fixed: Option<Time>,
    pub(crate) fraction: Percent,
}

/// A failure of some calls, which then reach no server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Abort {
    /// The status, or `None` if a header of the call has it.
    pub(crate) status: Option<Status>,
    pub(crate) fraction: Percent,
}

/// The statuses of gRPC that a failed call can have.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub(crate) enum Status {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "faults, such as {abort: {status: unavailable, fraction: 1%}}, or none"
        )]
        struct Raw {
            #[serde(default)]
            delay: Option<Delay>,
            #[serde(default)]
            abort: Option<Abort>,
            #[serde(default)]
            max_active: Option<u32>,
        }

        let Raw {
            delay,
            abort,
            max_active,
        } = Raw::deserialize(deserializer)?;
        if delay.is_none() && abort.is_none() {
            return Err(D::Error::custom(
                "expected `delay`, `abort` or both, got neither",
            ));
        }
        Ok(Self {
            delay,
            abort,
            max_active,
        })
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a delay, such as {fixed: 100ms, fraction: 5%}"
        )]
        struct Raw {
            #[serde(default)]
            fixed: Option<Time>,
            #[serde(default)]
            by_header: bool,
            #[serde(default)]
            fraction: Percent,
        }

        let Raw {
            fixed,
            by_header,
            fraction,
        } = Raw::deserialize(deserializer)?;
        either::<D::Error>("fixed", fixed.is_some(), by_header)?;
        Ok(Self { fixed, fraction })
    }
}

impl<'de> Deserialize<'de> for Abort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "an abort, such as {status: unavailable, fraction: 1%}"
        )]
        struct Raw {
            #[serde(default)]
            status: Option<Status>,
            #[serde(default)]
            by_header: bool,
            #[serde(default)]
            fraction: Percent,
        }

        let Raw {
            status,
            by_header,
            fraction,
        } = Raw::deserialize(deserializer)?;
        either::<D::Error>("status", status.is_some(), by_header)?;
        Ok(Self { status, fraction })
    }
}

fn either<E: Error>(key: &str, has_value: bool, by_header: bool) -> Result<(), E> {
    match (has_value, by_header) {
        (true, true) => Err(E::custom(format_args!(
            "expected either `{key}` or `by_header: true`, got both"
        ))),
        (false, false) => Err(E::custom(format_args!(
            "expected a field `{key}`, or `by_header: true`"
        ))),
        _ => Ok(()),
    }
}
