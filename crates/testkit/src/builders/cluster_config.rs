//! The builder of cluster lists: the children of an aggregate cluster as a resource (gRFC A99).
//!
//! A list is valid unless it is empty, so that a test names only its clusters.

use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::Resource;

/// A cluster list named `name`, without clusters.
pub fn cluster_config(name: &str) -> ClusterConfigBuilder {
    ClusterConfigBuilder {
        name: name.to_owned(),
        config: ClusterConfig::default(),
    }
}

/// Makes a cluster list.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterConfigBuilder {
    /// The name, which is kept here because the message has no field for it.
    name: String,
    config: ClusterConfig,
}

impl ClusterConfigBuilder {
    /// Sets the clusters of the list, the preferred one first.
    pub fn clusters<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.config.clusters = names.into_iter().map(ToOwned::to_owned).collect();
        self
    }

    /// Makes the list invalid: an empty list is not allowed.
    pub fn invalid(self) -> Self {
        self.clusters([])
    }

    /// The message alone, without its name, as a delta response carries it.
    pub fn any(&self) -> Any {
        pack_any(self.config.clone())
    }
}

impl Resource for ClusterConfigBuilder {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }

    fn is_wrapped(&self) -> bool {
        true
    }
}
