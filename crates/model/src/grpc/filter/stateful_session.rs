//! The stateful session filter: calls of a session go to the host that took its first call (gRFC A55, A60).
//!
//! This file reads the configuration, and [`value`] reads and writes the value of the cookie. The channel uses both for
//! the headers of calls.

mod value;

use std::{fmt, sync::Arc, time::Duration};

use envoy_types::pb::envoy::{
    config::core::v3::TypedExtensionConfig,
    extensions::{
        filters::http::stateful_session::v3::{
            StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
        },
        http::stateful_session::cookie::v3::CookieBasedSessionState,
    },
    r#type::http::v3 as pb,
};

pub use self::value::SessionHost;
use super::FilterConfig;
use crate::{
    Validator,
    grpc::{any::Extension, duration},
};

/// The cookie that names the host of a session.
///
/// ```
/// # use std::time::Duration;
/// # use crowfly_model::grpc::filter::SessionCookie;
/// let (name, path) = ("session".to_owned(), "/shop.Cart".to_owned());
/// let cookie = SessionCookie { name, path, ttl: Duration::from_secs(60) };
/// let set = cookie.set_cookie(["10.0.0.1:80".parse()?], "carts");
/// assert_eq!(set, "session=MTAuMC4wLjE6ODA7Y2FydHM=; HttpOnly; Path=/shop.Cart; Max-Age=60");
/// # Ok::<_, std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCookie {
    /// The name; a token of HTTP, so never empty.
    pub name: String,
    /// The path of the calls that have sessions; empty for all.
    pub path: String,
    /// The time for which a caller should keep the cookie; zero if the configuration does not say.
    pub ttl: Duration,
}

impl SessionCookie {
    /// True if calls with this path have sessions. The cookie's path must be the call's path, or the part of it before
    /// a slash (RFC 6265, section 5.1.4).
    pub fn applies_to(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => {
                rest.is_empty()
                    || rest.starts_with('/')
                    || self.path.is_empty()
                    || self.path.ends_with('/')
            }
            None => false,
        }
    }
}

/// Reads the filter in a chain; `None` after an error.
pub(super) fn parse(extension: &Extension, v: &mut Validator) -> Option<FilterConfig> {
    let proto: StatefulSession = extension.decode(v)?;
    parse_session(&proto, v)
}

/// Reads the filter in an override, which may turn it off; `None` after an error.
pub(super) fn parse_override(extension: &Extension, v: &mut Validator) -> Option<FilterConfig> {
    let proto: StatefulSessionPerRoute = extension.decode(v)?;
    match proto.r#override {
        Some(Override::StatefulSession(session)) => {
            v.field("stateful_session", |v| parse_session(&session, v))
        }
        // gRPC C-core: an override that says nothing turns the filter off, even if `disabled` is false.
        Some(Override::Disabled(_)) | None => Some(FilterConfig::StatefulSession(None)),
    }
}

fn parse_session(proto: &StatefulSession, v: &mut Validator) -> Option<FilterConfig> {
    if proto.strict {
        let message = "ignored: a call whose host cannot take it goes to another one (gRFC A55)";
        v.unsupported_at("strict", message);
    }
    // gRFC A55: without a session state the filter does nothing.
    let cookie = match &proto.session_state {
        Some(state) => Some(v.field("session_state", |v| parse_state(state, v))?),
        None => None,
    };
    Some(FilterConfig::StatefulSession(cookie.map(Arc::new)))
}

fn parse_state(proto: &TypedExtensionConfig, v: &mut Validator) -> Option<SessionCookie> {
    let Some(any) = &proto.typed_config else {
        v.error_at("typed_config", "expected a session state, got none");
        return None;
    };
    v.field("typed_config", |v| {
        // gRFC A55: sessions are kept by cookies alone.
        let state: CookieBasedSessionState = Extension::expect(any, v)?;
        v.field("cookie", |v| match &state.cookie {
            Some(cookie) => parse_cookie(cookie, v),
            None => {
                v.error("expected a cookie, got none");
                None
            }
        })
    })
}

fn parse_cookie(proto: &pb::Cookie, v: &mut Validator) -> Option<SessionCookie> {
    let pb::Cookie {
        name, path, ttl, ..
    } = proto;
    // Other texts could not be sent back in a cookie, so no session would ever be kept.
    let is_named = !name.is_empty() && name.bytes().all(is_token);
    if !is_named {
        let message =
            format!("expected a name of letters, digits and !#$%&'*+-.^_`|~, got {name:?}");
        v.error_at("name", message);
    }
    let is_path = |byte: u8| matches!(byte, b' '..=b'~') && byte != b';';
    let has_path = path.bytes().all(is_path);
    if !has_path {
        let message = format!("expected printable ASCII without a semicolon, got {path:?}");
        v.error_at("path", message);
    }
    if !proto.attributes.is_empty() {
        let message = "ignored: cookies are set without other attributes (gRFC A55)";
        v.unsupported_at("attributes", message);
    }
    let ttl = match ttl {
        Some(ttl) => v.field("ttl", |v| duration::parse(ttl, v)),
        None => Some(Duration::ZERO),
    }?;
    (is_named && has_path).then(|| SessionCookie {
        name: name.clone(),
        path: path.clone(),
        ttl,
    })
}

/// True for a byte of a token of HTTP (RFC 9110, section 5.6.2), which the names of cookies are (RFC 6265).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Says what a filter with this cookie does.
pub(super) fn show(cookie: Option<&Arc<SessionCookie>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match cookie {
        Some(cookie) => fmt::Display::fmt(cookie, f),
        None => f.write_str("no sessions"),
    }
}

impl fmt::Display for SessionCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sessions by cookie {}", self.name)?;
        if !self.path.is_empty() {
            write!(f, " for {}", self.path)?;
        }
        match self.ttl {
            Duration::ZERO => Ok(()),
            ttl => write!(f, ", kept for {ttl:?}"),
        }
    }
}
