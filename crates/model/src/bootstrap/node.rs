//! The `node` of a bootstrap, by which the client identifies itself to servers.
//!
//! The node is in proto JSON form, and every field of it reaches the server (gRFC A27). The client sets its name,
//! version and features itself. The message is parsed by hand, because a general parser of proto JSON would add a large
//! dependency to every client.

mod fields;
mod rest;

use envoy_types::pb::envoy::config::core::v3::{Locality, Node, node::UserAgentVersionType};
use serde_json::Value as Json;

use self::fields::{Fields, to_struct};
use crate::Validator;

const USER_AGENT: &str = "crowfly";

/// The features that the client announces to servers (gRFC A27, A53).
const CLIENT_FEATURES: [&str; 2] = [
    "envoy.lb.does_not_support_overprovisioning",
    "xds.config.resource-in-sotw",
];

/// Sets the client's name, version and features. The client's values replace those of the file, because only the client
/// knows them.
pub(super) fn introduce(mut node: Node) -> Node {
    node.user_agent_name = USER_AGENT.to_owned();
    node.user_agent_version_type = Some(UserAgentVersionType::UserAgentVersion(
        env!("CARGO_PKG_VERSION").to_owned(),
    ));
    node.client_features = CLIENT_FEATURES.map(str::to_owned).to_vec();
    node
}

/// Reads the `node` field.
pub(super) fn parse(json: &Json, v: &mut Validator) -> Node {
    let Some(node) = Fields::of(json, v) else {
        return Node::default();
    };
    #[expect(deprecated, reason = "servers may still read the addresses")]
    Node {
        id: node.text("id", v),
        cluster: node.text("cluster", v),
        locality: node.message("locality", v, |locality, v| Locality {
            region: locality.text("region", v),
            zone: locality.text("zone", v),
            sub_zone: locality.text("sub_zone", v),
        }),
        metadata: node.message("metadata", v, |metadata, _| to_struct(metadata.object())),
        dynamic_parameters: rest::dynamic_parameters(&node, v),
        extensions: node.messages("extensions", v, rest::extension),
        listening_addresses: node.messages("listening_addresses", v, rest::address),
        ..Node::default()
    }
}
