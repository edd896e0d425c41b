//! The faults of a route, as the fault filter takes them (gRFC A33). They are in the routes and not
//! in the listener, so that an Envoy with these routes has them too.

use common::fault_delay::{FaultDelaySecifier, HeaderDelay};
use envoy_types::pb::envoy::extensions::filters::common::fault::v3 as common;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3 as pb;
use envoy_types::pb::google::protobuf::UInt32Value;
use pb::fault_abort::{ErrorType, HeaderAbort};

use super::matchers::fraction;
use super::routes::duration;
use crate::service::fault::{Abort, Delay, Fault};

/// The name of the filter. It is Envoy's own, under which the listeners of Envoys have it, too.
pub(super) const FILTER_NAME: &str = "envoy.filters.http.fault";

/// The configuration of the filter for a route.
pub(super) fn of_route(fault: &Fault) -> pb::HttpFault {
    pb::HttpFault {
        delay: fault.delay.as_ref().map(delay),
        abort: fault.abort.as_ref().map(abort),
        max_active_faults: fault.max_active.map(|value| UInt32Value { value }),
        ..pb::HttpFault::default()
    }
}

fn delay(delay: &Delay) -> common::FaultDelay {
    common::FaultDelay {
        percentage: Some(fraction(delay.fraction)),
        fault_delay_secifier: Some(delay.fixed.map_or_else(
            || FaultDelaySecifier::HeaderDelay(HeaderDelay {}),
            |time| FaultDelaySecifier::FixedDelay(duration(time.0)),
        )),
    }
}

fn abort(abort: &Abort) -> pb::FaultAbort {
    pb::FaultAbort {
        percentage: Some(fraction(abort.fraction)),
        error_type: Some(abort.status.map_or_else(
            || ErrorType::HeaderAbort(HeaderAbort {}),
            |status| ErrorType::GrpcStatus(status as u32),
        )),
        ..pb::FaultAbort::default()
    }
}
