//! `envoy.config.core.v3.Address`, of which gRPC takes socket addresses with a port number.

use envoy_types::pb::envoy::config::core::v3::{
    self as core, SocketAddress, address::Address, socket_address::PortSpecifier,
};

use crate::Validator;

/// Reads `address` of the current path, which must be a socket address, with `parse`.
pub(super) fn field<T>(
    proto: Option<&core::Address>,
    v: &mut Validator,
    parse: impl FnOnce(&SocketAddress, &mut Validator) -> Option<T>,
) -> Option<T> {
    let proto = proto.and_then(|proto| proto.address.as_ref());
    v.field("address", |v| match proto {
        Some(Address::SocketAddress(address)) => v.field("socket_address", |v| parse(address, v)),
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

/// Reads the port, which must be a number that one can connect to.
pub(super) fn port(proto: &SocketAddress, v: &mut Validator) -> Option<u16> {
    let number = match &proto.port_specifier {
        Some(PortSpecifier::PortValue(number)) => *number,
        Some(PortSpecifier::NamedPort(name)) => {
            v.error(format!("expected port_value, got named_port {name:?}"));
            return None;
        }
        None => {
            v.error("expected port_value, got none");
            return None;
        }
    };
    match u16::try_from(number) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            v.error_at("port_value", format!("expected 1 to 65535, got {number}"));
            None
        }
    }
}
