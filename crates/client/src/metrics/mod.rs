//! Metrics of a client, under the names of gRFC A78, so that dashboards for gRPC of other languages fit.
//!
//! | method | gRFC A78 |
//! |---|---|
//! | [`MetricsRecorder::connected`] | `grpc.xds_client.connected` |
//! | [`MetricsRecorder::server_failure`] | `grpc.xds_client.server_failure` |
//! | [`MetricsRecorder::updates`] | `grpc.xds_client.resource_updates_valid`, `..._invalid` |
//! | [`MetricsRecorder::resources`] | `grpc.xds_client.resources` |
//!
//! gRFC A78 has no metrics for load reports. Ours are `crowfly.xds_client.load_reports`, `..._in_doubt` and
//! `crowfly.xds_client.load_calls_in_doubt`.
//!
//! With the feature `opentelemetry`, `OpenTelemetry` is a recorder that reports them there.

#[cfg(feature = "opentelemetry")]
mod otel;

use std::fmt::Debug;

use crowfly_model::names::{Authority, authority_of};
use crowfly_xds::{CacheEntry, ResourceStatus};

#[cfg(feature = "opentelemetry")]
pub use otel::OpenTelemetry;

/// Receives the metrics of a client. Every method has an empty default.
///
/// The methods are called from the client's task and must not block.
pub trait MetricsRecorder: Debug + Send + Sync + 'static {
    /// `connected` is true while a stream to the server works: the server has answered, or the stream was opened just
    /// now.
    fn connected(&self, labels: ServerLabels<'_>, connected: bool) {
        let _ = (labels, connected);
    }

    /// The server could not be reached, or ended the stream before its first response. The method is called once until
    /// the server answers again.
    fn server_failure(&self, labels: ServerLabels<'_>) {
        let _ = labels;
    }

    /// A response held this many valid and invalid resources of a type.
    fn updates(&self, labels: ServerLabels<'_>, resource_type: &str, valid: u64, invalid: u64) {
        let _ = (labels, resource_type, valid, invalid);
    }

    /// A connection has taken this many more load reports (gRFC A27).
    fn load_reports(&self, labels: ServerLabels<'_>, reports: u64) {
        let _ = (labels, reports);
    }

    /// This many more load reports may not have arrived, because their stream broke. The attempts in them are not
    /// reported again.
    fn load_reports_in_doubt(&self, labels: ServerLabels<'_>, reports: u64, calls: u64) {
        let _ = (labels, reports, calls);
    }

    /// The cache has this many resources of a type in this state. The method is called again when the number changes.
    fn resources(&self, labels: ResourceLabels<'_>, count: u64) {
        let _ = (labels, count);
    }
}

/// The health of a server as metrics report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    /// The server failed, and has not answered since.
    Failing,
    /// No resource of the server is watched.
    #[default]
    Unused,
    /// The server has answered, or has not failed yet.
    Working,
}

/// The labels of metrics about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLabels<'a> {
    /// `grpc.target`
    pub target: &'a str,
    /// `grpc.xds.server`
    pub server: &'a str,
}

/// The labels of metrics about resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLabels<'a> {
    /// `grpc.target`
    pub target: &'a str,
    /// `grpc.xds.authority`; `#old` for names of the old style.
    pub authority: &'a str,
    /// `grpc.xds.cache_state`
    pub cache_state: &'static str,
    /// `grpc.xds.resource_type`
    pub resource_type: &'a str,
}

/// The label `grpc.xds.cache_state` of an entry (gRFC A78, as A88 extends it).
pub(crate) fn cache_state(entry: &CacheEntry) -> &'static str {
    match (entry.state(), entry.has_value()) {
        (ResourceStatus::Acked, _) => "acked",
        (ResourceStatus::DoesNotExist, false) => "does_not_exist",
        (ResourceStatus::DoesNotExist, true) => "does_not_exist_but_cached",
        (ResourceStatus::Nacked, false) => "nacked",
        (ResourceStatus::Nacked, true) => "nacked_but_cached",
        (ResourceStatus::ReceivedError, false) => "received_error",
        (ResourceStatus::ReceivedError, true) => "received_error_but_cached",
        (ResourceStatus::Requested, _) => "requested",
        (ResourceStatus::TimedOut, _) => "timeout",
    }
}

/// The label `grpc.xds.authority` of a resource name.
pub(crate) fn authority(name: &str) -> String {
    match authority_of(name) {
        Authority::Default => "#old".to_owned(),
        Authority::Named(authority) => authority.into_owned(),
    }
}
