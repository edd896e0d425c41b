//! What a foreign client says on incremental streams, in a file to play back.
//!
//! Our client is compared with one that others wrote: a [`Recorder`] serves the foreign one and
//! writes down both sides; given the same responses, ours has to say the same. One line of JSON per
//! message, in the order in which they passed the server, and without the node, which says more about
//! the machine than about the protocol.

mod line;
mod recorder;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};

pub use recorder::Recorder;

/// Something that happened on a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Counts from 1: a client that reconnects is on the next stream.
    pub stream: u64,
    /// The message.
    pub message: Message,
}

/// What passed.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the client.
    Request(Box<DeltaDiscoveryRequest>),
    /// To the client.
    Response(DeltaDiscoveryResponse),
}

impl Message {
    /// The type it is about.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Request(request) => &request.type_url,
            Self::Response(response) => &response.type_url,
        }
    }
}

/// A recording as text, one event per line.
pub fn write(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| line::write(event) + "\n")
        .collect()
}

/// Reads what [`write()`] wrote.
///
/// # Panics
///
/// If it is not a recording.
pub fn read(text: &str) -> Vec<Event> {
    text.lines().map(line::read).collect()
}
