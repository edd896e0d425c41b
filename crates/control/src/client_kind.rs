//! The kinds of clients, by how they introduce themselves.
//!
//! Clients of different kinds accept different forms of some resources, so each is served the form of its kind.

use crowfly_model::Features;
use envoy_types::pb::envoy::config::core::v3::Node;
use serde::Deserialize;

/// The names by which node agents introduce themselves: ours, and that of Cilium's xDS client.
const AGENTS: [&str; 2] = ["crowfly-node", "cilium-agent"];

/// The family of a client, which a view may ask for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    /// Envoy.
    Envoy,
    /// A gRPC client, ours among them.
    Grpc,
    /// A node agent.
    Node,
}

impl Family {
    /// The name by which views and pages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Grpc => "grpc",
            Self::Node => "node",
        }
    }

    /// The family of a client; `None` if its name is not known.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        match node.user_agent_name.as_str() {
            "envoy" => Some(Self::Envoy),
            "crowfly" => Some(Self::Grpc),
            name if AGENTS.contains(&name) => Some(Self::Node),
            // C-core, Go, Java and Node say "gRPC C-core linux", "gRPC Go", "gRPC Java" and "gRPC Node Pure JS".
            name if name.starts_with("gRPC") => Some(Self::Grpc),
            _ => None,
        }
    }
}

/// The form in which a client is served resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Form {
    /// Resources as they are. The lists of aggregates may be resources of their own (gRFC A99).
    AsIs,
    /// The resources for node agents ([`crate::agents`]).
    Agent,
    /// The resources for Envoys ([`crate::envoy`]).
    Envoy,
    /// The resources for all other clients. The lists of all aggregates are inside the clusters
    /// ([`crate::inline`]).
    Inline,
}

impl Form {
    /// The form for a client. A client that says nothing about gRFC A99 is not sent it, because C-core, Node and
    /// Envoy refuse such a cluster.
    pub(crate) fn of(node: Option<&Node>) -> Self {
        let Some(node) = node else {
            return Self::Inline;
        };
        match Family::of(node) {
            Some(Family::Envoy) => Self::Envoy,
            Some(Family::Node) => Self::Agent,
            Some(Family::Grpc) | None => {
                let mut features = node.client_features.iter();
                if features.any(|feature| feature == LISTS_AS_RESOURCES) {
                    Self::AsIs
                } else {
                    Self::Inline
                }
            }
        }
    }
}

/// The feature that a client announces if it reads lists of clusters as resources (gRFC A99).
const LISTS_AS_RESOURCES: &str = Features::AGGREGATE_CLUSTER_RESOURCE;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(user_agent: &str, features: &[&str]) -> Node {
        Node {
            user_agent_name: user_agent.to_owned(),
            client_features: features.iter().map(|of| (*of).to_owned()).collect(),
            ..Node::default()
        }
    }

    /// V-08: the form depends on the name of the client, and for gRPC on what it announces.
    #[test]
    fn each_kind_of_client_has_a_form() {
        for (user_agent, family, form) in [
            ("envoy", Some(Family::Envoy), Form::Envoy),
            ("crowfly-node", Some(Family::Node), Form::Agent),
            ("cilium-agent", Some(Family::Node), Form::Agent),
            ("crowfly", Some(Family::Grpc), Form::Inline),
            ("gRPC C-core linux", Some(Family::Grpc), Form::Inline),
            ("gRPC Go", Some(Family::Grpc), Form::Inline),
            ("gRPC Java", Some(Family::Grpc), Form::Inline),
            ("gRPC Node Pure JS", Some(Family::Grpc), Form::Inline),
            ("something else", None, Form::Inline),
            ("", None, Form::Inline),
        ] {
            let node = node(user_agent, &[]);
            assert_eq!(Family::of(&node), family, "{user_agent}");
            assert_eq!(Form::of(Some(&node)), form, "{user_agent}");
        }
        assert_eq!(Form::of(None), Form::Inline);
    }

    /// V-08: a client that announces gRFC A99 is sent resources as they are; an Envoy never is.
    #[test]
    fn a_client_that_reads_lists_as_resources_says_so() {
        let able = [LISTS_AS_RESOURCES];
        assert_eq!(Form::of(Some(&node("crowfly", &able))), Form::AsIs);
        assert_eq!(Form::of(Some(&node("gRPC Go", &able))), Form::AsIs);
        assert_eq!(Form::of(Some(&node("envoy", &able))), Form::Envoy);
    }
}
