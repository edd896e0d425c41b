//! Reads aggregate clusters: those of services, and raw ones that gRPC might refuse.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{
    AggregateClusterResource, ClusterConfig,
};
use prost::{Message, Name};

/// Where the clusters are that an aggregate stands for.
pub(crate) enum Children {
    /// In the cluster.
    Inline(ClusterConfig),
    /// In the resource of this name (gRFC A99).
    Resource(String),
}

impl Children {
    /// `None` if it is no aggregate, or none that can be read.
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
