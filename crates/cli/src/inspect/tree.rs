//! Reads the debug service: the channels of a process, and the balancing tree of each of their
//! clusters.

use std::fmt::Write;

use crowfly::debug::v1::{Channel, ListChannelsRequest, State, Tree, debug_client::DebugClient};
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

/// The tree without what a terminal would obey.
fn clean(tree: &Tree) -> Tree {
    Tree {
        label: printable(&tree.label),
        note: printable(&tree.note),
        children: tree.children.iter().map(clean).collect(),
        ..*tree
    }
}

/// The channels for a script.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    channels: Vec<ChannelView<'a>>,
}

#[derive(Debug, Serialize)]
struct ChannelView<'a> {
    target: &'a str,
    /// The id under which it introduces itself to the control plane.
    node: Option<&'a str>,
    state: Option<&'static str>,
    /// What its calls wait for, or why they fail, before they come to a cluster.
    note: Option<&'a str>,
    clusters: Vec<TreeView<'a>>,
}

#[derive(Debug, Serialize)]
struct TreeView<'a> {
    label: &'a str,
    state: Option<&'static str>,
    /// Absent where calls are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    note: Option<&'a str>,
    children: Vec<Self>,
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
            label: &tree.label,
            state: state(tree.state()),
            in_flight: tree.in_flight,
            waiting: tree.waiting,
            note: non_empty(&tree.note),
            children: tree.children.iter().map(Self::new).collect(),
        }
    }
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
