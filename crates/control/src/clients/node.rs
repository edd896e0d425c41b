//! The node of a client, as an operator sees it.

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use serde::Serialize;

/// The identity that a client gave in its first request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeView {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) user_agent: String,
    locality: Option<[String; 3]>,
}

impl NodeView {
    pub(crate) fn new(node: &Node) -> Self {
        let version = match &node.user_agent_version_type {
            Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
            Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
                let v = build.version.unwrap_or_default();
                format!("{}.{}.{}", v.major_number, v.minor_number, v.patch)
            }
            None => String::new(),
        };
        let locality = node.locality.as_ref();
        Self {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
            user_agent: format!("{} {version}", node.user_agent_name)
                .trim()
                .to_owned(),
            locality: locality.map(|l| [l.region.clone(), l.zone.clone(), l.sub_zone.clone()]),
        }
    }
}
