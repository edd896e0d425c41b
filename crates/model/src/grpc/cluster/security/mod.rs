//! `transport_socket`: the security of connections to a cluster's endpoints (gRFC A29, A82, A101).
//!
//! gRPC takes certificates from providers that the bootstrap names, and from no other place. A field is an error if
//! ignoring it would weaken the security that the cluster asks for. So no connection is less safe than its cluster
//! says. Fields that may be ignored are recorded as unsupported.

mod certificates;
mod validation;

use std::fmt;

use envoy_types::pb::envoy::{
    config::{
        cluster::v3 as cluster_pb,
        core::v3::{TransportSocket, transport_socket::ConfigType},
    },
    extensions::transport_sockets::tls::v3 as pb,
};
use prost::Name;

pub use self::certificates::ProviderNames;
use crate::{
    Features, Validator,
    features::SNI,
    grpc::{StringMatcher, any::Extension},
};

/// TLS of connections to a cluster's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The CAs that servers' certificates must come from.
    pub roots: TrustedRoots,
    /// The provider of the client's certificate; `None` if the client presents none.
    pub identity: Option<String>,
    /// Matchers of which one must accept a subject alternative name of the server. Without matchers every
    /// certificate of a trusted CA is accepted (gRFC A29).
    pub san_matchers: Vec<StringMatcher>,
    /// The name that the client asks the server for (SNI), and the check of that name.
    pub sni: Sni,
}

/// The CAs that servers' certificates must come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedRoots {
    /// The CAs of the certificate provider of this name.
    Provider(String),
    /// The CAs of the system (gRFC A82).
    System,
}

/// gRFC A101: the name that the client asks the server for. By default the client asks for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sni {
    /// True if the host name of an endpoint is asked for, where there is one.
    pub from_host: bool,
    /// The name that is asked for where the host name is not.
    pub name: Option<String>,
    /// True if the server's certificate must have the name that was asked for. The check replaces the
    /// matchers, unless no name was asked for.
    pub validates_san: bool,
}

/// The security as a line for people: `mtls, san exact "spiffe://mesh/payments", sni payments`.
impl fmt::Display for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.identity {
            Some(_) => "mtls",
            None => "tls",
        })?;
        match &self.roots {
            TrustedRoots::Provider(_) => {}
            TrustedRoots::System => f.write_str(", system roots")?,
        }
        for (index, matcher) in self.san_matchers.iter().enumerate() {
            let separator = if index == 0 { ", san " } else { " or " };
            write!(f, "{separator}{matcher}")?;
        }
        match (&self.sni.name, self.sni.from_host) {
            (Some(name), true) => write!(f, ", sni of the host or {name}")?,
            (Some(name), false) => write!(f, ", sni {name}")?,
            (None, true) => f.write_str(", sni of the host")?,
            (None, false) => {}
        }
        if self.sni.validates_san {
            f.write_str(", san as sni")?;
        }
        Ok(())
    }
}

/// The longest name that Envoy takes for SNI (gRFC A101).
const MAX_SNI: usize = 255;

/// Reads the security of a cluster of any kind; `None` if it has none, or after an error.
pub(super) fn parse(
    proto: &cluster_pb::Cluster,
    features: &Features,
    v: &mut Validator,
) -> Option<UpstreamTls> {
    if !proto.transport_socket_matches.is_empty() {
        // gRFC A29 does not support it. Ignoring it could mean plaintext where TLS is asked for.
        v.error_at(
            "transport_socket_matches",
            "is not supported: expected transport_socket alone",
        );
    }
    let socket = proto.transport_socket.as_ref()?;
    v.field("transport_socket.typed_config", |v| {
        let proto = upstream_tls_context(socket, v)?;
        parse_context(&proto, features, v)
    })
}

fn upstream_tls_context(
    socket: &TransportSocket,
    v: &mut Validator,
) -> Option<pb::UpstreamTlsContext> {
    let Some(ConfigType::TypedConfig(any)) = &socket.config_type else {
        let expected = pb::UpstreamTlsContext::full_name();
        v.error(format!("expected {expected}, got none"));
        return None;
    };
    Extension::expect(any, v)
}

fn parse_context(
    proto: &pb::UpstreamTlsContext,
    features: &Features,
    v: &mut Validator,
) -> Option<UpstreamTls> {
    let sni = parse_sni(proto, features, v);
    if proto.allow_renegotiation {
        v.unsupported_at("allow_renegotiation", "not supported: never allowed");
    }
    let none = pb::CommonTlsContext::default();
    v.field("common_tls_context", |v| {
        let common = proto.common_tls_context.as_ref().unwrap_or(&none);
        let identity = certificates::parse(common, features, v);
        let validation = validation::parse(common, features, v)?;
        Some(UpstreamTls {
            roots: validation.roots,
            identity,
            san_matchers: validation.san_matchers,
            sni,
        })
    })
}

fn parse_sni(proto: &pb::UpstreamTlsContext, features: &Features, v: &mut Validator) -> Sni {
    let is_asked = !proto.sni.is_empty() || proto.auto_host_sni || proto.auto_sni_san_validation;
    if is_asked && !features.sni {
        let off = format!("switched off by {SNI}: no name is asked for, and the matchers count");
        v.unsupported_at("sni", off);
        return Sni::default();
    }
    if proto.sni.len() > MAX_SNI {
        let got = proto.sni.len();
        v.error_at(
            "sni",
            format!("expected at most {MAX_SNI} bytes, got {got}"),
        );
    }
    Sni {
        from_host: proto.auto_host_sni,
        name: Some(proto.sni.clone()).filter(|name| !name.is_empty()),
        validates_san: proto.auto_sni_san_validation,
    }
}
