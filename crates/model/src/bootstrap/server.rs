//! One xDS server.

use std::collections::BTreeSet;

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

/// The `host:port` in a server URI.
fn parse_uri(uri: &str, credentials: ChannelCredentials) -> Result<&str, String> {
    let expected =
        || format!("expected host:port, dns:///host:port or http://host:port, got {uri:?}");
    if uri.starts_with("https://") && credentials == ChannelCredentials::Insecure {
        // To ask for TLS and get plaintext would be the worst of readings.
        return Err(format!(
            "expected a URI without https for insecure credentials, got {uri:?}"
        ));
    }
    let prefixes = ["dns:///", "dns:", "http://", "https://", "ipv4:", "ipv6:"];
    let rest = prefixes
        .iter()
        .find_map(|prefix| uri.strip_prefix(prefix))
        .unwrap_or(uri);
    let authority = if uri.starts_with("http") {
        rest.strip_suffix('/').unwrap_or(rest)
    } else {
        rest
    };
    let (host, port) = authority.rsplit_once(':').ok_or_else(expected)?;
    if !is_host(host) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(expected());
    }
    Ok(authority)
}

/// Whether it is a name, an IPv4 address or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(address)) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        Some(None) => false,
        None => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            !host.is_empty() && host.chars().all(allowed)
        }
    }
}
