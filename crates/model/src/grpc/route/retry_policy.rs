//! The retry policy of a route (gRFC A44).
//!
//! Routes and virtual hosts have the retry policy of a proxy. gRFC A44 gives a few of its fields a meaning for gRPC.
//! The others are ignored. The rules are only here; the channel gets the result.

use std::{fmt, sync::Arc, time::Duration};

use envoy_types::pb::{
    envoy::config::route::v3::{HedgePolicy, RetryPolicy as Proto, retry_policy::RetryBackOff},
    google::protobuf::{self, Any},
};

use crate::{Validator, grpc::duration};

/// The attempts of a call have this limit, because a control plane must not multiply the load of a client
/// at will (gRFC A6).
const MAX_ATTEMPTS: u32 = 5;

/// The interval before the first retry, for a policy that sets none (gRFC A44).
const BASE_INTERVAL: Duration = Duration::from_millis(25);

/// A shorter interval is raised to it (gRFC A44).
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// The longest interval is this multiple of the first one, for a policy that sets none (gRFC A44).
const INTERVALS: u32 = 10;

/// The conditions of `retry_on` that gRPC knows, each with its status code (gRFC A44).
const CONDITIONS: [(&str, i32); 5] = [
    ("cancelled", 1),
    ("deadline-exceeded", 4),
    ("internal", 13),
    ("resource-exhausted", 8),
    ("unavailable", 14),
];

/// The rule by which failed attempts of a call are repeated.
///
/// ```
/// use crowfly_model::grpc::route::RetryPolicy;
///
/// let policy = RetryPolicy {
///     max_attempts: 3,
///     ..RetryPolicy::on([14].into_iter().collect())
/// };
/// assert!(policy.retry_on.contains(14));
/// assert_eq!(policy.base_interval.as_millis(), 25);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts of a call, the first one included: from 2 to 5.
    pub max_attempts: u32,
    /// The status codes after which there is another attempt; at least one.
    pub retry_on: StatusCodes,
    /// The time before the first retry. The time doubles with every further retry.
    pub base_interval: Duration,
    /// The longest time before a retry.
    pub max_interval: Duration,
}

impl RetryPolicy {
    /// The policy of a resource that sets nothing but the codes.
    pub fn on(retry_on: StatusCodes) -> Self {
        Self {
            max_attempts: 2,
            retry_on,
            base_interval: BASE_INTERVAL,
            max_interval: BASE_INTERVAL * INTERVALS,
        }
    }
}

/// A set of gRPC status codes.
///
/// ```
/// use crowfly_model::grpc::route::StatusCodes;
///
/// let codes: StatusCodes = [13, 14].into_iter().collect();
/// assert!(codes.contains(14) && !codes.contains(1));
/// assert_eq!(codes.to_string(), "internal, unavailable");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCodes(u32);

impl StatusCodes {
    /// True if the set has this code.
    pub fn contains(self, code: i32) -> bool {
        self.0 & bit(code) != 0
    }

    /// True if the set has no code.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<i32> for StatusCodes {
    fn from_iter<I: IntoIterator<Item = i32>>(codes: I) -> Self {
        Self(codes.into_iter().map(bit).fold(0, |set, bit| set | bit))
    }
}

/// The words are those of `retry_on`, because a user looks for them in the configuration.
impl fmt::Display for StatusCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CONDITIONS
            .into_iter()
            .filter(|(_, code)| self.contains(*code));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        f.write_str(&names.join(", "))
    }
}

/// The code as a bit. A code that is not gRPC's has none.
fn bit(code: i32) -> u32 {
    match u32::try_from(code) {
        Ok(code @ 0..=16) => 1 << code,
        _ => 0,
    }
}

/// A retry policy as a resource sets it. A policy that repeats nothing is not the same as no policy. The policy of a
/// route also replaces the one of its virtual host (gRFC A44).
#[derive(Clone, Debug)]
pub(super) enum Setting {
    Unset,
    Set(Option<Arc<RetryPolicy>>),
}

impl Setting {
    /// Reads the policy at the field `retry_policy`.
    pub(super) fn parse(proto: Option<&Proto>, v: &mut Validator) -> Self {
        match proto {
            Some(proto) => Self::Set(v.field("retry_policy", |v| parse(proto, v)).map(Arc::new)),
            None => Self::Unset,
        }
    }

    /// The policy of a route in a virtual host with the policy `host`.
    pub(super) fn within(self, host: &Self) -> Option<Arc<RetryPolicy>> {
        match (self, host) {
            (Self::Set(policy), _) => policy,
            (Self::Unset, Self::Set(policy)) => policy.clone(),
            (Self::Unset, Self::Unset) => None,
        }
    }
}

/// Reads a policy; `None` if it repeats nothing. The policy must be valid even then (gRFC A44).
fn parse(proto: &Proto, v: &mut Validator) -> Option<RetryPolicy> {
    let retries = proto.num_retries.map_or(1, |number| number.value);
    if retries == 0 {
        v.error_at("num_retries", "expected at least 1, got 0");
    }
    let (base_interval, max_interval) = match &proto.retry_back_off {
        Some(backoff) => v.field("retry_back_off", |v| parse_backoff(backoff, v)),
        None => (BASE_INTERVAL, BASE_INTERVAL * INTERVALS),
    };
    let retry_on: StatusCodes = conditions(proto).filter_map(code_of).collect();
    (!retry_on.is_empty()).then_some(RetryPolicy {
        max_attempts: retries.saturating_add(1).min(MAX_ATTEMPTS),
        retry_on,
        base_interval,
        max_interval,
    })
}

fn parse_backoff(proto: &RetryBackOff, v: &mut Validator) -> (Duration, Duration) {
    let base = match &proto.base_interval {
        Some(base) => parse_interval(base, "base_interval", v),
        None => {
            v.error_at("base_interval", "expected a duration, got none");
            None
        }
    };
    let base = base.unwrap_or(BASE_INTERVAL);
    let Some(max) = &proto.max_interval else {
        return (base, base.saturating_mul(INTERVALS));
    };
    let max = parse_interval(max, "max_interval", v).unwrap_or(base);
    if max < base {
        let message = format!("expected at least base_interval, {base:?}, got {max:?}");
        v.error_at("max_interval", message);
    }
    (base, max)
}

/// Reads an interval; `None` after an error.
fn parse_interval(proto: &protobuf::Duration, field: &str, v: &mut Validator) -> Option<Duration> {
    v.field(field, |v| {
        let interval = duration::parse(proto, v)?;
        if interval.is_zero() {
            v.error("expected more than 0s, got 0s");
            return None;
        }
        Some(interval.max(LEAST_INTERVAL))
    })
}

/// The conditions of `retry_on`. Spaces around them do not count, as in Envoy and grpc-go.
fn conditions(proto: &Proto) -> impl Iterator<Item = &str> {
    let conditions = proto.retry_on.split(',').map(str::trim);
    conditions.filter(|condition| !condition.is_empty())
}

fn code_of(condition: &str) -> Option<i32> {
    let mut known = CONDITIONS.into_iter();
    let (_, code) = known.find(|(name, _)| name.eq_ignore_ascii_case(condition))?;
    Some(code)
}

/// Records the fields of a virtual host or of a route's action that are about retries and have no effect.
pub(super) fn ignored(
    policy: Option<&Proto>,
    typed_config: Option<&Any>,
    hedging: Option<&HedgePolicy>,
    v: &mut Validator,
) {
    if let Some(policy) = policy {
        v.field("retry_policy", |v| ignored_in_policy(policy, v));
    }
    if typed_config.is_some() {
        let message = "ignored: only retry_policy is read (gRFC A44)";
        v.unsupported_at("retry_policy_typed_config", message);
    }
    if hedging.is_some() {
        let message = "not supported: a call has one attempt at a time (gRFC A44)";
        v.unsupported_at("hedge_policy", message);
    }
}

fn ignored_in_policy(proto: &Proto, v: &mut Validator) {
    v.field("retry_on", |v| ignored_conditions(proto, v));
    let retries = proto.num_retries.map_or(1, |number| number.value);
    if retries >= MAX_ATTEMPTS {
        let most = MAX_ATTEMPTS - 1;
        let message = format!("{most} retries at most are made, not {retries} (gRFC A6)");
        v.unsupported_at("num_retries", message);
    }
    for field in ignored_fields(proto) {
        v.unsupported_at(field, "ignored: it is for proxies (gRFC A44)");
    }
}

fn ignored_conditions(proto: &Proto, v: &mut Validator) {
    let unknown = conditions(proto).filter(|condition| code_of(condition).is_none());
    for condition in unknown {
        v.unsupported(format!("{condition} is ignored (gRFC A44)"));
    }
    if conditions(proto).filter_map(code_of).next().is_none() {
        let known = CONDITIONS.map(|(name, _)| name).join(", ");
        v.unsupported(format!(
            "no call is retried, because none of these is set: {known} (gRFC A44)"
        ));
    }
}

/// The names of the fields that are set and that gRFC A44 has no meaning for.
fn ignored_fields(proto: &Proto) -> impl Iterator<Item = &'static str> {
    let fields = [
        (proto.per_try_timeout.is_some(), "per_try_timeout"),
        (proto.per_try_idle_timeout.is_some(), "per_try_idle_timeout"),
        (proto.retry_priority.is_some(), "retry_priority"),
        (
            !proto.retry_host_predicate.is_empty(),
            "retry_host_predicate",
        ),
        (
            !proto.retry_options_predicates.is_empty(),
            "retry_options_predicates",
        ),
        (
            proto.host_selection_retry_max_attempts != 0,
            "host_selection_retry_max_attempts",
        ),
        (
            !proto.retriable_status_codes.is_empty(),
            "retriable_status_codes",
        ),
        (
            proto.rate_limited_retry_back_off.is_some(),
            "rate_limited_retry_back_off",
        ),
        (!proto.retriable_headers.is_empty(), "retriable_headers"),
        (
            !proto.retriable_request_headers.is_empty(),
            "retriable_request_headers",
        ),
        (proto.refresh_cluster_on_retry, "refresh_cluster_on_retry"),
    ];
    fields
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
}
