//! Addresses in resources, and names of other resources.
//!
//! Listeners, clusters and endpoints use the same readers, because an address and a name must have one spelling in
//! all of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crowfly_model::grpc::steps;
use crowfly_model::{Validator, names};
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, SocketAddress};

use crate::model::{is_of_one_host, may_be_cluster_ip};

/// Reads `address` of the current path: the address of an endpoint.
pub(super) fn endpoint(proto: Option<&Address>, v: &mut Validator) -> Option<SocketAddr> {
    socket_address(proto, ip, v)
}

/// Reads `address` of the current path: a ClusterIP with a port.
pub(super) fn frontend(proto: Option<&Address>, v: &mut Validator) -> Option<SocketAddr> {
    socket_address(proto, cluster_ip, v)
}

fn socket_address(
    proto: Option<&Address>,
    read: fn(&str, &mut Validator) -> Option<IpAddr>,
    v: &mut Validator,
) -> Option<SocketAddr> {
    steps::socket_address(proto, v, |proto, v| {
        let ip = v.field("address", |v| read(&proto.address, v));
        let port = port_of(proto, v);
        Some(SocketAddr::new(ip?, port?))
    })
}

/// Reads an IP address that may be a ClusterIP.
pub(super) fn cluster_ip(text: &str, v: &mut Validator) -> Option<IpAddr> {
    let address = ip(text, v)?;
    if !may_be_cluster_ip(address) {
        let expected = "expected a ClusterIP, which is no loopback or link-local address";
        v.error(format!("{expected}, got {text:?}"));
        return None;
    }
    Some(address)
}

/// Reads an IP address that a connection can have.
fn ip(text: &str, v: &mut Validator) -> Option<IpAddr> {
    let Ok(address) = text.parse::<IpAddr>() else {
        v.error(format!("expected an IP address, got {text:?}"));
        return None;
    };
    // IPv4 in the form of IPv6 would be a second name of the same address.
    if address.to_canonical() != address {
        v.error(format!("expected {}, got {text:?}", address.to_canonical()));
        return None;
    }
    if !is_of_one_host(address) {
        v.error(format!("expected an address of one host, got {text:?}"));
        return None;
    }
    Some(address)
}

/// Reads a port that can be connected to.
pub(super) fn port(number: u32, v: &mut Validator) -> Option<u16> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        v.error(format!("expected 1 to 65535, got {number}"));
    }
    port
}

/// The name of another resource, in the spelling by which the client knows it.
pub(super) fn resource_name(name: &str, v: &mut Validator) -> Arc<str> {
    match names::canonical(name) {
        Ok(name) => (&*name).into(),
        Err(error) => {
            v.error(error.to_string());
            name.into()
        }
    }
}

fn port_of(proto: &SocketAddress, v: &mut Validator) -> Option<u16> {
    match &proto.port_specifier {
        Some(PortSpecifier::PortValue(number)) => v.field("port_value", |v| port(*number, v)),
        Some(PortSpecifier::NamedPort(name)) => {
            v.error_at("named_port", format!("expected port_value, got {name:?}"));
            None
        }
        None => {
            v.error_at("port_value", "expected 1 to 65535, got none");
            None
        }
    }
}
