//! Values of settings. Each type is read from a flag and from a file in the same way, so that a
//! value is written alike in both.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

use crate::args;

/// A time of more than zero, such as `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        args::positive_duration(text).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The room of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(pub u32);

impl Room {
    const MOST: u32 = 1 << 24;

    fn new(room: u32) -> Result<Self, String> {
        match (1..=Self::MOST).contains(&room) {
            true => Ok(Self(room)),
            false => Err(format!("expected 1 to {}, got {room}", Self::MOST)),
        }
    }
}

impl FromStr for Room {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let room = text.parse().map_err(|_| "expected a number".to_owned())?;
        Self::new(room)
    }
}

impl<'de> Deserialize<'de> for Room {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u32::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A limit of time that can be off, by `off` or by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => {
                let limit = args::duration(text)?;
                Ok(Self((!limit.is_zero()).then_some(limit)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A value that is read from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<T: FromStr> FromStr for Parsed<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.parse().map(Self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Two settings that are given together or not at all.
///
/// # Errors
/// Only one of them is given.
pub(super) fn pair<A, B>(
    first: Option<A>,
    second: Option<B>,
    first_name: &str,
    second_name: &str,
) -> Result<Option<(A, B)>, String> {
    match (first, second) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!(
            "{first_name} is given, expected {second_name} with it"
        )),
        (None, Some(_)) => Err(format!(
            "{second_name} is given, expected {first_name} with it"
        )),
    }
}
