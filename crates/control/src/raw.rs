//! Raw xDS resources: proto JSON, as YAML, with `@type`.
//!
//! Most messages have a field for their name: `name`, or `cluster_name` for endpoints. A message
//! without such a field is written `{name: N, resource: {"@type": ...}}`. It is sent in a
//! `Resource` wrapper, which holds the name. The wrapper may have a time to live, `ttl: 30s`. It may also say
//! `force: true`; then it is served even if gRPC clients refuse it.

use std::time::Duration;

use crowfly_source::yaml::{Node, Problem};
use envoy_types::pb::google::protobuf::Any;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage};
use serde::de::Error;

use crate::canonical;
use crate::descriptors;
use crate::redact;
use crate::service::text::Time;
use crate::translate::ResourceKey;

/// The fields that may hold the name of a resource. `ClusterLoadAssignment` has `cluster_name`.
const NAME_FIELDS: [&str; 2] = ["name", "cluster_name"];

/// The shortest time to live. Every client is sent a heartbeat after half of it.
const MIN_TTL: Duration = Duration::from_secs(1);

/// A resource as it will be served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawResource {
    pub(crate) name: String,
    pub(crate) any: Any,
    /// True if it is sent in a `Resource` wrapper.
    pub(crate) wrapped: bool,
    /// True if the message is in the field `resource` of its definition.
    pub(crate) is_nested: bool,
    /// The time after which clients remove the resource, if the control plane is silent.
    pub(crate) ttl: Option<Duration>,
    /// True if it is served even if gRPC clients refuse it.
    pub(crate) is_forced: bool,
}

impl RawResource {
    /// The type and the name.
    pub(crate) fn key(&self) -> ResourceKey {
        ResourceKey::new(&self.any.type_url, self.name.as_str().into())
    }
}

/// Reads the resource at `path` of its document.
pub(crate) fn read(node: &Node, path: &str) -> Result<RawResource, Problem> {
    if node.get("@type").is_some() {
        return read_named(node, path);
    }
    if node.get("resource").is_some() {
        return read_wrapped(node, path);
    }
    let message = "expected a resource with `@type`, or `name` and `resource`";
    Err(problem(node, path, message))
}

fn read_named(node: &Node, path: &str) -> Result<RawResource, Problem> {
    let message = read_message(node, path)?;
    let Some(field) = name_field(&message.descriptor()) else {
        let message = format!(
            "{} has no name of its own, expected {{name: ..., resource: {{\"@type\": ...}}}}",
            message.descriptor().full_name()
        );
        return Err(problem(node, path, &message));
    };
    let name = name_in(&message, field);
    if name.is_empty() {
        return Err(problem(node, path, &format!("expected a field `{field}`")));
    }
    Ok(RawResource {
        any: to_any(&message),
        name,
        wrapped: false,
        is_nested: false,
        ttl: None,
        is_forced: false,
    })
}

fn read_wrapped(node: &Node, path: &str) -> Result<RawResource, Problem> {
    let mut name = String::new();
    let mut message = None;
    let mut ttl = None;
    let mut is_forced = false;
    for (key, value) in node.entries() {
        let path = format!("{path}.{}", key.text);
        match key.text.as_str() {
            "name" => name = value.read(&path)?,
            "ttl" => ttl = Some(read_ttl(value, &path)?),
            "force" => is_forced = value.read(&path)?,
            "resource" => message = Some(read_message(value, &path)?),
            _ => {
                let message = "unknown field, expected name, ttl, force, resource";
                let mut problem = problem(value, &path, message);
                problem.at = Some(key.at);
                return Err(problem);
            }
        }
    }
    if name.is_empty() {
        return Err(problem(node, path, "expected a field `name`"));
    }
    let Some(message) = message else {
        return Err(problem(node, path, "expected a field `resource`"));
    };
    let inner = name_of(&message).filter(|inner| !inner.is_empty());
    if let Some(inner) = inner.as_ref().filter(|inner| **inner != name) {
        let text = format!("expected the name of the resource itself, `{inner}`, got `{name}`");
        return Err(problem(node, &format!("{path}.name"), &text));
    }
    Ok(RawResource {
        any: to_any(&message),
        name,
        // `force` alone is no reason for a wrapper, which some clients do not know.
        wrapped: !is_forced || ttl.is_some() || inner.is_none(),
        is_nested: true,
        ttl,
        is_forced,
    })
}

/// Reads a time to live. Less than a second would cost more than it helps.
fn read_ttl(node: &Node, path: &str) -> Result<Duration, Problem> {
    let ttl: Time = node.read(path)?;
    if ttl.0 < MIN_TTL {
        let message = format!("expected at least {MIN_TTL:?}, got {:?}", ttl.0);
        return Err(problem(node, path, &message));
    }
    Ok(ttl.0)
}

/// Reads a message in the JSON form of `Any`.
fn read_message(node: &Node, path: &str) -> Result<DynamicMessage, Problem> {
    let any_type = descriptors::of_message("google.protobuf.Any")
        .ok_or_else(|| problem(node, path, "no descriptors to read it by"))?;
    let any = node
        .read_discreetly(any_type.clone(), path)
        .map_err(|problem| without_secrets(node, &any_type, path, problem))?;
    decode(&any).map_err(|error| problem(node, path, &error))
}

/// A problem of the message `node`, without the names of fields inside of a secret: they may be the secret itself.
fn without_secrets(
    node: &Node,
    descriptor: &MessageDescriptor,
    path: &str,
    mut problem: Problem,
) -> Problem {
    if let Some(secret) = redact::secret_around(node, descriptor, path, &problem.path) {
        problem.path = secret;
        let end = problem.message.find('\'');
        problem
            .message
            .truncate(end.unwrap_or(problem.message.len()));
        problem.message.truncate(problem.message.trim_end().len());
    }
    problem
}

fn decode(any: &DynamicMessage) -> Result<DynamicMessage, String> {
    let any: Any = any.transcode_to().map_err(|error| error.to_string())?;
    decode_any(&any)
}

/// Decodes a message by its type URL.
pub(crate) fn decode_any(any: &Any) -> Result<DynamicMessage, String> {
    let descriptor = descriptors::of_type_url(&any.type_url)?;
    DynamicMessage::decode(descriptor, any.value.as_slice()).map_err(|error| error.to_string())
}

/// The name that a message has; `None` if it has no field for one.
pub(crate) fn name_of(message: &DynamicMessage) -> Option<String> {
    name_field(&message.descriptor()).map(|field| name_in(message, field))
}

fn name_field(descriptor: &MessageDescriptor) -> Option<&'static str> {
    NAME_FIELDS.into_iter().find(|name| {
        descriptor
            .get_field_by_name(name)
            .is_some_and(|field| field.kind() == Kind::String && !field.is_list())
    })
}

fn name_in(message: &DynamicMessage, field: &str) -> String {
    let value = message.get_field_by_name(field);
    value
        .as_deref()
        .and_then(|value| value.as_str())
        .unwrap_or_default()
        .to_owned()
}

fn to_any(message: &DynamicMessage) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{}", message.descriptor().full_name()),
        value: canonical::encode(message),
    }
}

fn problem(node: &Node, path: &str, message: &str) -> Problem {
    Problem {
        at: Some(node.at),
        path: path.to_owned(),
        ..Problem::custom(message)
    }
}
