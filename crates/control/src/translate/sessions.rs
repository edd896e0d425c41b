//! Session affinity (gRFC A55): the filter that reads and writes cookies, and the settings of a cluster whose
//! endpoints have sessions.
//!
//! The filter in the listener is empty and the routes have the cookie, because an Envoy shares routes of services and
//! not their listeners.

use cookie::CookieBasedSessionState;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3 as pb;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3 as cookie;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::r#type::http::v3 as http;
use pb::stateful_session_per_route::Override;
use prost::Name;

use super::packed;
use super::routes::duration;
use crate::service::session::{Cookie, SessionAffinity, SessionHealth};
use crate::service::text::Time;

/// The name of the filter. It is Envoy's own, under which the listeners of Envoys have it, too.
pub(super) const FILTER_NAME: &str = "envoy.filters.http.stateful_session";

/// The configuration of the filter for a route.
pub(super) fn of_route(cookie: &Cookie) -> pb::StatefulSessionPerRoute {
    let state = CookieBasedSessionState {
        cookie: Some(http::Cookie {
            name: cookie.name.clone(),
            path: cookie.path.clone().unwrap_or_else(|| "/".to_owned()),
            ttl: cookie.ttl.map(|ttl| duration(ttl.0)),
            ..http::Cookie::default()
        }),
    };
    let session = pb::StatefulSession {
        session_state: Some(core::TypedExtensionConfig {
            name: "envoy.http.stateful_session.cookie".to_owned(),
            typed_config: Some(packed(&state)),
        }),
        ..pb::StatefulSession::default()
    };
    pb::StatefulSessionPerRoute {
        r#override: Some(Override::StatefulSession(session)),
    }
}

/// The health of endpoints that keep their sessions; `None` leaves it to the client.
pub(super) fn statuses(affinity: &SessionAffinity) -> Option<core::HealthStatusSet> {
    let statuses = affinity.health.as_ref()?.iter().map(|health| {
        let status = match health {
            SessionHealth::Draining => core::HealthStatus::Draining,
            SessionHealth::Healthy => core::HealthStatus::Healthy,
            SessionHealth::Unknown => core::HealthStatus::Unknown,
        };
        status.into()
    });
    Some(core::HealthStatusSet {
        statuses: statuses.collect(),
    })
}

/// The field in which gRPC looks for the idle timeout (gRFC A75). Envoys are not sent it.
pub(super) fn upstream_config(idle_timeout: Time) -> core::TypedExtensionConfig {
    core::TypedExtensionConfig {
        name: HttpProtocolOptions::full_name(),
        typed_config: Some(packed(&http_options(Some(idle_timeout)))),
    }
}

/// HTTP options with an idle timeout.
pub(super) fn http_options(idle_timeout: Option<Time>) -> HttpProtocolOptions {
    HttpProtocolOptions {
        common_http_protocol_options: idle_timeout.map(|timeout| core::HttpProtocolOptions {
            idle_timeout: Some(duration(timeout.0)),
            ..core::HttpProtocolOptions::default()
        }),
        ..HttpProtocolOptions::default()
    }
}
