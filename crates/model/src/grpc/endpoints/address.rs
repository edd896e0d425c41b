//! Addresses of endpoints: IP literals with a port, since EDS names no hosts.

use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::{
    self as core, SocketAddress, address::Address, socket_address::PortSpecifier,
};

use crate::Validator;

/// Reads `address` of the current path.
pub(super) fn parse(proto: Option<core::Address>, v: &mut Validator) -> Option<SocketAddr> {
    v.field("address", |v| match proto.and_then(|proto| proto.address) {
        Some(Address::SocketAddress(address)) => {
            v.field("socket_address", |v| parse_socket_address(&address, v))
        }
        other => {
            let got = match other {
                Some(Address::Pipe(_)) => "pipe",
                Some(Address::EnvoyInternalAddress(_)) => "envoy_internal_address",
                Some(Address::SocketAddress(_)) | None => "none",
            };
            v.error(format!("expected a socket_address, got {got}"));
            None
        }
    })
}

fn parse_socket_address(proto: &SocketAddress, v: &mut Validator) -> Option<SocketAddr> {
    let ip = proto
        .address
        .parse::<IpAddr>()
        .inspect_err(|_| {
            let message = format!("expected an IP address, got {:?}", proto.address);
            v.error_at("address", message);
        })
        .ok();
    let port = match &proto.port_specifier {
        Some(PortSpecifier::PortValue(port)) => parse_port(*port, v),
        Some(PortSpecifier::NamedPort(name)) => {
            v.error(format!("expected port_value, got named_port {name:?}"));
            None
        }
        None => {
            v.error("expected port_value, got none");
            None
        }
    };
    Some(SocketAddr::new(ip?, port?))
}

fn parse_port(port: u32, v: &mut Validator) -> Option<u16> {
    match u16::try_from(port) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            v.error_at("port_value", format!("expected 1 to 65535, got {port}"));
            None
        }
    }
}
