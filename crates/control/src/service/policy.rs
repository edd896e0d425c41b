//! The balancing policy of a service. Its bounds are those of gRPC (gRFC A42, A48), so that a bad
//! value is refused here and not by the clients.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// The largest ring (gRFC A42).
const MAX_RING: u32 = 8 << 20;

/// The way in which calls are spread over the endpoints of a locality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Policy {
    LeastRequest {
        /// The number of endpoints that are compared for a call.
        choices: Option<u32>,
    },
    PickFirst {
        shuffle: bool,
    },
    RingHash {
        min: Option<u32>,
        max: Option<u32>,
    },
    #[default]
    RoundRobin,
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = Policy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, such as least_request or {least_request: {choices: 3}}")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Policy, E> {
        match name {
            "least_request" => Ok(Policy::LeastRequest { choices: None }),
            "pick_first" => Ok(Policy::PickFirst { shuffle: false }),
            "ring_hash" => Ok(Policy::RingHash {
                min: None,
                max: None,
            }),
            "round_robin" => Ok(Policy::RoundRobin),
            other => {
                let known = &["least_request", "pick_first", "ring_hash", "round_robin"];
                Err(E::unknown_variant(other, known))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Policy, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            #[serde(default)]
            least_request: Option<LeastRequest>,
            #[serde(default)]
            pick_first: Option<PickFirst>,
            #[serde(default)]
            ring_hash: Option<RingHash>,
            #[serde(default)]
            round_robin: Option<RoundRobin>,
        }

        let raw = Raw::deserialize(MapAccessDeserializer::new(map))?;
        let mut given = [
            raw.least_request.map(|it| Policy::LeastRequest {
                choices: it.choices,
            }),
            raw.pick_first.map(|it| Policy::PickFirst {
                shuffle: it.shuffle,
            }),
            raw.ring_hash.map(|it| Policy::RingHash {
                min: it.min,
                max: it.max,
            }),
            raw.round_robin.map(|RoundRobin {}| Policy::RoundRobin),
        ]
        .into_iter()
        .flatten();
        match (given.next(), given.next()) {
            (Some(policy), None) => Ok(policy),
            _ => Err(A::Error::custom("expected exactly one policy")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "settings, such as {choices: 3}")]
struct LeastRequest {
    #[serde(default, deserialize_with = "choices")]
    choices: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "settings, such as {shuffle: true}")]
struct PickFirst {
    #[serde(default)]
    shuffle: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "settings: {}, because it has none")]
struct RoundRobin {}

struct RingHash {
    min: Option<u32>,
    max: Option<u32>,
}

impl<'de> Deserialize<'de> for RingHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "settings, such as {min_ring_size: 1024, max_ring_size: 4096}"
        )]
        struct Raw {
            #[serde(default, deserialize_with = "ring_size")]
            min_ring_size: Option<u32>,
            #[serde(default, deserialize_with = "ring_size")]
            max_ring_size: Option<u32>,
        }

        let Raw {
            min_ring_size: min,
            max_ring_size: max,
        } = Raw::deserialize(deserializer)?;
        if min.zip(max).is_some_and(|(min, max)| min > max) {
            let message = "expected a `min_ring_size` of at most `max_ring_size`";
            return Err(D::Error::custom(message));
        }
        Ok(Self { min, max })
    }
}

fn choices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let choices = u32::deserialize(deserializer)?;
    if choices < 2 {
        let message = format_args!("expected at least 2 choices, got {choices}");
        return Err(D::Error::custom(message));
    }
    Ok(Some(choices))
}

fn ring_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let size = u32::deserialize(deserializer)?;
    if !(1..=MAX_RING).contains(&size) {
        let message = format_args!("expected a number from 1 to {MAX_RING}, got {size}");
        return Err(D::Error::custom(message));
    }
    Ok(Some(size))
}
