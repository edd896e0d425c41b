//! The routes of a service: where calls go, and how they are treated on the way. Their order
//! counts, because the first route that is for a call decides about it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::fault::Fault;
use super::hash::HashPart;
use super::matching::Match;
use super::retry::Retry;
use super::session::RouteAffinity;
use super::setting::Setting;
use super::text::{Percent, Time};

/// One route. The first route that is for a call decides about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) matches: Match,
    /// The place that calls go to, or `None` for the service itself.
    pub(crate) target: Option<Target>,
    pub(crate) timeout: Setting<Time>,
    pub(crate) retry: Setting<Retry>,
    pub(crate) fault: Setting<Fault>,
    pub(crate) hash: Setting<Vec<HashPart>>,
    pub(crate) session_affinity: Setting<RouteAffinity>,
}

/// The services that calls go to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Service(String),
    Split(Split),
}

/// Services, each with its share of the calls. The sum of the shares is from 1 to 4294967295, because
/// gRPC refuses others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split(pub(crate) Vec<(String, u32)>);

impl Route {
    /// The names of the services that calls go to, with the key that each is under.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let (single, split) = match &self.target {
            None => (None, None),
            Some(Target::Service(name)) => (Some(("to", name)), None),
            Some(Target::Split(split)) => (None, Some(split)),
        };
        let split = split.into_iter().flat_map(|split| &split.0);
        single
            .into_iter()
            .chain(split.map(|(name, _)| ("split", name)))
    }
}

impl<'de> Deserialize<'de> for Route {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "a route, such as {match: {path: /package.Service/Method}, to: reports}"
        )]
        struct Raw {
            #[serde(default)]
            r#match: Match,
            #[serde(default)]
            to: Option<String>,
            #[serde(default)]
            split: Option<Split>,
            #[serde(default)]
            timeout: Setting<Time>,
            #[serde(default)]
            retry: Setting<Retry>,
            #[serde(default)]
            fault: Setting<Fault>,
            #[serde(default)]
            hash: Setting<Vec<HashPart>>,
            #[serde(default)]
            session_affinity: Setting<RouteAffinity>,
        }

        let raw = Raw::deserialize(deserializer)?;
        let target = match (raw.to, raw.split) {
            (None, None) => None,
            (Some(name), None) => Some(Target::Service(name)),
            (None, Some(split)) => Some(Target::Split(split)),
            (Some(_), Some(_)) => {
                let message = "expected either `to` or `split`, got both";
                return Err(D::Error::custom(message));
            }
        };
        Ok(Self {
            matches: raw.r#match,
            target,
            timeout: raw.timeout,
            retry: raw.retry,
            fault: raw.fault,
            hash: raw.hash,
            session_affinity: raw.session_affinity,
        })
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SplitVisitor)
    }
}

struct SplitVisitor;

impl<'de> Visitor<'de> for SplitVisitor {
    type Value = Split;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("services with their shares, such as {payments: 90%, payments-v2: 10%}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Split, A::Error> {
        let mut weights = Vec::new();
        let mut percents = Vec::new();
        while let Some((name, share)) = map.next_entry::<String, Share>()? {
            match share {
                Share::Weight(weight) => weights.push((name, weight)),
                Share::Percent(percent) => percents.push((name, percent)),
            }
        }
        match (weights.is_empty(), percents.is_empty()) {
            (true, true) => Err(A::Error::custom("expected at least one service, got none")),
            (false, false) => {
                let message = "expected either weights or percentages, got both";
                Err(A::Error::custom(message))
            }
            (false, true) => by_weight(weights),
            (true, false) => by_percent(&percents),
        }
    }
}

fn by_weight<E: Error>(weights: Vec<(String, u32)>) -> Result<Split, E> {
    let sum: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    if (1..=u64::from(u32::MAX)).contains(&sum) {
        return Ok(Split(weights));
    }
    let message = format_args!("expected weights that add up to 1 to 4294967295, got {sum}");
    Err(E::custom(message))
}

fn by_percent<E: Error>(percents: &[(String, Percent)]) -> Result<Split, E> {
    let millionths = percents.iter().map(|(_, percent)| percent.millionths());
    let sum: u64 = millionths.clone().map(u64::from).sum();
    let all = u64::from(Percent::ALL.millionths());
    if sum != all {
        // At most 4 decimals, so no rounding is seen.
        let sum = sum as f64 / 10_000.0;
        let message = format_args!("expected percentages that add up to 100%, got {sum}%");
        return Err(E::custom(message));
    }
    let unit = [10_000, 100, 1]
        .into_iter()
        .find(|unit| millionths.clone().all(|of| of % unit == 0))
        .unwrap_or(1);
    let weights = percents
        .iter()
        .map(|(name, percent)| (name.clone(), percent.millionths() / unit));
    Ok(Split(weights.collect()))
}

/// The share of one service.
enum Share {
    Percent(Percent),
    Weight(u32),
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShareVisitor;

        impl Visitor<'_> for ShareVisitor {
            type Value = Share;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a weight from 0 to 4294967295, or a percentage such as 12.5%")
            }

            fn visit_u64<E: Error>(self, weight: u64) -> Result<Share, E> {
                let got = serde::de::Unexpected::Unsigned(weight);
                let weight = u32::try_from(weight);
                weight
                    .map(Share::Weight)
                    .map_err(|_| E::invalid_value(got, &self))
            }

            fn visit_i64<E: Error>(self, weight: i64) -> Result<Share, E> {
                let got = serde::de::Unexpected::Signed(weight);
                let weight = u32::try_from(weight);
                weight
                    .map(Share::Weight)
                    .map_err(|_| E::invalid_value(got, &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Share, E> {
                let got = serde::de::Unexpected::Str(text);
                let percent = Percent::parse(text).map(Share::Percent);
                percent.ok_or_else(|| E::invalid_value(got, &self))
            }
        }

        deserializer.deserialize_any(ShareVisitor)
    }
}
