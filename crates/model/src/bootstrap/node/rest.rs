//! The fields of a node that gRPC itself has no use for, and a server may have.
//!
//! gRFC A27 has the node be the whole proto, so they are read and sent too.

use std::collections::HashMap;

use envoy_types::pb::{
    envoy::{
        config::core::v3::{
            Address, BuildVersion, Extension, Pipe, SocketAddress, address,
            socket_address::{PortSpecifier, Protocol},
        },
        r#type::v3::SemanticVersion,
    },
    xds::core::v3::ContextParams,
};

use super::fields::{Fields, to_struct};
use crate::Validator;

pub(super) fn dynamic_parameters(
    node: &Fields<'_>,
    v: &mut Validator,
) -> HashMap<String, ContextParams> {
    let parameters = node.message("dynamic_parameters", v, |by_type, v| {
        let types = by_type.object().keys();
        types
            .filter_map(|of_type| {
                let context = by_type.message(of_type, v, |context, v| ContextParams {
                    params: params(context, v),
                });
                Some((of_type.clone(), context?))
            })
            .collect()
    });
    parameters.unwrap_or_default()
}

fn params(context: Fields<'_>, v: &mut Validator) -> HashMap<String, String> {
    let params = context.message("params", v, |params, v| {
        let names = params.object().keys();
        names
            .map(|name| (name.clone(), params.text(name, v)))
            .collect()
    });
    params.unwrap_or_default()
}

pub(super) fn extension(extension: Fields<'_>, v: &mut Validator) -> Extension {
    #[expect(deprecated, reason = "servers may still read it")]
    Extension {
        name: extension.text("name", v),
        category: extension.text("category", v),
        type_descriptor: extension.text("type_descriptor", v),
        version: extension.message("version", v, build_version),
        disabled: extension.flag("disabled", v),
        type_urls: extension.texts("type_urls", v),
    }
}

fn build_version(build: Fields<'_>, v: &mut Validator) -> BuildVersion {
    BuildVersion {
        version: build.message("version", v, |version, v| SemanticVersion {
            major_number: version.number("major_number", v),
            minor_number: version.number("minor_number", v),
            patch: version.number("patch", v),
        }),
        metadata: build.message("metadata", v, |metadata, _| to_struct(metadata.object())),
    }
}

pub(super) fn address(json: Fields<'_>, v: &mut Validator) -> Address {
    let socket = json.message("socket_address", v, socket_address);
    let pipe = json.message("pipe", v, |pipe, v| Pipe {
        path: pipe.text("path", v),
        mode: pipe.number("mode", v),
    });
    let address = match (socket, pipe) {
        (Some(socket), None) => Some(address::Address::SocketAddress(socket)),
        (None, Some(pipe)) => Some(address::Address::Pipe(pipe)),
        _ => {
            v.error("expected a socket_address or a pipe");
            None
        }
    };
    Address { address }
}

fn socket_address(socket: Fields<'_>, v: &mut Validator) -> SocketAddress {
    let protocol = match socket.text("protocol", v).as_str() {
        "" | "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        other => {
            v.error_at("protocol", format!("expected TCP or UDP, got {other:?}"));
            Protocol::Tcp
        }
    };
    let port = match socket.find("named_port") {
        Some(_) => PortSpecifier::NamedPort(socket.text("named_port", v)),
        None => PortSpecifier::PortValue(socket.number("port_value", v)),
    };
    SocketAddress {
        protocol: protocol.into(),
        address: socket.text("address", v),
        resolver_name: socket.text("resolver_name", v),
        ipv4_compat: socket.flag("ipv4_compat", v),
        port_specifier: Some(port),
        ..SocketAddress::default()
    }
}
