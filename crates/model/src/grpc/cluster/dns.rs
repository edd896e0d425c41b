//! Logical DNS: the cluster is one host name, whose addresses are looked up (gRFC A37).
//!
//! The host name is inside a list of endpoints that must hold nothing else. The rules are not shared with EDS, because
//! EDS allows many endpoints and no host names.

use std::fmt;

use envoy_types::pb::envoy::config::{
    cluster::v3 as pb,
    core::v3::SocketAddress,
    endpoint::v3::{Endpoint, lb_endpoint::HostIdentifier},
};

use crate::{
    Validator,
    grpc::{decode::require_text, socket_address},
};

/// A host to look up, and the port that its addresses get.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName {
    /// A host name or an IP address; not empty.
    pub host: String,
    /// The port. A port of 0 is valid, but no connection to it succeeds.
    pub port: u16,
}

/// `host:port`, with brackets around an IPv6 address.
impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// The one name of a LOGICAL_DNS cluster: one locality, with one endpoint, with a socket address.
pub(super) fn parse(proto: &pb::Cluster, v: &mut Validator) -> Option<DnsName> {
    v.field("load_assignment", |v| {
        let Some(assignment) = &proto.load_assignment else {
            v.error("expected it with type LOGICAL_DNS, got none");
            return None;
        };
        only(&assignment.endpoints, "endpoints", v, |locality, v| {
            only(
                &locality.lb_endpoints,
                "lb_endpoints",
                v,
                |endpoint, v| match &endpoint.host_identifier {
                    Some(HostIdentifier::Endpoint(endpoint)) => parse_endpoint(endpoint, v),
                    other => {
                        let got = other.as_ref().map_or("none", |_| "endpoint_name");
                        v.error(format!("expected an endpoint, got {got}"));
                        None
                    }
                },
            )
        })
    })
}

/// Reads the only element of the repeated field `name`.
fn only<T, R>(
    list: &[T],
    name: &str,
    v: &mut Validator,
    read: impl FnOnce(&T, &mut Validator) -> Option<R>,
) -> Option<R> {
    v.field(name, |v| match list {
        [one] => v.index(0, |v| read(one, v)),
        _ => {
            let got = list.len();
            v.error(format!("expected exactly one with LOGICAL_DNS, got {got}"));
            None
        }
    })
}

fn parse_endpoint(proto: &Endpoint, v: &mut Validator) -> Option<DnsName> {
    v.field("endpoint", |v| {
        socket_address::field(proto.address.as_ref(), v, parse_name)
    })
}

fn parse_name(proto: &SocketAddress, v: &mut Validator) -> Option<DnsName> {
    require_text(&proto.address, "address", v);
    // gRFC A37 has no rule for it. The field is an error, because we have no resolvers by name.
    if !proto.resolver_name.is_empty() {
        let message = format!("expected none, got {:?}", proto.resolver_name);
        v.error_at("resolver_name", message);
    }
    Some(DnsName {
        host: proto.address.clone(),
        port: socket_address::port(proto, v)?,
    })
}
