//! Server URIs.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What may stand before `host:port`.
const SCHEMES: [&str; 6] = ["dns:///", "dns:", "http://", "https://", "ipv4:", "ipv6:"];

/// The `host:port` in a server URI.
pub(super) fn parse(uri: &str) -> Result<&str, String> {
    let (scheme, rest) = SCHEMES
        .iter()
        .find_map(|scheme| Some((*scheme, uri.strip_prefix(scheme)?)))
        .unwrap_or(("", uri));
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
