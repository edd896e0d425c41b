//! How the client introduces itself.
//!
//! The node is written in proto JSON form and reaches the server whole (gRFC A27), but for what the
//! client says of itself. Reading this one message by hand keeps a whole JSON-to-proto machinery out of
//! every client.

mod fields;
mod rest;

use envoy_types::pb::envoy::config::core::v3::{Locality, Node, node::UserAgentVersionType};
use serde_json::Value as Json;

use self::fields::{Fields, to_struct};
use crate::Validator;

const USER_AGENT: &str = "crowfly";

/// What the client tells servers it can and cannot do (gRFC A27, A53).
const CLIENT_FEATURES: [&str; 2] = [
    "envoy.lb.does_not_support_overprovisioning",
    "xds.config.resource-in-sotw",
];

/// Adds what the client says of itself, which no file can change.
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
