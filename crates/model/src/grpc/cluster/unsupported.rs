//! Fields of a cluster that can be set and have no effect yet.
//!
//! They are recorded, because a user takes a field for effective if it was accepted without a message.

use envoy_types::pb::envoy::config::{cluster::v3 as pb, core::v3::transport_socket as pb_socket};

use crate::{Validator, grpc::any::type_name};

/// Records the fields of a leaf cluster that have no effect. It is not used for an aggregate, because each
/// of its leaves has these fields itself (gRFC A75).
pub(super) fn find(proto: &pb::Cluster, v: &mut Validator) {
    if let Some(socket) = &proto.transport_socket {
        let any = match &socket.config_type {
            Some(pb_socket::ConfigType::TypedConfig(any)) => any.type_url.as_str(),
            None => "",
        };
        let kind = type_name(any).unwrap_or(&socket.name);
        v.unsupported_at(
            "transport_socket",
            format!(
                "{kind} is not supported: connections have the credentials of the channel (gRFC A29)"
            ),
        );
    }
    if proto.outlier_detection.is_some() {
        let message = "not supported: no endpoint is ejected (gRFC A50)";
        v.unsupported_at("outlier_detection", message);
    }
    if proto.lrs_server.is_some() {
        v.unsupported_at("lrs_server", "not supported: no load is reported");
    }
}
