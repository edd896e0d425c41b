//! Clusters.

use envoy_types::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy},
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::{Resource, ads};

/// A cluster named `name` whose endpoints have the same name.
pub fn cluster(name: &str) -> ClusterBuilder {
    ClusterBuilder(Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            service_name: String::new(),
        }),
        ..Cluster::default()
    })
}

/// Makes a cluster.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterBuilder(Cluster);

impl ClusterBuilder {
    /// Its endpoints are the resource `name`.
    pub fn eds(self, name: &str) -> Self {
        self.edit(|cluster| {
            if let Some(eds) = &mut cluster.eds_cluster_config {
                name.clone_into(&mut eds.service_name);
            }
        })
    }

    /// Breaks it: no client of ours balances by CLUSTER_PROVIDED.
    pub fn invalid(self) -> Self {
        self.edit(|cluster| cluster.lb_policy = LbPolicy::ClusterProvided as i32)
    }

    /// Changes whatever has no method of its own.
    pub fn edit(mut self, edit: impl FnOnce(&mut Cluster)) -> Self {
        edit(&mut self.0);
        self
    }

    /// The resource as it goes over the wire.
    pub fn any(&self) -> Any {
        pack_any(self.0.clone())
    }
}

impl Resource for ClusterBuilder {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }
}
