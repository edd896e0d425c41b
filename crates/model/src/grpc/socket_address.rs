//! `envoy.config.core.v3.Address`, of which gRPC takes socket addresses with a port number.
//!
//! Endpoints and logical DNS share these rules, so that both refuse the same addresses.

use envoy_types::pb::envoy::config::core::v3::{
    self as core, SocketAddress, address::Address, socket_address::PortSpecifier,
};

use crate::Validator;

/// Reads `address` of the current path, which must be a socket address, with `parse`.
pub fn field<T>(
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

/// Reads the port, which must be a number; 0 is one.
///
/// gRFC A27 and A37 ask for a `port_value` that is set, and for no more. An endpoint with port 0
/// cannot be connected to, but a NACK would refuse the other endpoints, too.
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
    let port = u16::try_from(number).ok();
    match port {
        None => v.error_at("port_value", format!("expected 0 to 65535, got {number}")),
        Some(0) => v.unsupported_at("port_value", "nothing can be connected to at port 0"),
        Some(_) => {}
    }
    port
}
