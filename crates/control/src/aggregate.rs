//! Reads aggregate clusters: those of services, and raw ones.
//!
//! gRPC's own parser does not serve here, because it refuses raw clusters that Envoys accept.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{
    AggregateClusterResource, ClusterConfig,
};
use prost::{Message, Name};

/// The place of the list of clusters of an aggregate.
pub(crate) enum Children {
    /// The list is in the cluster itself.
    Inline(ClusterConfig),
    /// The list is in the resource of this name (gRFC A99).
    Resource(String),
}

impl Children {
    /// The list of a cluster; `None` if it is not an aggregate, or cannot be decoded.
    pub(crate) fn of(cluster: &Cluster) -> Option<Self> {
        let Some(ClusterDiscoveryType::ClusterType(custom)) = &cluster.cluster_discovery_type
        else {
            return None;
        };
        let any = custom.typed_config.as_ref()?;
        let (_, name) = any.type_url.rsplit_once('/')?;
        let bytes = any.value.as_slice();
        if name == ClusterConfig::full_name() {
            return Some(Self::Inline(ClusterConfig::decode(bytes).ok()?));
        }
        if name == AggregateClusterResource::full_name() {
            let resource = AggregateClusterResource::decode(bytes).ok()?;
            return Some(Self::Resource(resource.resource_name));
        }
        None
    }
}
