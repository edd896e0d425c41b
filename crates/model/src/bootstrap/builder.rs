//! Bootstraps made in code.

use envoy_types::pb::google::protobuf::Struct;

use super::{Bootstrap, BootstrapError, Node, Origin, ServerConfig, node};
use crate::{Validator, grpc::endpoints::LocalityId};

/// Makes a [`Bootstrap`] without a file or an environment variable.
#[derive(Clone, Debug)]
#[must_use]
pub struct BootstrapBuilder {
    servers: Vec<ServerConfig>,
    node: Node,
}

impl BootstrapBuilder {
    pub(super) fn new(uri: &str) -> Result<Self, BootstrapError> {
        let builder = Self {
            servers: Vec::new(),
            node: Node::default(),
        };
        builder.server(uri)
    }

    /// Adds a server, to be asked when those before it cannot be reached.
    pub fn server(mut self, uri: &str) -> Result<Self, BootstrapError> {
        let mut v = Validator::default();
        let server = v.field("xds_servers", |v| {
            v.index(self.servers.len(), |v| ServerConfig::insecure(uri, v))
        });
        let server = v.finish(server).map_err(|errors| BootstrapError::Invalid {
            origin: Origin::Code,
            errors,
        })?;
        self.servers.extend(server);
        Ok(self)
    }

    /// Sets the node's id, by which operators tell clients apart.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node.id = id.into();
        self
    }

    /// Sets the node's cluster: the service that the client is part of.
    pub fn cluster(mut self, cluster: impl Into<String>) -> Self {
        self.node.cluster = cluster.into();
        self
    }

    /// Sets where the client runs.
    pub fn locality(mut self, locality: LocalityId) -> Self {
        self.node.locality = Some(locality.into());
        self
    }

    /// Sets what else the control plane is told of the client.
    pub fn metadata(mut self, metadata: Struct) -> Self {
        self.node.metadata = Some(metadata);
        self
    }

    /// The bootstrap.
    pub fn build(self) -> Bootstrap {
        Bootstrap {
            servers: self.servers,
            node: node::introduce(self.node),
        }
    }
}
