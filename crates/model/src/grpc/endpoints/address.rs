//! Addresses of endpoints: IP literals with a port, because EDS names no hosts.
//!
//! An address that cannot be called makes its endpoint unusable or the resource invalid, by the
//! rules of gRFC A27.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use envoy_types::pb::envoy::config::core::v3::{self as core, SocketAddress};

use crate::{Validator, grpc::socket_address};

/// The length of the longest name of a network interface (Linux).
const MAX_ZONE: usize = 15;

/// Reads `address` of the current path.
pub(super) fn parse(proto: Option<&core::Address>, v: &mut Validator) -> Option<SocketAddr> {
    socket_address::field(proto, v, parse_socket_address)
}

fn parse_socket_address(proto: &SocketAddress, v: &mut Validator) -> Option<SocketAddr> {
    let address = literal(&proto.address)
        .inspect_err(|message| v.error_at("address", message))
        .ok();
    let port = socket_address::port(proto, v);
    let mut address = address?;
    address.set_port(port?);
    Some(address)
}

/// The address, still without its port.
fn literal(text: &str) -> Result<SocketAddr, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, 0));
    }
    let zoned = text.rsplit_once('%').and_then(|(ip, zone)| {
        let ip = ip.parse::<Ipv6Addr>().ok()?;
        Some((ip, zone))
    });
    match zoned {
        None => Err(format!("expected an IP address, got {text:?}")),
        Some((ip, zone)) => in_zone(ip, zone)
            .map(SocketAddr::V6)
            .ok_or_else(|| format!("expected a zone of this machine, got {zone:?}")),
    }
}

/// An IPv6 address in a zone: the number of a network interface (RFC 4007), or its name.
///
/// The operating system is asked for the number of the interface, because only it knows the names.
/// No DNS lookup happens, because the text before the zone is an IP address.
fn in_zone(ip: Ipv6Addr, zone: &str) -> Option<SocketAddrV6> {
    if let Ok(number) = zone.parse::<u32>() {
        return Some(SocketAddrV6::new(ip, 0, 0, number));
    }
    let is_name = !zone.is_empty()
        && zone.len() <= MAX_ZONE
        && zone
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if !is_name {
        return None;
    }
    let mut found = (format!("{ip}%{zone}"), 0).to_socket_addrs().ok()?;
    found.find_map(|address| match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => Some(address),
        _ => None,
    })
}
