//! Shares of calls that the control plane wants dropped.
//!
//! A share has a category, because load reports count the dropped calls by category.

use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::policy as pb;

use crate::{
    Validator,
    grpc::{decode::require_text, fraction},
};

/// A share of calls to drop, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropOverload {
    /// The reason, by the name that load reports give it.
    pub category: String,
    /// The number of calls to drop of a million calls; at most a million.
    pub per_million: u32,
}

pub(super) fn parse(proto: pb::DropOverload, v: &mut Validator) -> Option<DropOverload> {
    require_text(&proto.category, "category", v);
    let share = v.field("drop_percentage", |v| match proto.drop_percentage {
        Some(share) => fraction::parse(share, v),
        None => {
            v.error("expected a share, got none");
            None
        }
    });
    Some(DropOverload {
        category: proto.category,
        per_million: share?.millionths(),
    })
}
