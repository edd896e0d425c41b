//! Fields of a cluster that can be set and have no effect yet.
//!
//! They are recorded, because a user takes a field for effective if it was accepted without a message.

use envoy_types::pb::envoy::config::cluster::v3 as pb;

use super::{EndpointPolicy, LbPolicy, outlier_detection};
use crate::Validator;

/// Records the fields of a leaf cluster that have no effect. It is not used for an aggregate, because each
/// of its leaves has these fields itself (gRFC A75).
pub(super) fn find(proto: &pb::Cluster, lb_policy: Option<&LbPolicy>, v: &mut Validator) {
    if let Some(detection) = &proto.outlier_detection {
        v.field("outlier_detection", |v| {
            outlier_detection::ignored(detection, v);
            // gRFC A61: a leaf that has one connection for all calls has no other endpoint to go to.
            if let Some(LbPolicy::WrrLocality(policy) | LbPolicy::Endpoints(policy)) = lb_policy
                && let EndpointPolicy::PickFirst { .. } = policy
            {
                v.unsupported("no effect on pick_first (gRFC A61)");
            }
        });
    }
}
