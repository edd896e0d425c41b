//! Outlier detection (gRFC A50): the rules by which endpoints that fail too often get no calls for a while.
//!
//! Envoy knows many such rules. gRPC has the two that need no HTTP status: success rate and failure
//! percentage. The fields of the others are ignored, and [`ignored`] names those that are set.

use std::time::Duration;

use envoy_types::pb::{
    envoy::config::cluster::v3 as pb,
    google::protobuf::{self, UInt32Value},
};

use crate::{Validator, grpc::duration};

/// The settings of outlier detection, of which at least one rule is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// The time between two checks of the calls of all endpoints.
    pub interval: Duration,
    /// The time of a first ejection. Each further ejection is longer by this time.
    pub base_ejection_time: Duration,
    /// The longest ejection. The time is never less than [`base_ejection_time`](Self::base_ejection_time).
    pub max_ejection_time: Duration,
    /// The percentage of endpoints that may be ejected at a time. One endpoint may always be.
    pub max_ejection_percent: u32,
    /// The rule that compares endpoints with each other; `None` if it is off.
    pub success_rate: Option<SuccessRate>,
    /// The rule that looks at each endpoint alone; `None` if it is off.
    pub failure_percentage: Option<FailurePercentage>,
}

/// Ejects endpoints whose share of successful calls is far below the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessRate {
    /// The distance below the mean, in thousandths of the standard deviation.
    pub stdev_factor: u32,
    /// The percentage of outliers that are ejected: 1 to 100.
    pub enforcement_percentage: u32,
    /// The least number of endpoints with enough calls; with fewer, no endpoint is ejected.
    pub minimum_hosts: u32,
    /// The least number of calls in an interval; an endpoint with fewer is not ejected.
    pub request_volume: u32,
}

/// Ejects endpoints of whose calls more than a percentage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePercentage {
    /// The percentage of failed calls that is still tolerated: 0 to 100.
    pub threshold: u32,
    /// The percentage of outliers that are ejected: 1 to 100.
    pub enforcement_percentage: u32,
    /// The least number of endpoints with enough calls; with fewer, no endpoint is ejected.
    pub minimum_hosts: u32,
    /// The least number of calls in an interval; an endpoint with fewer is not ejected.
    pub request_volume: u32,
}

impl OutlierDetection {
    /// The shortest interval. gRFC A50 allows a shorter one. But each check reads the counts of all endpoints, and an
    /// interval of 0 would leave no time for anything else.
    pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
}

/// The defaults of gRFC A50.
const INTERVAL: Duration = Duration::from_secs(10);
const BASE_EJECTION_TIME: Duration = Duration::from_secs(30);
const MAX_EJECTION_TIME: Duration = Duration::from_secs(300);
const MAX_EJECTION_PERCENT: u32 = 10;

impl SuccessRate {
    /// gRFC A50: the rule is on unless `enforcing_success_rate` is 0. gRPC C-core takes an unset field
    /// for off.
    fn parse(proto: &pb::OutlierDetection, v: &mut Validator) -> Option<Self> {
        let enforcing = percentage(
            "enforcing_success_rate",
            proto.enforcing_success_rate.as_ref(),
            v,
        );
        match enforcing.unwrap_or(100) {
            0 => None,
            enforcement_percentage => Some(Self {
                stdev_factor: number(proto.success_rate_stdev_factor.as_ref(), 1900),
                enforcement_percentage,
                minimum_hosts: number(proto.success_rate_minimum_hosts.as_ref(), 5),
                request_volume: number(proto.success_rate_request_volume.as_ref(), 100),
            }),
        }
    }
}

impl FailurePercentage {
    /// gRFC A50: the rule is off unless `enforcing_failure_percentage` is set and not 0. The other fields of the rule
    /// are not read while it is off.
    fn parse(proto: &pb::OutlierDetection, v: &mut Validator) -> Option<Self> {
        let enforcing = percentage(
            "enforcing_failure_percentage",
            proto.enforcing_failure_percentage.as_ref(),
            v,
        );
        let enforcement_percentage = enforcing.filter(|percent| *percent > 0)?;
        let threshold = percentage(
            "failure_percentage_threshold",
            proto.failure_percentage_threshold.as_ref(),
            v,
        );
        Some(Self {
            threshold: threshold.unwrap_or(85),
            enforcement_percentage,
            minimum_hosts: number(proto.failure_percentage_minimum_hosts.as_ref(), 5),
            request_volume: number(proto.failure_percentage_request_volume.as_ref(), 50),
        })
    }
}

/// Reads the settings. `None` if the cluster has none, or if both rules are off, which means the same.
pub(super) fn parse(proto: &pb::Cluster, v: &mut Validator) -> Option<OutlierDetection> {
    let proto = proto.outlier_detection.as_ref()?;
    v.field("outlier_detection", |v| {
        let interval = time("interval", proto.interval.as_ref(), v);
        let base = time("base_ejection_time", proto.base_ejection_time.as_ref(), v);
        let base_ejection_time = base.unwrap_or(BASE_EJECTION_TIME);
        let max = time("max_ejection_time", proto.max_ejection_time.as_ref(), v);
        let max_ejection_percent = percentage(
            "max_ejection_percent",
            proto.max_ejection_percent.as_ref(),
            v,
        );
        let success_rate = SuccessRate::parse(proto, v);
        let failure_percentage = FailurePercentage::parse(proto, v);
        if success_rate.is_none() && failure_percentage.is_none() {
            return None;
        }
        Some(OutlierDetection {
            interval: interval
                .unwrap_or(INTERVAL)
                .max(OutlierDetection::SHORTEST_INTERVAL),
            base_ejection_time,
            max_ejection_time: max.unwrap_or(MAX_EJECTION_TIME).max(base_ejection_time),
            max_ejection_percent: max_ejection_percent.unwrap_or(MAX_EJECTION_PERCENT),
            success_rate,
            failure_percentage,
        })
    })
}

/// Records the fields that are set and have no effect: those of rules that gRPC does not have, and an
/// interval that is too short. An enforcement of 0 asks for nothing, so it is not recorded.
pub(super) fn ignored(proto: &pb::OutlierDetection, v: &mut Validator) {
    let asks = |value: Option<&UInt32Value>| value.is_some_and(|value| value.value > 0);
    let no_rule = "ignored: gRPC ejects by success rate and failure percentage alone (gRFC A50)";
    for (name, is_set) in [
        ("consecutive_5xx", asks(proto.consecutive_5xx.as_ref())),
        (
            "enforcing_consecutive_5xx",
            asks(proto.enforcing_consecutive_5xx.as_ref()),
        ),
        (
            "consecutive_gateway_failure",
            asks(proto.consecutive_gateway_failure.as_ref()),
        ),
        (
            "enforcing_consecutive_gateway_failure",
            asks(proto.enforcing_consecutive_gateway_failure.as_ref()),
        ),
        (
            "consecutive_local_origin_failure",
            asks(proto.consecutive_local_origin_failure.as_ref()),
        ),
        (
            "enforcing_consecutive_local_origin_failure",
            asks(proto.enforcing_consecutive_local_origin_failure.as_ref()),
        ),
        ("monitors", !proto.monitors.is_empty()),
    ] {
        if is_set {
            v.unsupported_at(name, no_rule);
        }
    }
    let no_split = "ignored: gRPC counts errors of any origin alike (gRFC A50)";
    for (name, is_set) in [
        (
            "split_external_local_origin_errors",
            proto.split_external_local_origin_errors,
        ),
        (
            "enforcing_local_origin_success_rate",
            asks(proto.enforcing_local_origin_success_rate.as_ref()),
        ),
        (
            "enforcing_failure_percentage_local_origin",
            asks(proto.enforcing_failure_percentage_local_origin.as_ref()),
        ),
    ] {
        if is_set {
            v.unsupported_at(name, no_split);
        }
    }
    ignored_times(proto, v);
}

fn ignored_times(proto: &pb::OutlierDetection, v: &mut Validator) {
    let is_zero = |time: &protobuf::Duration| time.seconds == 0 && time.nanos == 0;
    if let Some(jitter) = &proto.max_ejection_time_jitter
        && !is_zero(jitter)
    {
        let message = "ignored: ejection times are exact (gRFC A50)";
        v.unsupported_at("max_ejection_time_jitter", message);
    }
    let unejects = proto.successful_active_health_check_uneject_host.as_ref();
    if unejects.is_some_and(|unejects| unejects.value) {
        let message = "ignored: an ejection ends by its time alone (gRFC A50)";
        v.unsupported_at("successful_active_health_check_uneject_host", message);
    }
    let one = proto.always_eject_one_host.as_ref();
    if one.is_some_and(|one| !one.value) {
        let message = "ignored: one endpoint may always be ejected (gRFC A50)";
        v.unsupported_at("always_eject_one_host", message);
    }
    let shortest = OutlierDetection::SHORTEST_INTERVAL;
    let interval = proto.interval.as_ref();
    let interval = interval.and_then(|time| duration::parse(time, &mut Validator::default()));
    if interval.is_some_and(|interval| interval < shortest) {
        v.unsupported_at("interval", format!("{shortest:?} is used, the shortest"));
    }
}

fn number(value: Option<&UInt32Value>, default: u32) -> u32 {
    value.map_or(default, |value| value.value)
}

/// Reads a percentage; `None` if it is not set, or after an error.
fn percentage(name: &str, value: Option<&UInt32Value>, v: &mut Validator) -> Option<u32> {
    let value = value?.value;
    if value > 100 {
        v.error_at(name, format!("expected at most 100, got {value}"));
        return None;
    }
    Some(value)
}

/// Reads a duration; `None` if it is not set, or after an error.
fn time(name: &str, value: Option<&protobuf::Duration>, v: &mut Validator) -> Option<Duration> {
    v.field(name, |v| duration::parse(value?, v))
}
