//! `envoy.extensions.clusters.aggregate.v3.ClusterConfig`: the clusters of an aggregate cluster, in order of
//! preference.
//!
//! The list comes inside a cluster (gRFC A37) or as a resource of its own (gRFC A99). One parser reads both,
//! because both have the same rules.

use crate::{Decoded, Features, ResourceType, Validator, wire};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as pb;

/// The clusters of an aggregate, the preferred one first; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Names of clusters, which may be aggregates themselves. The list may have a name twice.
    pub clusters: Vec<String>,
}

/// The message has no name field, so the name is that of the `Resource` wrapper around it, in both
/// variants of the protocol. gRFC A99 does not say so, but there is no other name.
impl ResourceType for ClusterConfig {
    type Parsed = Self;
    type Context = Features;

    const TYPE_URL: &'static str =
        "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
    const NOUN: &'static str = "cluster list";
    const ALL_IN_SOTW: bool = false;

    fn parse(bytes: &[u8], _: &Features) -> Decoded<Self> {
        let proto = match wire::decode::<pb::ClusterConfig>(bytes) {
            Ok(proto) => proto,
            Err(error) => return Decoded::undecodable(error),
        };
        let mut v = Validator::default();
        let config = parse(proto, &mut v);
        Decoded {
            name: None,
            value: v.finish(config),
        }
    }
}

pub(super) fn parse(proto: pb::ClusterConfig, v: &mut Validator) -> ClusterConfig {
    if proto.clusters.is_empty() {
        v.error_at("clusters", "expected at least one, got none");
    }
    // No cluster has an empty name, and a server may take it as a request for all clusters.
    for (i, name) in proto.clusters.iter().enumerate() {
        if name.is_empty() {
            let message = "expected the name of a cluster, got an empty string";
            v.field("clusters", |v| v.index(i, |v| v.error(message)));
        }
    }
    ClusterConfig {
        clusters: proto.clusters,
    }
}
