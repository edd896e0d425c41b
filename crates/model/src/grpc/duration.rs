//! Durations of resources.
//!
//! One parser reads all of them, because every field has the range of `google.protobuf.Duration` and none may be
//! negative.

use std::time::Duration;

use envoy_types::pb::google::protobuf;

use crate::Validator;

/// The longest `google.protobuf.Duration`: about 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;
const MAX_NANOS: u32 = 999_999_999;

/// Reads a duration; `None` after an error.
pub(super) fn parse(proto: &protobuf::Duration, v: &mut Validator) -> Option<Duration> {
    let protobuf::Duration { seconds, nanos } = *proto;
    let whole = u64::try_from(seconds).ok().filter(|s| *s <= MAX_SECONDS);
    if whole.is_none() {
        let message = format!("expected 0 to {MAX_SECONDS}, got {seconds}");
        v.error_at("seconds", message);
    }
    let part = u32::try_from(nanos).ok().filter(|n| *n <= MAX_NANOS);
    if part.is_none() {
        v.error_at("nanos", format!("expected 0 to {MAX_NANOS}, got {nanos}"));
    }
    Some(Duration::new(whole?, part?))
}
