//! How a stream ends.

use tokio::sync::mpsc;
use tonic::Status;

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
        Self::Ours(Status::unavailable("the control plane is shutting down"))
    }

    /// The end of a stream that outlived the control plane.
    pub(crate) fn gone() -> Self {
        Self::Theirs("the control plane is gone".to_owned())
    }

    /// The reason, for the log.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ours(status) => status.message(),
            Self::Theirs(reason) => reason,
        }
    }

    /// Tells the client, if the end is ours.
    pub(crate) async fn tell<T>(self, responses: &mpsc::Sender<Result<T, Status>>) {
        if let Self::Ours(status) = self {
            // The client may have closed the stream.
            responses.send(Err(status)).await.ok();
        }
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
