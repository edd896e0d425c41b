//! Session affinity: the calls of a session go to one endpoint, by a cookie (gRFC A55). The cookie
//! holds the endpoint, so no server has to remember the session.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::matching::PathMatch;
use super::text::{Time, parsed, unlike};

/// Session affinity of a service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionAffinity {
    /// The cookie of its routes without a cookie of their own.
    pub(crate) cookie: Option<Cookie>,
    /// The health of endpoints that keep their sessions.
    pub(crate) health: Option<Vec<SessionHealth>>,
    /// The time for which a client keeps a connection for sessions without calls (gRFC A75).
    pub(crate) idle_timeout: Option<Time>,
}

/// Session affinity of a route.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "session affinity, such as {cookie: {name: session}}, or none"
)]
pub(crate) struct RouteAffinity {
    pub(crate) cookie: Cookie,
}

/// The cookie that holds the endpoint of a session.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "a cookie, such as {name: session, ttl: 2h}"
)]
pub(crate) struct Cookie {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    /// The beginning of the paths of the calls that have the cookie.
    #[serde(default, deserialize_with = "path")]
    pub(crate) path: Option<String>,
    /// The time for which the caller should keep the cookie.
    #[serde(default, deserialize_with = "whole_seconds")]
    pub(crate) ttl: Option<Time>,
}

/// The health of an endpoint that keeps its sessions. gRPC ignores all others here.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SessionHealth {
    Draining,
    Healthy,
    Unknown,
}

impl Cookie {
    /// True if a call that matches `route` can have this cookie. A cookie counts for a path that is
    /// equal to its own, or below it (RFC 6265, 5.1.4).
    pub(crate) fn is_for(&self, route: &PathMatch) -> bool {
        let own = self.path.as_deref().unwrap_or("/");
        match route {
            PathMatch::Exactly {
                path,
                ignore_case: false,
            } => covers(own, path),
            PathMatch::StartingWith {
                prefix,
                ignore_case: false,
            } => own.starts_with(prefix.as_str()) || covers(own, prefix),
            _ => true,
        }
    }
}

/// True if a cookie with the path `own` counts for `path`.
fn covers(own: &str, path: &str) -> bool {
    path.strip_prefix(own)
        .is_some_and(|rest| rest.is_empty() || own.ends_with('/') || rest.starts_with('/'))
}

impl<'de> Deserialize<'de> for SessionAffinity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "session affinity, such as {cookie: {name: session}}"
        )]
        struct Raw {
            #[serde(default)]
            cookie: Option<Cookie>,
            #[serde(default, deserialize_with = "statuses")]
            health: Option<Vec<SessionHealth>>,
            #[serde(default)]
            idle_timeout: Option<Time>,
        }

        let Raw {
            cookie,
            health,
            idle_timeout,
        } = Raw::deserialize(deserializer)?;
        if cookie.is_none() && health.is_none() && idle_timeout.is_none() {
            let message = "expected `cookie`, `health` or `idle_timeout`, got none of them";
            return Err(D::Error::custom(message));
        }
        Ok(Self {
            cookie,
            health,
            idle_timeout,
        })
    }
}

/// Reads the name of a cookie, which is a token (RFC 6265, 4.1.1).
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    parsed(deserializer, "the name of a cookie", |text| {
        if text.is_empty() || !text.bytes().all(is_token) {
            return unlike();
        }
        Ok(text.to_owned())
    })
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "the beginning of a path, such as /package.Service";
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    parsed(deserializer, expected, |text| {
        if !text.starts_with('/') || !text.bytes().all(is_plain) {
            return unlike();
        }
        Ok(Some(text.to_owned()))
    })
}

/// Reads a time of whole seconds, because a cookie has no finer ones.
fn whole_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let time = Time::deserialize(deserializer)?;
    if time.0.subsec_nanos() != 0 {
        let message = "expected whole seconds, because a cookie has no parts of them";
        return Err(D::Error::custom(message));
    }
    Ok(Some(time))
}

fn statuses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<SessionHealth>>, D::Error> {
    let statuses = Vec::deserialize(deserializer)?;
    if statuses.is_empty() {
        let message = "expected at least one of draining, healthy, unknown, got none";
        return Err(D::Error::custom(message));
    }
    Ok(Some(statuses))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6265, 5.1.4: a cookie's path covers whole segments.
    #[test]
    fn a_path_covers_itself_and_what_is_below_it() {
        for (own, path, expected) in [
            ("/", "/a.A/B", true),
            ("/a.A", "/a.A/B", true),
            ("/a.A/", "/a.A/B", true),
            ("/a.A/B", "/a.A/B", true),
            ("/a", "/a.A/B", false),
            ("/a.A/B", "/a.A/Bee", false),
            ("/b.B", "/a.A/B", false),
        ] {
            assert_eq!(covers(own, path), expected, "{own} {path}");
        }
    }
}
