//! One xDS server.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::Validator;

/// How to reach one xDS server.
///
/// Two that are equal are the same server, to which one connection is enough (gRFC A47, A71).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The URI as it was given.
    pub uri: String,
    /// How the connection is secured.
    pub credentials: ChannelCredentials,
    /// What the server is said to do; names that mean nothing to the client are kept.
    pub features: BTreeSet<String>,
    /// `host:port`
    authority: String,
}

impl ServerConfig {
    /// The server as an HTTP URI that can be dialled.
    pub fn endpoint_uri(&self) -> String {
        match self.credentials {
            ChannelCredentials::Insecure => format!("http://{}", self.authority),
        }
    }

    pub(super) fn new(
        uri: &str,
        credentials: ChannelCredentials,
        features: BTreeSet<String>,
        v: &mut Validator,
    ) -> Option<Self> {
        let authority = parse_uri(uri, credentials)
            .inspect_err(|message| v.error_at("server_uri", message))
            .ok()?;
        Some(Self {
            uri: uri.to_owned(),
            credentials,
            features,
            authority: authority.to_owned(),
        })
    }

    pub(super) fn insecure(uri: &str, v: &mut Validator) -> Option<Self> {
        Self::new(uri, ChannelCredentials::Insecure, BTreeSet::new(), v)
    }
}

/// How the connection to an xDS server is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ChannelCredentials {
    /// Not at all: plaintext.
    Insecure,
}

/// What may stand before `host:port`.
const SCHEMES: [&str; 6] = ["dns:///", "dns:", "http://", "https://", "ipv4:", "ipv6:"];

/// The `host:port` in a server URI.
fn parse_uri(uri: &str, credentials: ChannelCredentials) -> Result<&str, String> {
    let (scheme, rest) = SCHEMES
        .iter()
        .find_map(|scheme| Some((*scheme, uri.strip_prefix(scheme)?)))
        .unwrap_or(("", uri));
    // To ask for TLS and get plaintext would be the worst of readings.
    if scheme == "https://" && credentials == ChannelCredentials::Insecure {
        return Err(format!(
            "expected a URI without https for insecure channel_creds, got {uri:?}"
        ));
    }
    let authority = match scheme {
        "http://" | "https://" => rest.strip_suffix('/').unwrap_or(rest),
        _ => rest,
    };
    let is_valid = authority.rsplit_once(':').is_some_and(|(host, port)| {
        let is_valid_host = match scheme {
            "ipv4:" => host.parse::<Ipv4Addr>().is_ok(),
            "ipv6:" => is_ipv6(host),
            _ => is_name(host) || is_ipv6(host),
        };
        is_valid_host && is_port(port)
    });
    if !is_valid {
        return Err(format!(
            "expected host:port, dns:///host:port, http://host:port or ipv4:address:port, got {uri:?}"
        ));
    }
    Ok(authority)
}

/// Whether it is a host name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && host.chars().all(is_allowed)
}

/// Whether it is an IPv6 address in brackets.
fn is_ipv6(host: &str) -> bool {
    host.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Whether it is a port; `u16::from_str` alone would take `+80`.
fn is_port(port: &str) -> bool {
    port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}
