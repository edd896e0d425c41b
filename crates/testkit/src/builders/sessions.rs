//! The builder of the stateful session filter, with a cookie, because that is the only kind of
//! session that gRPC knows.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
};
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::{Any, Duration};
use envoy_types::util::pack_any;

/// Sessions by the cookie of this name.
pub fn sessions(cookie: &str) -> SessionsBuilder {
    SessionsBuilder(Cookie {
        name: cookie.to_owned(),
        ..Cookie::default()
    })
}

/// An override that turns sessions off.
pub fn no_sessions() -> Any {
    pack_any(StatefulSessionPerRoute {
        r#override: Some(Override::Disabled(true)),
    })
}

/// Makes the configuration of the stateful session filter.
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionsBuilder(Cookie);

impl SessionsBuilder {
    /// Limits the cookie to calls under this path.
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.0.path);
        self
    }

    /// Asks callers to keep the cookie for this many seconds.
    pub fn ttl(mut self, seconds: i64) -> Self {
        self.0.ttl = Some(Duration { seconds, nanos: 0 });
        self
    }

    /// The filter, for the chain of a listener.
    pub fn any(self) -> Any {
        pack_any(self.build())
    }

    /// An override with this cookie.
    pub fn as_override(self) -> Any {
        pack_any(StatefulSessionPerRoute {
            r#override: Some(Override::StatefulSession(self.build())),
        })
    }

    fn build(self) -> StatefulSession {
        let cookie = Some(self.0);
        StatefulSession {
            session_state: Some(TypedExtensionConfig {
                name: "envoy.http.stateful_session.cookie".to_owned(),
                typed_config: Some(pack_any(CookieBasedSessionState { cookie })),
            }),
            ..StatefulSession::default()
        }
    }
}
