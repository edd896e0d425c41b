//! What a cluster says about its calls and connections, whichever way it finds its endpoints.

use std::time::Duration;

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::CircuitBreakers,
            core::v3::{RoutingPriority, TypedExtensionConfig},
        },
        extensions::upstreams::http::v3::HttpProtocolOptions,
    },
    google::protobuf,
};
use prost::Name;

use crate::{Validator, grpc::any::Extension};

/// How many calls a cluster takes at a time if it does not say (gRFC A32).
const DEFAULT_MAX_REQUESTS: u32 = 1024;

/// How long a connection is kept for a session that makes no call, if the cluster does not say
/// (gRFC A75).
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The longest `google.protobuf.Duration`: about 10,000 years.
const MAX_SECONDS: i64 = 315_576_000_000;
const MAX_NANOS: i32 = 999_999_999;

/// The limit of the first threshold for calls of DEFAULT priority, which all of gRPC's are. 0 is a
/// limit like any other: no call at all.
pub(super) fn max_concurrent_requests(breakers: Option<&CircuitBreakers>) -> u32 {
    let mut thresholds = breakers.iter().flat_map(|breakers| &breakers.thresholds);
    thresholds
        .find(|threshold| threshold.priority == RoutingPriority::Default as i32)
        .and_then(|threshold| threshold.max_requests)
        .map_or(DEFAULT_MAX_REQUESTS, |limit| limit.value)
}

/// Reads `idle_timeout` of the HTTP options in `upstream_config` (gRFC A75). The default stands in
/// after an error.
pub(super) fn idle_timeout(config: Option<&TypedExtensionConfig>, v: &mut Validator) -> Duration {
    let Some(config) = config else {
        return DEFAULT_IDLE_TIMEOUT;
    };
    v.field("upstream_config.typed_config", |v| {
        let options: Option<HttpProtocolOptions> = match &config.typed_config {
            Some(any) => Extension::expect(any, v),
            None => {
                let expected = HttpProtocolOptions::full_name();
                v.error(format!("expected {expected}, got none"));
                None
            }
        };
        let common = options.and_then(|options| options.common_http_protocol_options);
        let timeout = common.and_then(|common| common.idle_timeout);
        v.field("common_http_protocol_options.idle_timeout", |v| {
            timeout.and_then(|timeout| duration(timeout, v))
        })
    })
    .unwrap_or(DEFAULT_IDLE_TIMEOUT)
}

fn duration(proto: protobuf::Duration, v: &mut Validator) -> Option<Duration> {
    let protobuf::Duration { seconds, nanos } = proto;
    let whole = u64::try_from(seconds)
        .ok()
        .filter(|_| seconds <= MAX_SECONDS);
    if whole.is_none() {
        v.error_at(
            "seconds",
            format!("expected 0 to {MAX_SECONDS}, got {seconds}"),
        );
    }
    let part = u32::try_from(nanos).ok().filter(|_| nanos <= MAX_NANOS);
    if part.is_none() {
        v.error_at("nanos", format!("expected 0 to {MAX_NANOS}, got {nanos}"));
    }
    Some(Duration::new(whole?, part?))
}
