//! Addresses of endpoints: IP literals with a port, since EDS names no hosts.

use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::{self as core, SocketAddress};

use crate::{Validator, grpc::socket_address};

/// Reads `address` of the current path.
pub(super) fn parse(proto: Option<&core::Address>, v: &mut Validator) -> Option<SocketAddr> {
    socket_address::field(proto, v, parse_socket_address)
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
    let port = socket_address::port(proto, v);
    Some(SocketAddr::new(ip?, port?))
}
