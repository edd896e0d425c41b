//! The messages of a foreign client on incremental streams, in a file to play back.
//!
//! A [`Recorder`] serves a client that others wrote, and records the messages of both sides. Given
//! the same responses, our client must send the same requests. The expected requests share no code
//! with our client.
//!
//! A recording has one line of JSON for each message, in the order in which they passed the server.
//! The node is left out, because it describes the machine and not the protocol.

mod line;
mod recorder;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};

pub use recorder::Recorder;

/// A message on a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The number of the stream, from 1. A client that reconnects is on the next stream.
    pub stream: u64,
    /// The message.
    pub message: Message,
}

/// A message in one of the two directions.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the client.
    Request(Box<DeltaDiscoveryRequest>),
    /// To the client.
    Response(DeltaDiscoveryResponse),
}

impl Message {
    /// The type URL of the message.
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

/// Reads a text that [`write()`] made.
///
/// # Panics
///
/// If the text is not a recording.
pub fn read(text: &str) -> Vec<Event> {
    text.lines().map(line::read).collect()
}
