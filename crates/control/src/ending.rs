//! The end of a stream: the side that ended it, and the status that its client is told.
//!
//! A client that does not read cannot be told, and HTTP/2 would hold its stream for ever. So each end
//! that is ours has a time limit.

use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::timeout;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use crate::incoming::Peer;
use crate::limits::{Beyond, Limit};

/// The time that a client has to take the status of a stream that we end. It is less than the
/// control plane takes to stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// The side that ended a stream.
pub(crate) enum End {
    Ours(Status),
    /// The client or its connection ended the stream; with the reason.
    Theirs(String),
}

impl End {
    /// The end that a client made by an error of its own or of its connection.
    pub(crate) fn broken(status: &Status) -> Self {
        Self::Theirs(reason(status))
    }

    /// The end of all streams when the control plane stops.
    pub(crate) fn stopping() -> Self {
        Self::Ours(Self::stopping_status())
    }

    /// The status that all streams are told when the control plane stops.
    pub(crate) fn stopping_status() -> Status {
        Status::unavailable("the control plane is shutting down")
    }

    /// The end of a stream that outlived the control plane.
    pub(crate) fn gone() -> Self {
        Self::Theirs("the control plane is gone".to_owned())
    }

    /// The end that a client made by closing the stream.
    pub(crate) fn closed() -> Self {
        Self::Theirs("it closed the stream".to_owned())
    }

    /// The reason, for the log.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ours(status) => status.message(),
            Self::Theirs(reason) => reason,
        }
    }

    /// Tells the client by `send`, if the end is ours. A client that does not read cannot be told, and
    /// HTTP/2 would hold the stream for ever. So its connection is closed.
    pub(crate) async fn tell<F: Future>(self, send: impl FnOnce(Status) -> F, peer: &Peer) {
        let Self::Ours(status) = self else { return };
        // An error means that the client has closed the stream.
        let told = timeout(PATIENCE, send(status)).await;
        if told.is_err() {
            peer.close();
        }
    }
}

/// The last frame of a response that ends with `status`.
pub(crate) fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if let Err(error) = status.add_header(&mut trailers) {
        // The message of a status that cannot be told is left out.
        Status::new(error.code(), "").add_header(&mut trailers).ok();
    }
    Frame::trailers(trailers)
}

/// The limit that a message exceeded, if that was noticed before the message was read. `None` if there was another
/// reason.
pub(crate) fn too_large(status: &Status) -> Option<Beyond> {
    match status.code() {
        // This is what tonic and our decoders make of a message of too many bytes.
        Code::OutOfRange => {
            let text = status.message().to_owned();
            Some(Beyond::new(Limit::RequestBytes, text))
        }
        // This is what the account of the connection and the look at the bytes make of it.
        Code::ResourceExhausted => Beyond::of_status(status),
        _ => None,
    }
}

/// The text of a status, with its cause.
fn reason(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut next = std::error::Error::source(status);
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !reason.contains(&cause_text) {
            reason.push_str(": ");
            reason.push_str(&cause_text);
        }
        next = cause.source();
    }
    reason
}
