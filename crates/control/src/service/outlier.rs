//! The ejection of endpoints whose calls fail more often than others' do (gRFC A50). A percentage
//! with which no endpoint would ever be ejected is refused, because it would have no effect.

use std::num::NonZeroU32;

use crowfly_model::grpc::cluster::OutlierDetection as Read;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::text::{Percent, Time, parsed, unlike};

/// Millionths in one percent.
const PERCENT: u32 = 10_000;

/// The largest factor of the standard deviation. Useful factors are below 10.
const MAX_FACTOR: f64 = 1_000.0;

/// Outlier detection. A value that is not given has the default of gRFC A50.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutlierDetection {
    /// The time between looks at the calls of all endpoints.
    pub(crate) interval: Option<Time>,
    pub(crate) ejection: Ejection,
    pub(crate) success_rate: Option<SuccessRate>,
    pub(crate) failure_percentage: Option<FailurePercentage>,
}

/// The time that an ejected endpoint gets no calls, and how many can be ejected at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ejection {
    /// The time of the first ejection. Each further one is longer by as much.
    pub(crate) base: Option<Time>,
    /// The longest time.
    pub(crate) max: Option<Time>,
    /// The largest percentage of endpoints that are ejected at a time.
    pub(crate) max_percent: Option<u32>,
}

/// Ejects endpoints whose share of successful calls is far below the mean.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "settings, such as {stdev_factor: 1.9, min_calls: 100}"
)]
pub(crate) struct SuccessRate {
    /// The distance from the mean, in thousandths of the standard deviation.
    #[serde(default, rename = "stdev_factor", deserialize_with = "thousandths")]
    pub(crate) stdev_thousandths: Option<u32>,
    /// The percentage of the outliers that are ejected.
    #[serde(default = "all", deserialize_with = "enforced")]
    pub(crate) enforce: u32,
    #[serde(default)]
    pub(crate) min_endpoints: Option<NonZeroU32>,
    /// The number of calls in an interval without which an endpoint is not judged.
    #[serde(default)]
    pub(crate) min_calls: Option<NonZeroU32>,
}

/// Ejects endpoints of whose calls more than a percentage fails.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "settings, such as {threshold: 85%, min_calls: 50}"
)]
pub(crate) struct FailurePercentage {
    #[serde(default, deserialize_with = "threshold")]
    pub(crate) threshold: Option<u32>,
    /// The percentage of the outliers that are ejected.
    #[serde(default = "all", deserialize_with = "enforced")]
    pub(crate) enforce: u32,
    #[serde(default)]
    pub(crate) min_endpoints: Option<NonZeroU32>,
    /// The number of calls in an interval without which an endpoint is not judged.
    #[serde(default)]
    pub(crate) min_calls: Option<NonZeroU32>,
}

impl<'de> Deserialize<'de> for OutlierDetection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "outlier detection, such as {failure_percentage: {threshold: 85%}}"
        )]
        struct Raw {
            #[serde(default)]
            interval: Option<Time>,
            #[serde(default)]
            ejection: Ejection,
            #[serde(default)]
            success_rate: Option<SuccessRate>,
            #[serde(default)]
            failure_percentage: Option<FailurePercentage>,
        }

        let Raw {
            interval,
            ejection,
            success_rate,
            failure_percentage,
        } = Raw::deserialize(deserializer)?;
        if success_rate.is_none() && failure_percentage.is_none() {
            return Err(D::Error::custom(
                "expected `success_rate`, `failure_percentage` or both, got neither",
            ));
        }
        let shortest = Read::SHORTEST_INTERVAL;
        if interval.is_some_and(|interval| interval.0 < shortest) {
            return Err(D::Error::custom(format_args!(
                "expected an `interval` of at least {shortest:?}"
            )));
        }
        Ok(Self {
            interval,
            ejection,
            success_rate,
            failure_percentage,
        })
    }
}

impl<'de> Deserialize<'de> for Ejection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "ejection times, such as {base: 30s, max: 5m, max_percent: 10%}"
        )]
        struct Raw {
            #[serde(default)]
            base: Option<Time>,
            #[serde(default)]
            max: Option<Time>,
            #[serde(default, deserialize_with = "max_percent")]
            max_percent: Option<u32>,
        }

        let Raw {
            base,
            max,
            max_percent,
        } = Raw::deserialize(deserializer)?;
        let default_base = Time::from_secs(30);
        if max.is_some_and(|max| max < base.unwrap_or(default_base)) {
            let message = "expected a `max` of at least `base`, which is 30s if it is not given";
            return Err(D::Error::custom(message));
        }
        Ok(Self {
            base,
            max,
            max_percent,
        })
    }
}

fn all() -> u32 {
    100
}

/// Reads a percentage of ejections. 0% would be outlier detection that does nothing.
fn enforced<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    parsed(deserializer, "a whole percentage from 1% to 100%", |text| {
        whole(text, 1..=100)
    })
}

/// Reads the largest percentage of ejected endpoints. With 0% none would ever be ejected.
fn max_percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    enforced(deserializer).map(Some)
}

/// Reads the percentage of failed calls. With 100% nothing would ever be ejected, because an endpoint
/// is ejected above the threshold.
fn threshold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let expected = "a whole percentage from 0% to 99%, above which an endpoint is ejected";
    let threshold = parsed(deserializer, expected, |text| whole(text, 0..=99))?;
    Ok(Some(threshold))
}

/// Reads a percentage without decimals, because xDS has no finer ones here.
fn whole(text: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let Some(percent) = Percent::parse(text) else {
        return unlike();
    };
    let (whole, rest) = (
        percent.millionths() / PERCENT,
        percent.millionths() % PERCENT,
    );
    if rest == 0 && range.contains(&whole) {
        Ok(whole)
    } else {
        unlike()
    }
}

fn thousandths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    let thousandths = (factor * 1_000.0).round();
    let is_exact = (factor * 1_000.0 - thousandths).abs() < 1e-6;
    if !is_exact || !(0.0..=MAX_FACTOR).contains(&factor) {
        return Err(D::Error::custom(format_args!(
            "expected a number from 0 to {MAX_FACTOR} with at most 3 decimals, got {factor}"
        )));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million, and not negative"
    )]
    let thousandths = thousandths as u32;
    Ok(Some(thousandths))
}
