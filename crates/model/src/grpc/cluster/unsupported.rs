//! Fields of a cluster that can be set and have no effect yet.
//!
//! Such fields are recorded, because users expect a field to have an effect if it was accepted
//! without a message.

use envoy_types::pb::envoy::config::cluster::v3 as pb;

use super::{EndpointPolicy, LbPolicy, outlier_detection};
use crate::Validator;

/// Records the fields of an aggregate that have an effect only in its leaves (gRFC A75).
pub(super) fn in_aggregate(proto: &pb::Cluster, v: &mut Validator) {
    let common = proto.common_lb_config.as_ref();
    let health = common.and_then(|common| common.override_host_status.as_ref());
    let set = [
        (proto.circuit_breakers.is_some(), "circuit_breakers"),
        (health.is_some(), "common_lb_config.override_host_status"),
        (proto.outlier_detection.is_some(), "outlier_detection"),
        (proto.upstream_config.is_some(), "upstream_config"),
    ];
    for (_, name) in set.into_iter().filter(|(is_set, _)| *is_set) {
        let message = "no effect in an aggregate: each of its clusters has its own (gRFC A75)";
        v.unsupported_at(name, message);
    }
}

/// Records the fields of a leaf cluster that have no effect.
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
