//! Fields of a cluster that can be set and have no effect yet.
//!
//! They are recorded, because a user takes a field for effective if it was accepted without a message.

use envoy_types::pb::envoy::config::cluster::v3 as pb;

use crate::Validator;

/// Records the fields of a leaf cluster that have no effect. It is not used for an aggregate, because each
/// of its leaves has these fields itself (gRFC A75).
pub(super) fn find(proto: &pb::Cluster, v: &mut Validator) {
    if proto.outlier_detection.is_some() {
        let message = "not supported: no endpoint is ejected (gRFC A50)";
        v.unsupported_at("outlier_detection", message);
    }
}
