//! What there is to see of a client, wherever it comes from.

use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The order in which one type leads to the next; others follow, by name.
const ORDER: [&str; 4] = [
    "Listener",
    "RouteConfiguration",
    "Cluster",
    "ClusterLoadAssignment",
];

/// All that was found at one address.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) clients: Vec<Client>,
}

/// One xDS client.
#[derive(Debug, Serialize)]
pub(super) struct Client {
    /// What it is for, such as the target of a channel; empty if it does not say.
    pub(super) scope: String,
    pub(super) node: Node,
    pub(super) resources: Vec<Resource>,
}

/// How it introduces itself to the control plane.
#[derive(Debug, Default, Serialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) cluster: String,
}

/// One resource that it watches.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Resource {
    pub(super) type_url: String,
    pub(super) name: String,
    /// `ACKED`, `NACKED` and so on.
    pub(super) state: String,
    /// The version in use.
    pub(super) version: Option<String>,
    /// Since when.
    #[serde(serialize_with = "rfc3339")]
    pub(super) updated: Option<SystemTime>,
    /// What is wrong since.
    pub(super) error: Option<Failure>,
    /// The whole of it, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<Value>,
}

/// Something that went wrong with a resource.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Failure {
    /// The version that was refused.
    pub(super) version: Option<String>,
    #[serde(serialize_with = "rfc3339")]
    pub(super) at: Option<SystemTime>,
    pub(super) details: String,
}

impl Client {
    /// Puts the resources in the order in which one leads to the next.
    pub(super) fn sort(&mut self) {
        self.resources.sort_by(|a, b| a.order().cmp(&b.order()));
    }
}

impl Resource {
    /// The last part of the type URL, which is what people call it.
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

/// `None` for a field that is not set, which protobuf does not tell from empty.
pub(super) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

// The signature is serde's.
#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn rfc3339<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&humantime::format_rfc3339_millis(*time)),
        None => serializer.serialize_none(),
    }
}
