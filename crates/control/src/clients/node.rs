//! The node of a client, as pages show it to an operator. The version is one text, because xDS has
//! two forms of it.

use crowfly_model::grpc::endpoints::LocalityId;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;

use super::view::NodeView;
use crate::client_kind::Family;

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
        let locality = locality.map(|of| LocalityId::new(&of.region, &of.zone, &of.sub_zone));
        let locality = locality.filter(|of| *of != LocalityId::default());
        Self {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
            kind: Family::of(node).map(|family| family.name().to_owned()),
            user_agent: format!("{} {version}", node.user_agent_name)
                .trim()
                .to_owned(),
            locality: locality.map(|of| of.to_string()).unwrap_or_default(),
        }
    }
}
