//! Settings of a cluster's calls and connections that do not depend on the source of its endpoints.
//!
//! The settings are read apart from the kind of the cluster, because every kind has them. The
//! settings of an aggregate must be valid, although its leaves use their own.

use std::time::Duration;

use envoy_types::pb::envoy::{
    config::{
        cluster::v3::{self as pb, CircuitBreakers},
        core::v3::{RoutingPriority, TypedExtensionConfig},
    },
    extensions::upstreams::http::v3::HttpProtocolOptions,
};
use prost::Name;

use super::{OutlierDetection, outlier_detection};
use crate::{
    Validator,
    grpc::{any::Extension, duration},
};

/// The limit of open calls for a cluster that sets none (gRFC A32).
const DEFAULT_MAX_REQUESTS: u32 = 1024;

/// The time for which a connection is kept for a session without calls, for a cluster that sets none
/// (gRFC A75).
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The settings that leaf clusters use. The settings are validated in a cluster of any kind.
pub(super) struct Settings {
    pub(super) max_concurrent_requests: u32,
    pub(super) session_idle_timeout: Duration,
    pub(super) outlier_detection: Option<OutlierDetection>,
}

impl Settings {
    /// Reads the settings. A setting with an error has its default value.
    pub(super) fn parse(proto: &pb::Cluster, v: &mut Validator) -> Self {
        Self {
            max_concurrent_requests: max_requests(proto.circuit_breakers.as_ref()),
            session_idle_timeout: idle_timeout(proto.upstream_config.as_ref(), v)
                .unwrap_or(DEFAULT_IDLE_TIMEOUT),
            outlier_detection: outlier_detection::parse(proto, v),
        }
    }
}

/// The limit of the first threshold of DEFAULT priority, because all calls of gRPC have that priority
/// (gRFC A32). A limit of 0 is valid and lets no call through.
fn max_requests(breakers: Option<&CircuitBreakers>) -> u32 {
    let mut thresholds = breakers.iter().flat_map(|breakers| &breakers.thresholds);
    thresholds
        .find(|threshold| threshold.priority == RoutingPriority::Default as i32)
        .and_then(|threshold| threshold.max_requests)
        .map_or(DEFAULT_MAX_REQUESTS, |limit| limit.value)
}

/// Reads `idle_timeout` of the HTTP options in `upstream_config`, the only place where gRFC A75
/// looks for them. `None` if the field is not set, or after an error.
fn idle_timeout(config: Option<&TypedExtensionConfig>, v: &mut Validator) -> Option<Duration> {
    let config = config?;
    v.field("upstream_config.typed_config", |v| {
        let Some(any) = &config.typed_config else {
            let expected = HttpProtocolOptions::full_name();
            v.error(format!("expected {expected}, got none"));
            return None;
        };
        let options: HttpProtocolOptions = Extension::expect(any, v)?;
        let timeout = options.common_http_protocol_options?.idle_timeout?;
        v.field("common_http_protocol_options.idle_timeout", |v| {
            duration::parse(&timeout, v)
        })
    })
}
