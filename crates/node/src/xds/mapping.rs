//! The settings of the mapping, which all readings share.
//!
//! The namespace of metadata is a setting, because CFP-30235 names the keys of metadata and no namespace.

use std::net::IpAddr;
use std::sync::Arc;

use crate::cidr::Cidr;

/// The namespace of the metadata that the agent reads, unless another one is set.
pub const METADATA_NAMESPACE: &str = "io.cilium.service";

/// The namespace that is read where the first one is missing.
const OTHER_NAMESPACE: &str = "cilium.io";

/// The settings of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The namespaces of metadata. The first one that a resource has is read.
    pub namespaces: Vec<Arc<str>>,
}

impl Default for Mapping {
    fn default() -> Self {
        Self::in_namespace(METADATA_NAMESPACE)
    }
}

impl Mapping {
    /// A mapping that reads this namespace of metadata, and `cilium.io` where it is missing.
    pub fn in_namespace(namespace: &str) -> Self {
        let mut namespaces = vec![Arc::from(namespace)];
        if namespace != OTHER_NAMESPACE {
            namespaces.push(OTHER_NAMESPACE.into());
        }
        Self { namespaces }
    }
}

/// The pods on this node. An endpoint that names no node is on this one if its address is that of a pod here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// The name of this node.
    pub node: Option<Arc<str>>,
    /// The addresses of its pods.
    pub cidrs: Vec<Cidr>,
}

impl Pods {
    /// This node, if one of the addresses is that of a pod on it.
    pub(super) fn node_of(&self, addresses: &[IpAddr]) -> Option<&Arc<str>> {
        let is_pod = |address: &IpAddr| self.cidrs.iter().any(|cidr| cidr.contains(*address));
        self.node.as_ref().filter(|_| addresses.iter().any(is_pod))
    }
}
