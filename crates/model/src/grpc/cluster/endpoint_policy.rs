//! Policies that choose one endpoint of a list, and the limits of their settings.
//!
//! A cluster can name a policy in an old field or in a new one. The limits are in one place, because they are the same
//! for both fields.

use envoy_types::pb::{
    envoy::{
        config::cluster::v3::cluster::{
            LeastRequestLbConfig, RingHashLbConfig, ring_hash_lb_config,
        },
        extensions::load_balancing_policies::{
            least_request::v3::LeastRequest,
            pick_first::v3::PickFirst,
            ring_hash::v3::{RingHash, ring_hash},
            round_robin::v3::RoundRobin,
        },
    },
    google::protobuf::{Any, UInt32Value},
};
use prost::{Message, Name};

use super::CustomPolicyConfig;
use crate::{Validator, wire};

/// The policy by which calls are spread over a list of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointPolicy {
    /// A policy of the program's own decides (gRFC A52).
    Custom(CustomPolicyConfig),
    /// Some endpoints are drawn, and the one with the fewest open calls gets the call (gRFC A48).
    LeastRequest {
        /// The number of endpoints that are drawn for each call: 2 to 10.
        choice_count: u32,
    },
    /// The first endpoint that can be reached gets all calls (gRFC A62).
    PickFirst {
        /// True if the client first puts the endpoints in a random order.
        shuffle: bool,
    },
    /// The call's hash chooses an endpoint on a ring (gRFC A42).
    RingHash(RingSizeBounds),
    /// The endpoints get calls in turn.
    RoundRobin,
}

/// The limits for the number of entries of a hash ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizeBounds {
    /// The least number of entries; not more than `max`.
    pub min: u64,
    /// The greatest number of entries; not more than [`RingSizeBounds::LIMIT`].
    pub max: u64,
}

impl RingSizeBounds {
    /// No ring may be larger (gRFC A42).
    pub const LIMIT: u64 = 8 * 1024 * 1024;
    const DEFAULT_MIN: u64 = 1024;
}

/// A greater `choice_count` is read as this one, because more choices cost more than they gain (gRFC A48).
const MAX_CHOICES: u32 = 10;
const DEFAULT_CHOICES: u32 = 2;

/// `None` if the policy is not known; `Some(None)` after an error.
pub(super) fn parse(name: &str, any: &Any, v: &mut Validator) -> Option<Option<EndpointPolicy>> {
    let parsed = if name == RoundRobin::full_name() {
        decode::<RoundRobin>(any, v).map(|_| EndpointPolicy::RoundRobin)
    } else if name == PickFirst::full_name() {
        decode::<PickFirst>(any, v).map(|proto| EndpointPolicy::PickFirst {
            shuffle: proto.shuffle_address_list,
        })
    } else if name == LeastRequest::full_name() {
        decode::<LeastRequest>(any, v).and_then(|proto| choose(proto.choice_count, v))
    } else if name == RingHash::full_name() {
        decode::<RingHash>(any, v).and_then(|proto| parse_ring_hash(&proto, v))
    } else {
        return None;
    };
    Some(parsed)
}

/// Reads `least_request` from the settings that go with `lb_policy`.
pub(super) fn classic_least_request(
    proto: Option<&LeastRequestLbConfig>,
    v: &mut Validator,
) -> Option<EndpointPolicy> {
    v.field("least_request_lb_config", |v| {
        let count = proto.and_then(|proto| proto.choice_count);
        choose(count, v)
    })
}

/// Reads `ring_hash` from the settings that go with `lb_policy`.
pub(super) fn classic_ring_hash(
    proto: Option<&RingHashLbConfig>,
    v: &mut Validator,
) -> Option<EndpointPolicy> {
    v.field("ring_hash_lb_config", |v| {
        let function = proto.map_or(0, |proto| proto.hash_function);
        if function != ring_hash_lb_config::HashFunction::XxHash as i32 {
            v.error_at("hash_function", "expected XX_HASH, got another");
        }
        let min = proto.and_then(|proto| proto.minimum_ring_size);
        let max = proto.and_then(|proto| proto.maximum_ring_size);
        ring_hash(min.map(|min| min.value), max.map(|max| max.value), SIZES, v)
    })
}

fn parse_ring_hash(proto: &RingHash, v: &mut Validator) -> Option<EndpointPolicy> {
    use ring_hash::HashFunction::{DefaultHash, XxHash};
    if ![DefaultHash as i32, XxHash as i32].contains(&proto.hash_function) {
        v.error_at("hash_function", "expected XX_HASH, got another");
    }
    let min = proto.minimum_ring_size.map(|min| min.value);
    let max = proto.maximum_ring_size.map(|max| max.value);
    ring_hash(min, max, SIZES, v)
}

/// The fields of a message that has the sizes of a ring.
const SIZES: [&str; 2] = ["minimum_ring_size", "maximum_ring_size"];

/// Makes `ring_hash` with sizes that came from fields of these names; `None` after an error.
pub(super) fn ring_hash(
    min: Option<u64>,
    max: Option<u64>,
    [min_field, max_field]: [&str; 2],
    v: &mut Validator,
) -> Option<EndpointPolicy> {
    let limit = RingSizeBounds::LIMIT;
    let size = RingSizeBounds {
        min: min.unwrap_or(RingSizeBounds::DEFAULT_MIN),
        max: max.unwrap_or(limit),
    };
    let RingSizeBounds { min, max } = size;
    for (field, got) in [(min_field, min), (max_field, max)] {
        if got == 0 || got > limit {
            v.error_at(field, format!("expected 1 to {limit}, got {got}"));
        }
    }
    if min > max {
        v.error_at(
            min_field,
            format!("expected at most {max_field} ({max}), got {min}"),
        );
    }
    (!v.has_errors()).then_some(EndpointPolicy::RingHash(size))
}

fn choose(count: Option<UInt32Value>, v: &mut Validator) -> Option<EndpointPolicy> {
    least_request(count.map(|count| count.value), "choice_count", v)
}

/// Makes `least_request` with a number of choices that came from `field`; `None` after an error.
pub(super) fn least_request(
    choice_count: Option<u32>,
    field: &str,
    v: &mut Validator,
) -> Option<EndpointPolicy> {
    let count = choice_count.unwrap_or(DEFAULT_CHOICES);
    if count < DEFAULT_CHOICES {
        v.error_at(
            field,
            format!("expected at least {DEFAULT_CHOICES}, got {count}"),
        );
        return None;
    }
    Some(EndpointPolicy::LeastRequest {
        choice_count: count.min(MAX_CHOICES),
    })
}

pub(super) fn decode<P: Message + Default>(any: &Any, v: &mut Validator) -> Option<P> {
    wire::decode::<P>(&any.value)
        .inspect_err(|error| v.error(format!("cannot be decoded: {error}")))
        .ok()
}
