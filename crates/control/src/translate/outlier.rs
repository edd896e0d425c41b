//! Outlier detection of a cluster (gRFC A50). No switch is left to its default, because clients
//! differ on what an absent value means.

use std::num::NonZeroU32;

use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::google::protobuf::{BoolValue, UInt32Value};

use super::routes::duration;
use crate::service::outlier::OutlierDetection;
use crate::service::text::Time;

/// The outlier detection of a cluster.
///
/// Every value that turns an algorithm on or off is written. gRFC A50 takes an unset
/// `enforcing_success_rate` for 100, and gRPC C-core for off. An Envoy has more algorithms, one of
/// which is on by default. Unlike gRPC, it ejects the first endpoint only if told to, if that is more
/// than the percentage.
pub(super) fn of_cluster(outliers: &OutlierDetection) -> pb::OutlierDetection {
    let OutlierDetection {
        interval,
        ejection,
        success_rate,
        failure_percentage,
    } = outliers;
    let time = |time: Option<Time>| time.map(|time| duration(time.0));
    let count = |count: NonZeroU32| number(count.get());
    pb::OutlierDetection {
        interval: time(*interval),
        base_ejection_time: time(ejection.base),
        max_ejection_time: time(ejection.max),
        max_ejection_percent: ejection.max_percent.map(number),
        success_rate_stdev_factor: success_rate.and_then(|by| by.stdev_thousandths.map(number)),
        enforcing_success_rate: Some(number(success_rate.map_or(0, |by| by.enforce))),
        success_rate_minimum_hosts: success_rate.and_then(|by| by.min_endpoints.map(count)),
        success_rate_request_volume: success_rate.and_then(|by| by.min_calls.map(count)),
        failure_percentage_threshold: failure_percentage.and_then(|by| by.threshold.map(number)),
        enforcing_failure_percentage: Some(number(failure_percentage.map_or(0, |by| by.enforce))),
        failure_percentage_minimum_hosts: failure_percentage
            .and_then(|by| by.min_endpoints.map(count)),
        failure_percentage_request_volume: failure_percentage
            .and_then(|by| by.min_calls.map(count)),
        enforcing_consecutive_5xx: Some(number(0)),
        enforcing_consecutive_gateway_failure: Some(number(0)),
        always_eject_one_host: Some(BoolValue { value: true }),
        ..pb::OutlierDetection::default()
    }
}

fn number(value: u32) -> UInt32Value {
    UInt32Value { value }
}
