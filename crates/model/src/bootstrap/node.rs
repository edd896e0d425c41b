//! How the client introduces itself.
//!
//! The node is written in proto JSON form, of which the bootstrap uses a small part; reading that
//! part by hand keeps a whole JSON-to-proto machinery out of every client.

use envoy_types::pb::{
    envoy::config::core::v3::{Locality, Node, node::UserAgentVersionType},
    google::protobuf::{ListValue, Struct, Value, value::Kind},
};
use serde_json::Value as Json;

use super::json::{Object, kind_of, object};
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
    let Some(json) = object(json, v) else {
        return Node::default();
    };
    Node {
        id: text(json, &["id"], v),
        cluster: text(json, &["cluster"], v),
        locality: parse_locality(json, v),
        metadata: parse_metadata(json, v),
        ..Node::default()
    }
}

fn parse_locality(node: &Object, v: &mut Validator) -> Option<Locality> {
    let json = node.get("locality").filter(|json| !json.is_null())?;
    v.field("locality", |v| {
        let json = object(json, v)?;
        Some(Locality {
            region: text(json, &["region"], v),
            zone: text(json, &["zone"], v),
            sub_zone: text(json, &["sub_zone", "subZone"], v),
        })
    })
}

fn parse_metadata(node: &Object, v: &mut Validator) -> Option<Struct> {
    let json = node.get("metadata").filter(|json| !json.is_null())?;
    let json = v.field("metadata", |v| object(json, v))?;
    Some(to_struct(json))
}

/// A string field under any of its names; unset and null are empty, as in all proto JSON.
fn text(json: &Object, names: &[&str], v: &mut Validator) -> String {
    let found = names.iter().find_map(|name| Some((name, json.get(*name)?)));
    match found {
        None | Some((_, Json::Null)) => String::new(),
        Some((_, Json::String(text))) => text.clone(),
        Some((name, other)) => {
            v.error_at(name, format!("expected a string, got {}", kind_of(other)));
            String::new()
        }
    }
}

fn to_struct(json: &Object) -> Struct {
    let fields = json.iter();
    Struct {
        fields: fields
            .map(|(name, json)| (name.clone(), to_value(json)))
            .collect(),
    }
}

fn to_value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(*flag),
        // A Struct has no other numbers; a JSON number that is no f64 does not come from the parser.
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(to_value).collect(),
        }),
        Json::Object(fields) => Kind::StructValue(to_struct(fields)),
    };
    Value { kind: Some(kind) }
}
