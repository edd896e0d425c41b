//! Metrics of a channel: of its calls (gRFC A66, A96), of its balancing (gRFC A91) and of its xDS client (gRFC
//! A78).
//!
//! A program measures calls with a [`CallRecorder`], balancing with a [`BalancingRecorder`], and the xDS client with a
//! [`MetricsRecorder`]. The traits are three, because calls are frequent: a program that measures the others alone must
//! not pay for calls. With the feature `opentelemetry`, `OpenTelemetry` is all of them, and reports under gRPC's names.
//! `docs/metrics.md` in the repository lists every instrument.

#[cfg(feature = "opentelemetry")]
mod otel;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

#[doc(inline)]
pub use crowfly_client::metrics::{MetricsRecorder, ResourceLabels, ServerLabels};
#[doc(inline)]
pub use crowfly_lb::{OutlierRule, SpareReason};
use tonic::Code;

#[cfg(feature = "opentelemetry")]
pub use self::otel::OpenTelemetry;
use crate::LocalityId;

/// Receives every call of a channel and every attempt. Every method has an empty default.
///
/// The methods are called from the tasks of calls and must not block.
///
/// ```
/// use crowfly::metrics::{AttemptEnd, CallLabels, CallRecorder};
///
/// #[derive(Debug)]
/// struct Log;
///
/// impl CallRecorder for Log {
///     fn attempt_ended(&self, labels: &CallLabels, attempt: &AttemptEnd<'_>) {
///         println!("{} {:?} {:?}", labels.method, attempt.status, attempt.duration);
///     }
/// }
/// ```
pub trait CallRecorder: Debug + Send + Sync + 'static {
    /// An attempt begins. The attempt has a cluster, but no endpoint yet.
    fn attempt_started(&self, labels: &CallLabels) {
        let _ = labels;
    }

    /// An attempt has ended.
    fn attempt_ended(&self, labels: &CallLabels, attempt: &AttemptEnd<'_>) {
        let _ = (labels, attempt);
    }

    /// A call has ended. The last attempt of the call, if it had any, ended before.
    fn call_ended(&self, labels: &CallLabels, call: &CallEnd) {
        let _ = (labels, call);
    }
}

/// Receives the changes that the balancing of a channel makes to endpoints. Every method has an empty default.
///
/// The methods are called from the channel's own task and must not block.
pub trait BalancingRecorder: Debug + Send + Sync + 'static {
    /// Outlier detection found an endpoint to be an outlier. The endpoint was ejected, or spared for a reason (gRFC
    /// A91).
    fn outlier_detected(&self, labels: &OutlierLabels<'_>, spared: Option<SpareReason>) {
        let _ = (labels, spared);
    }
}

/// The labels of an outlier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutlierLabels<'a> {
    /// The target of the channel, as the program wrote it: `grpc.target`.
    pub target: &'a Arc<str>,
    /// The leaf cluster of the endpoint: `grpc.lb.backend_service` (gRFC A89).
    pub backend_service: &'a str,
    /// The rule: `grpc.lb.outlier_detection.detection_method`.
    pub rule: OutlierRule,
}

/// The labels of a call and of all its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallLabels {
    /// The target of the channel, as the program wrote it: `grpc.target`.
    pub target: Arc<str>,
    /// The method, such as `shop.Payments/Pay`.
    pub method: Arc<str>,
    /// True if generated code made the call. The names of other methods may come from anywhere, so that
    /// their number may have no bound (gRFC A66).
    pub is_generated: bool,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptEnd<'a> {
    /// The status of the attempt: `grpc.status`.
    pub status: Code,
    /// The duration of the attempt, with the time to pick an endpoint.
    pub duration: Duration,
    /// The size of the messages that were sent, compressed, without framing.
    pub sent: u64,
    /// The size of the messages that were received, compressed, without framing.
    pub received: u64,
    /// The cluster: `grpc.lb.backend_service`. An attempt that found no endpoint has the cluster of its
    /// route, any other the leaf cluster of its endpoint (gRFC A89).
    pub backend_service: &'a str,
    /// The locality of the attempt's endpoint: `grpc.lb.locality`. `None` if the attempt found no endpoint.
    pub locality: Option<&'a LocalityId>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallEnd {
    /// The status of the call, as the caller sees it: `grpc.status`.
    pub status: Code,
    /// The time from the start of the call until its status was known.
    pub duration: Duration,
    /// The number of attempts that a retry policy made after the first.
    pub retries: u64,
    /// The number of transparent retries (gRFC A6).
    pub transparent_retries: u64,
    /// The time without any attempt, between attempts.
    pub retry_delay: Duration,
}
