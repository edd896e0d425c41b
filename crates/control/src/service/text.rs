//! Values that are written as text and have a form of their own, such as durations and regular
//! expressions.
//!
//! Each is read at its place in the file, so that an error names the line and the key of the value.

use std::fmt;
use std::time::Duration;

use crowfly_model::grpc::{InvalidRegex, SafeRegex};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The largest number of seconds in a duration. Envoy accepts no more than 2^63 ns, and nobody waits
/// for a tenth of that.
const MAX_SECONDS: u128 = 1_000_000_000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Reads a text with `parse`. Its error is an explanation, or empty if `expected` says it all.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct TextVisitor<F> {
        expected: &'static str,
        parse: F,
    }

    impl<T, F: Fn(&str) -> Result<T, String>> Visitor<'_> for TextVisitor<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            let expected = self.expected;
            (self.parse)(text).map_err(|reason| match reason.as_str() {
                "" => E::custom(format_args!("expected {expected}, got {text:?}")),
                _ => E::custom(format_args!("expected {expected}, got {text:?}: {reason}")),
            })
        }
    }

    deserializer.deserialize_str(TextVisitor { expected, parse })
}

/// The error of a text that `expected` describes well enough.
pub(crate) fn unlike<T>() -> Result<T, String> {
    Err(String::new())
}

/// A time above zero, such as `1.5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a time above zero with its unit, such as 250ms, 1.5s or 2m";
        parsed(deserializer, expected, |text| {
            time(text).map_or_else(unlike, |duration| Ok(Self(duration)))
        })
    }
}

/// Reads numbers with units, such as `1m30s`.
fn time(text: &str) -> Option<Duration> {
    let mut nanos = 0_u128;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(unit);
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit: u32 = match unit {
            "us" => 3,
            "ms" => 6,
            "s" | "m" | "h" => 9,
            _ => return None,
        };
        let seconds = match &rest[number.len()..rest.len() - after.len()] {
            "m" => 60,
            "h" => 3600,
            _ => 1,
        };
        nanos += decimal(number, unit)?.checked_mul(seconds)?;
        rest = after.trim_start();
    }
    if nanos == 0 || nanos > MAX_SECONDS * NANOS_PER_SECOND {
        return None;
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
    let nanos = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// A decimal number times ten to the power of `scale`, if that is whole.
fn decimal(text: &str, scale: u32) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let missing = scale.checked_sub(u32::try_from(fraction.len()).ok()?);
    let is_zero = fraction.bytes().all(|byte| byte == b'0');
    if !is_number(whole) || !is_number(fraction) || whole.len() > 12 {
        return None;
    }
    let whole = whole.parse::<u128>().ok()? * 10_u128.pow(scale);
    match missing {
        Some(missing) => Some(whole + fraction.parse::<u128>().ok()? * 10_u128.pow(missing)),
        None => is_zero.then_some(whole),
    }
}

/// A part of all calls, such as `12.5%`, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(u32);

impl Percent {
    pub(crate) const ALL: Self = Self(1_000_000);

    /// Reads a number of at most 4 decimals and a percent sign.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let millionths = decimal(text.strip_suffix('%')?.trim_end(), 4)?;
        let millionths = u32::try_from(millionths).ok().map(Self);
        millionths.filter(|percent| percent.0 <= Self::ALL.0)
    }

    pub(crate) fn millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

impl Default for Percent {
    fn default() -> Self {
        Self::ALL
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a percentage from 0% to 100% with at most 4 decimals, such as 12.5%";
        parsed(deserializer, expected, |text| {
            Self::parse(text).map_or_else(unlike, Ok)
        })
    }
}

/// A regular expression that clients accept, in RE2's syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regex(pub(crate) String);

impl<'de> Deserialize<'de> for Regex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, "a regular expression of RE2", |text| {
            let read: Result<SafeRegex, _> = text.parse();
            let error = |error: InvalidRegex| one_line(&error.to_string());
            read.map(|_| Self(text.to_owned())).map_err(error)
        })
    }
}

/// The last line of a message of several lines, which is the one that has the reason.
fn one_line(message: &str) -> String {
    let last = message.lines().last().unwrap_or(message);
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// A text of at least one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NonEmpty(pub(crate) String);

impl<'de> Deserialize<'de> for NonEmpty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(
            deserializer,
            "a text that is not empty",
            |text| match text {
                "" => unlike(),
                text => Ok(Self(text.to_owned())),
            },
        )
    }
}

/// The name of a header, in lower case as HTTP/2 has it. Binary headers are refused, because gRPC
/// ignores them when it chooses a route (gRFC A28) and when it hashes (gRFC A42).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderName(pub(crate) String);

impl<'de> Deserialize<'de> for HeaderName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, "the name of a header", |text| {
            let name = text.to_ascii_lowercase();
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) {
                return unlike();
            }
            if name.ends_with("-bin") {
                return Err("gRPC does not match binary headers".to_owned());
            }
            Ok(Self(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, nanos) in [
            ("25ms", 25_000_000),
            ("2s", 2_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25ms", 250_000),
            ("100us", 100_000),
            ("2m", 120_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h 0.5m", 3_630_000_000_000),
            ("1.0000000000s", 1_000_000_000),
        ] {
            assert_eq!(time(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "2",
            "s",
            "2 s",
            "-1s",
            "0s",
            "1.s",
            ".5s",
            "1..5s",
            "2sec",
            "1d",
            "5ms!",
            "2000000000s",
            "0.0000000001s",
            "99999999999999h",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn percentages_have_a_sign_and_four_decimals() {
        for (text, millionths) in [
            ("0%", 0),
            ("10%", 100_000),
            ("12.5%", 125_000),
            ("0.0001%", 1),
            ("100 %", 1_000_000),
        ] {
            assert_eq!(Percent::parse(text), Some(Percent(millionths)), "{text}");
        }
        for text in ["", "%", "10", "0.1", "100.0001%", "0.00001%", "-1%", "ten%"] {
            assert_eq!(Percent::parse(text), None, "{text}");
        }
        assert_eq!(Percent(125_000).to_string(), "12.5%");
    }
}
