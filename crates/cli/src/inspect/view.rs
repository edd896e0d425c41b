//! The client status that CSDS and Envoy's admin port have in common, because text, JSON and YAML
//! print both alike.

use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The order in which types refer to each other. Other types follow, by name.
const ORDER: [&str; 4] = [
    "Listener",
    "RouteConfiguration",
    "Cluster",
    "ClusterLoadAssignment",
];

/// The clients at one address.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) clients: Vec<Client>,
}

/// One xDS client.
#[derive(Debug, Serialize)]
pub(super) struct Client {
    /// The scope of the client, such as the target of a channel; empty if the server sends none.
    pub(super) scope: String,
    pub(super) node: Node,
    pub(super) resources: Vec<Resource>,
}

/// The node that the client names to the control plane.
#[derive(Debug, Default, Serialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) cluster: String,
}

/// One resource that the client watches.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Resource {
    pub(super) type_url: String,
    pub(super) name: String,
    /// `ACKED`, `NACKED` and so on.
    pub(super) state: String,
    /// The version in use.
    pub(super) version: Option<String>,
    /// The time since when the version is in use.
    #[serde(serialize_with = "rfc3339")]
    pub(super) updated: Option<SystemTime>,
    /// The last error since then.
    pub(super) error: Option<Failure>,
    /// The content of the resource, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<Value>,
}

/// An error of a resource.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Failure {
    /// The version that was refused.
    pub(super) version: Option<String>,
    #[serde(serialize_with = "rfc3339")]
    pub(super) at: Option<SystemTime>,
    pub(super) details: String,
}

impl Client {
    /// Sorts the resources in the order in which they refer to each other.
    pub(super) fn sort(&mut self) {
        self.resources.sort_by(|a, b| a.order().cmp(&b.order()));
    }
}

impl Resource {
    /// The last part of the type URL, by which people know the type.
    pub(super) fn kind(&self) -> &str {
        let path = self.type_url.rsplit('/').next().unwrap_or_default();
        path.rsplit('.').next().unwrap_or_default()
    }

    fn order(&self) -> (usize, &str, &str) {
        let kind = self.kind();
        let known = ORDER.iter().position(|known| *known == kind);
        (known.unwrap_or(ORDER.len()), kind, &self.name)
    }
}

/// `None` for an empty text, because protobuf does not distinguish it from an unset field.
pub(super) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

// serde fixes the signature.
#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn rfc3339<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&humantime::format_rfc3339_millis(*time)),
        None => serializer.serialize_none(),
    }
}
