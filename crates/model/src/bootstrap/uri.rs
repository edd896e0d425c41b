//! Server URIs, by the rules that gRPC has for the target of a channel (gRPC's naming document).
//!
//! A bootstrap is shared with other gRPC clients, so each URI that they accept must work here too.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use crate::names::percent_decode;

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerAddress {
    /// `host:port`, the host being a name or an IP address.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The port that gRPC connects to if none is given.
const DEFAULT_PORT: u16 = 443;

/// Reads a server URI.
pub(super) fn parse(uri: &str) -> Result<ServerAddress, String> {
    let address = match uri.split_once(':') {
        Some(("dns", rest)) => path_of(rest).and_then(|name| tcp(&name, DEFAULT_PORT)),
        Some(("http", rest)) => origin(rest).and_then(|name| tcp(name, 80)),
        Some(("https", rest)) => origin(rest).and_then(|name| tcp(name, DEFAULT_PORT)),
        Some(("ipv4", rest)) => ip(rest, |host| host.parse::<Ipv4Addr>().is_ok()),
        Some(("ipv6", rest)) => ip(rest, |host| host.starts_with('[')),
        Some(("unix", rest)) => unix(rest),
        _ => tcp(uri, DEFAULT_PORT),
    };
    address.ok_or_else(|| {
        format!(
            "expected host, host:port, dns:///host:port, http://host:port, ipv4:address:port, \
             ipv6:[address]:port or unix:path, got {uri:?}"
        )
    })
}

/// The path of a URI; `rest` is the part after the scheme. `None` if the URI has an authority, because our
/// resolver cannot ask a DNS server of the user's choice.
fn path_of(rest: &str) -> Option<String> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix('/')?,
        None => rest.strip_prefix('/').unwrap_or(rest),
    };
    Some(percent_decode(path).into_owned())
}

/// The `host:port` of an HTTP URI without a path.
fn origin(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix("//")?;
    Some(rest.strip_suffix('/').unwrap_or(rest))
}

/// `unix:path`, where the path may be relative, or `unix:///absolute`.
fn unix(rest: &str) -> Option<ServerAddress> {
    let path = match rest.strip_prefix("//") {
        Some(path) if !path.starts_with('/') => return None,
        Some(path) => path,
        None => rest,
    };
    let path = percent_decode(path);
    (!path.is_empty()).then(|| ServerAddress::Unix(Path::new(&*path).to_owned()))
}

fn ip(rest: &str, is_kind: fn(&str) -> bool) -> Option<ServerAddress> {
    let (host, port) = host_and_port(rest, DEFAULT_PORT)?;
    is_kind(&host).then(|| ServerAddress::Tcp(format!("{host}:{port}")))
}

fn tcp(text: &str, default_port: u16) -> Option<ServerAddress> {
    let (host, port) = host_and_port(text, default_port)?;
    Some(ServerAddress::Tcp(format!("{host}:{port}")))
}

/// Splits `host:port`. The port may be missing. An IPv6 address is in brackets, or is the whole text.
fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((format!("[{text}]"), default_port));
    }
    let is_bare = !text.contains(':') || text.ends_with(']');
    let (host, port) = if is_bare {
        (text, "")
    } else {
        text.rsplit_once(':')?
    };
    let port = match port {
        "" => default_port,
        "http" => 80,
        "https" => 443,
        port => number(port)?,
    };
    (is_name(host) || is_ipv6(host)).then(|| (host.to_owned(), port))
}

/// True if `host` is a host name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && host.chars().all(is_allowed)
}

/// True if `host` is an IPv6 address in brackets.
fn is_ipv6(host: &str) -> bool {
    host.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Reads a port number. The digits are checked, because `u16::from_str` alone would accept `+80`.
fn number(port: &str) -> Option<u16> {
    let is_number = port.bytes().all(|c| c.is_ascii_digit());
    port.parse().ok().filter(|port| is_number && *port > 0)
}
