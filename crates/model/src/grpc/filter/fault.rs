//! The fault-injection filter: calls that are delayed or aborted on purpose (gRFC A33).
//!
//! Only the configuration is here, because the model has neither a clock nor randomness. The channel draws, delays
//! and aborts.

use std::{fmt, sync::Arc, time::Duration};

use envoy_types::pb::envoy::{
    extensions::filters::{
        common::fault::v3::{self as common, fault_delay::FaultDelaySecifier},
        http::fault::v3::{self as pb, HttpFault, fault_abort::ErrorType},
    },
    r#type::v3::FractionalPercent,
};

use super::FilterConfig;
use crate::{
    Validator,
    grpc::{any::Extension, duration, fraction},
};

/// The largest status code of gRPC, UNAUTHENTICATED.
const LAST_GRPC_STATUS: u32 = 16;

/// The faults that a filter injects. A call may get both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultConfig {
    /// The delay, which comes before the abort.
    pub delay: Option<FaultDelay>,
    /// The abort.
    pub abort: Option<FaultAbort>,
    /// The number of calls of the process that may have a fault at a time; `None` if there is no limit.
    pub max_active: Option<u32>,
}

/// A delay for a share of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDelay {
    /// The length of the delay.
    pub by: DelayBy,
    /// The calls that are delayed.
    pub share: FaultShare,
}

/// The length of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayBy {
    /// Always this long.
    Fixed(Duration),
    /// The delay that a header of the call asks for.
    Header,
}

/// An abort for a share of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAbort {
    /// The status of an aborted call.
    pub with: AbortWith,
    /// The calls that are aborted.
    pub share: FaultShare,
}

/// The status of an aborted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortWith {
    /// A gRPC status, from 0 (OK) to 16.
    Grpc(u32),
    /// The gRPC status that an HTTP response with this status would have; from 200 to 599.
    Http(u16),
    /// The status that a header of the call names.
    Header,
}

/// A share of calls: `numerator` of `denominator`.
///
/// The two stay apart, because a header of a call replaces the numerator alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultShare {
    /// May be larger than the denominator, for all calls.
    pub numerator: u32,
    /// 100, 10,000 or 1,000,000.
    pub denominator: u32,
}

impl FaultShare {
    /// True if the call that drew `draw` is one of the share. The number must be uniform over all of `u64`.
    ///
    /// ```
    /// # use crowfly_model::grpc::filter::FaultShare;
    /// let share = FaultShare { numerator: 30, denominator: 100 };
    /// assert!(share.takes(u64::MAX / 10 * 2));
    /// assert!(!share.takes(u64::MAX / 10 * 4));
    /// ```
    pub fn takes(self, draw: u64) -> bool {
        let place = (u128::from(draw) * u128::from(self.denominator)) >> 64;
        place < u128::from(self.numerator)
    }

    /// The share with a smaller numerator; a larger one changes nothing (gRFC A33).
    ///
    /// ```
    /// # use crowfly_model::grpc::filter::FaultShare;
    /// let share = FaultShare { numerator: 30, denominator: 100 };
    /// assert_eq!(share.at_most(5).numerator, 5);
    /// assert_eq!(share.at_most(80), share);
    /// ```
    #[must_use]
    pub fn at_most(self, numerator: u32) -> Self {
        Self {
            numerator: self.numerator.min(numerator),
            ..self
        }
    }
}

/// Reads the configuration, which is the same message in chains and overrides; `None` after an error.
pub(super) fn parse(extension: &Extension, v: &mut Validator) -> Option<FilterConfig> {
    let proto: HttpFault = extension.decode(v)?;
    note_ignored(&proto, v);
    // An error in one fault does not hide those in the other.
    let delay = v.field("delay", |v| parse_delay(proto.delay.as_ref(), v));
    let abort = v.field("abort", |v| parse_abort(proto.abort.as_ref(), v));
    Some(FilterConfig::Fault(Arc::new(FaultConfig {
        delay: delay?,
        abort: abort?,
        max_active: proto.max_active_faults.map(|max| max.value),
    })))
}

/// gRFC A33 defers or leaves out these fields of Envoy. Faults are injected as if they were not set.
fn note_ignored(proto: &HttpFault, v: &mut Validator) {
    let everywhere = "ignored: calls get faults whether they meet it or not (gRFC A33)";
    let conditions = [
        (!proto.upstream_cluster.is_empty(), "upstream_cluster"),
        (!proto.headers.is_empty(), "headers"),
        (!proto.downstream_nodes.is_empty(), "downstream_nodes"),
    ];
    for (_, name) in conditions.into_iter().filter(|(is_set, _)| *is_set) {
        v.unsupported_at(name, everywhere);
    }
    if proto.response_rate_limit.is_some() {
        let message = "not supported: responses are not slowed down (gRFC A33)";
        v.unsupported_at("response_rate_limit", message);
    }
    let abort = proto.abort.as_ref();
    if abort.is_some_and(|abort| !abort.response_body.is_empty()) {
        let message = "ignored: an aborted gRPC call has no body";
        v.unsupported_at("abort.response_body", message);
    }
    let runtime = [
        (&proto.delay_percent_runtime, "delay_percent_runtime"),
        (&proto.abort_percent_runtime, "abort_percent_runtime"),
        (&proto.delay_duration_runtime, "delay_duration_runtime"),
        (
            &proto.abort_http_status_runtime,
            "abort_http_status_runtime",
        ),
        (
            &proto.max_active_faults_runtime,
            "max_active_faults_runtime",
        ),
        (
            &proto.abort_grpc_status_runtime,
            "abort_grpc_status_runtime",
        ),
    ];
    for (_, name) in runtime.into_iter().filter(|(key, _)| !key.is_empty()) {
        v.unsupported_at(name, "ignored: gRPC has no runtime settings (gRFC A33)");
    }
}

/// `None` after an error; `Some(None)` if no call is ever delayed.
fn parse_delay(
    proto: Option<&common::FaultDelay>,
    v: &mut Validator,
) -> Option<Option<FaultDelay>> {
    let Some(proto) = proto else {
        return Some(None);
    };
    let by = match &proto.fault_delay_secifier {
        Some(FaultDelaySecifier::FixedDelay(time)) => {
            let time = v.field("fixed_delay", |v| duration::parse(time, v));
            time.map(|time| (!time.is_zero()).then_some(DelayBy::Fixed(time)))
        }
        Some(FaultDelaySecifier::HeaderDelay(_)) => Some(Some(DelayBy::Header)),
        None => Some(None),
    };
    let share = parse_share(proto.percentage.as_ref(), v);
    let (by, share) = (by?, share?);
    Some(by.map(|by| FaultDelay { by, share }))
}

/// `None` after an error; `Some(None)` if no call is ever aborted.
fn parse_abort(proto: Option<&pb::FaultAbort>, v: &mut Validator) -> Option<Option<FaultAbort>> {
    let Some(proto) = proto else {
        return Some(None);
    };
    let with = match proto.error_type {
        Some(ErrorType::GrpcStatus(status)) => grpc_status(status, v).map(Some),
        Some(ErrorType::HttpStatus(status)) => http_status(status, v).map(Some),
        Some(ErrorType::HeaderAbort(_)) => Some(Some(AbortWith::Header)),
        None => Some(None),
    };
    let share = parse_share(proto.percentage.as_ref(), v);
    let (with, share) = (with?, share?);
    Some(with.map(|with| FaultAbort { with, share }))
}

fn grpc_status(status: u32, v: &mut Validator) -> Option<AbortWith> {
    if status > LAST_GRPC_STATUS {
        let message = format!("expected 0 to {LAST_GRPC_STATUS}, got {status}");
        v.error_at("grpc_status", message);
        return None;
    }
    Some(AbortWith::Grpc(status))
}

fn http_status(status: u32, v: &mut Validator) -> Option<AbortWith> {
    match u16::try_from(status) {
        Ok(status @ 200..600) => Some(AbortWith::Http(status)),
        _ => {
            v.error_at("http_status", format!("expected 200 to 599, got {status}"));
            None
        }
    }
}

/// Reads the share of calls, which is none if the field is not set; `None` after an error.
fn parse_share(proto: Option<&FractionalPercent>, v: &mut Validator) -> Option<FaultShare> {
    let proto = proto.copied().unwrap_or_default();
    let denominator = v.field("percentage", |v| fraction::denominator(proto, v))?;
    Some(FaultShare {
        numerator: proto.numerator,
        denominator,
    })
}

impl fmt::Display for FaultConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = [
            self.delay.map(|delay| delay.to_string()),
            self.abort.map(|abort| abort.to_string()),
            self.max_active
                .map(|max| format!("at most {max} at a time")),
        ];
        let faults: Vec<_> = faults.into_iter().flatten().collect();
        if self.delay.is_none() && self.abort.is_none() {
            return f.write_str("no faults");
        }
        f.write_str(&faults.join(", "))
    }
}

impl fmt::Display for FaultDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            DelayBy::Fixed(time) => write!(f, "delay {time:?}")?,
            DelayBy::Header => f.write_str("delay by header")?,
        }
        write!(f, " for {}", self.share)
    }
}

impl fmt::Display for FaultAbort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.with {
            AbortWith::Grpc(status) => write!(f, "abort with gRPC status {status}")?,
            AbortWith::Http(status) => write!(f, "abort with HTTP status {status}")?,
            AbortWith::Header => f.write_str("abort by header")?,
        }
        write!(f, " for {}", self.share)
    }
}

impl fmt::Display for FaultShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} calls", self.numerator, self.denominator)
    }
}
