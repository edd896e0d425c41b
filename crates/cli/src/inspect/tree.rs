//! Reads the debug service (`crowfly.debug.v1.Debug`), which lists the channels of a process with the
//! balancing tree of each cluster.
//!
//! The trees come as fields. JSON and YAML print the fields. The text comes from the library's own
//! renderer, so that it equals the text of `Channel::tree`.

use std::fmt::Write;
use std::time::Duration;

use crowfly::debug::v1::{
    Channel, ListChannelsRequest, State, Tree,
    debug_client::DebugClient,
    tree::{Drop, Ejection, Kind, OverrideHost, Role},
};
use serde::Serialize;

use super::{
    Address, InspectError,
    grpc::{self, MAX_RESPONSE_BYTES, Service},
};
use crate::output::printable;

/// Asks the service at `address`.
pub(super) async fn read(address: &Address) -> Result<Vec<Channel>, InspectError> {
    let channel = grpc::connect(address).await?;
    let mut client = DebugClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    let response = client.list_channels(ListChannelsRequest {}).await;
    let response = response.map_err(|status| grpc::refused(address, Service::Debug, status))?;
    Ok(response.into_inner().channels)
}

/// Writes the channels for a person: each tree as its channel would print it.
pub(super) fn render(channels: &[Channel]) -> String {
    if channels.is_empty() {
        return "no channels".to_owned();
    }
    let channels: Vec<_> = channels.iter().map(section).collect();
    channels.join("\n\n")
}

fn section(channel: &Channel) -> String {
    let mut text = printable(&channel.target);
    // Writing to a string cannot fail.
    if !channel.node_id.is_empty() {
        let _ = write!(text, " (node {})", printable(&channel.node_id));
    }
    if let Some(state) = state(channel.state()) {
        let _ = write!(text, ": {state}");
    }
    if !channel.note.is_empty() {
        let _ = write!(text, " ({})", printable(&channel.note));
    }
    for cluster in &channel.clusters {
        for line in clean(cluster).to_string().lines() {
            let _ = write!(text, "\n  {line}");
        }
    }
    text
}

/// The tree without control characters, because its texts come from another process.
fn clean(tree: &Tree) -> Tree {
    Tree {
        name: printable(&tree.name),
        addresses: tree.addresses.iter().map(|one| printable(one)).collect(),
        drops: tree.drops.iter().map(clean_drop).collect(),
        override_host: tree.override_host.as_ref().map(clean_sessions),
        note: printable(&tree.note),
        security: printable(&tree.security),
        ejection: tree.ejection.as_ref().map(clean_ejection),
        children: tree.children.iter().map(clean).collect(),
        ..*tree
    }
}

fn clean_sessions(settings: &OverrideHost) -> OverrideHost {
    let health = settings.health.iter().map(|health| printable(health));
    OverrideHost {
        health: health.collect(),
        ..*settings
    }
}

fn clean_drop(drop: &Drop) -> Drop {
    Drop {
        category: printable(&drop.category),
        ..*drop
    }
}

fn clean_ejection(ejection: &Ejection) -> Ejection {
    Ejection {
        rule: printable(&ejection.rule),
        ..*ejection
    }
}

/// The channels as JSON and YAML show them.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    channels: Vec<ChannelView<'a>>,
}

#[derive(Debug, Serialize)]
struct ChannelView<'a> {
    target: &'a str,
    /// The id of the node that the channel names to the control plane.
    node: Option<&'a str>,
    state: Option<&'static str>,
    /// The resource that the channel's calls wait for, or the reason why they fail before a cluster
    /// is chosen.
    note: Option<&'a str>,
    clusters: Vec<TreeView<'a>>,
}

/// One node. Fields that the kind of the node does not have are left out.
#[derive(Debug, Serialize)]
struct TreeView<'a> {
    /// `cluster_impl` and so on; `null` for a kind that this version does not know.
    kind: Option<String>,
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    addresses: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drops: Vec<DropView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    security: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    override_host: Option<OverrideHostView<'a>>,
    state: Option<&'static str>,
    /// `in_use` and so on.
    role: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    failover_timer_expired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picks: Option<u64>,
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ejection: Option<EjectionView<'a>>,
    children: Vec<Self>,
}

#[derive(Debug, Serialize)]
struct DropView<'a> {
    category: &'a str,
    per_million: u32,
}

/// The ejection of an endpoint by outlier detection.
#[derive(Debug, Serialize)]
struct EjectionView<'a> {
    rule: &'a str,
    succeeded: u64,
    failed: u64,
    seconds: f64,
    /// The part of the time that is left.
    seconds_left: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OverrideHostView<'a> {
    /// The health of endpoints that sessions may stick to.
    health: &'a [String],
    idle_timeout_ms: u64,
}

impl<'a> OverrideHostView<'a> {
    fn new(settings: &'a OverrideHost) -> Self {
        Self {
            health: &settings.health,
            idle_timeout_ms: settings.idle_timeout_ms,
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn new(channels: &'a [Channel]) -> Self {
        let channels = channels.iter().map(|channel| ChannelView {
            target: &channel.target,
            node: non_empty(&channel.node_id),
            state: state(channel.state()),
            note: non_empty(&channel.note),
            clusters: channel.clusters.iter().map(TreeView::new).collect(),
        });
        Self {
            channels: channels.collect(),
        }
    }
}

impl<'a> TreeView<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            kind: kind(tree.kind()),
            name: non_empty(&tree.name),
            addresses: &tree.addresses,
            weight: tree.weight,
            limit: tree.limit,
            drops: tree.drops.iter().map(DropView::new).collect(),
            security: non_empty(&tree.security),
            override_host: tree.override_host.as_ref().map(OverrideHostView::new),
            state: state(tree.state()),
            role: role(tree.role()),
            failover_timer_expired: tree.failover_timer_expired,
            in_flight: tree.in_flight,
            waiting: tree.waiting,
            picks: tree.picks,
            note: non_empty(&tree.note),
            ejection: tree.ejection.as_ref().map(EjectionView::new),
            children: tree.children.iter().map(Self::new).collect(),
        }
    }
}

impl<'a> DropView<'a> {
    fn new(drop: &'a Drop) -> Self {
        Self {
            category: &drop.category,
            per_million: drop.per_million,
        }
    }
}

impl<'a> EjectionView<'a> {
    fn new(ejection: &'a Ejection) -> Self {
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
        Self {
            rule: &ejection.rule,
            succeeded: ejection.succeeded,
            failed: ejection.failed,
            seconds: seconds(ejection.time_ms),
            seconds_left: ejection.left_ms.map(seconds),
        }
    }
}

fn kind(kind: Kind) -> Option<String> {
    match kind {
        Kind::Unspecified => None,
        kind => lower(kind.as_str_name(), "KIND_"),
    }
}

fn role(role: Role) -> Option<String> {
    match role {
        Role::Unspecified => None,
        role => lower(role.as_str_name(), "ROLE_"),
    }
}

/// The name of an enum's value as JSON shows it: without the prefix that protobuf asks for.
fn lower(name: &str, prefix: &str) -> Option<String> {
    Some(name.strip_prefix(prefix)?.to_ascii_lowercase())
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn state(state: State) -> Option<&'static str> {
    match state {
        State::Unspecified => None,
        state => state.as_str_name().strip_prefix("STATE_"),
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
