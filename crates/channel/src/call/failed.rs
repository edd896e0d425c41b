//! A failed attempt, and the error that the caller gets if it is the last one.
//!
//! The caller sees the failure of the last attempt alone. So that failure also says how many attempts there were, and
//! why there are no more.

use http::{HeaderMap, HeaderValue, Response};
use tonic::Status;

use super::attempt::InFlight;
use super::retry::{Ended, Note};
use crate::named::with_suffix;
use crate::transport::ResponseBody;

/// The header with the text of a status.
const MESSAGE: &str = "grpc-message";

/// An attempt that ended before its response began.
pub(super) struct Failed {
    /// The end of the attempt, as a retry policy sees it.
    pub(super) ended: Ended,
    last: Last,
}

/// The result of the call, if there is no further attempt.
enum Last {
    Error(CallError),
    /// The head of this response has the server's status, and nothing follows it.
    Response(Box<Response<ResponseBody<InFlight>>>),
}

/// The reason for which a call ended before its response began.
pub(super) enum CallError {
    /// The caller's own body failed. The status is returned unchanged, because it is the caller's.
    Body(Status),
    Ours(Status),
}

impl Failed {
    /// An attempt that failed on this side.
    pub(super) fn with_error(ended: Ended, error: impl Into<CallError>) -> Self {
        Self {
            ended,
            last: Last::Error(error.into()),
        }
    }

    /// An attempt that the server ended with a status and no message (Trailers-Only). The attempt is still open, and
    /// ends when the response is dropped.
    pub(super) fn with_response(ended: Ended, response: Response<ResponseBody<InFlight>>) -> Self {
        Self {
            ended,
            last: Last::Response(Box::new(response)),
        }
    }

    /// The result of a call whose last attempt this was.
    pub(super) fn into_result(
        self,
        note: Option<Note>,
    ) -> Result<Response<ResponseBody<InFlight>>, CallError> {
        match (self.last, note) {
            (Last::Error(CallError::Ours(status)), Some(note)) => {
                let status = with_suffix(status, &format!(" ({note})"));
                Err(CallError::Ours(status))
            }
            (Last::Error(error), _) => Err(error),
            (Last::Response(mut response), note) => {
                if let Some(note) = note {
                    add_to_message(response.headers_mut(), note);
                }
                Ok(*response)
            }
        }
    }

    /// The failure in words, for another one that it led to.
    pub(super) fn text(&self, note: Option<Note>) -> String {
        let text = match &self.last {
            Last::Error(CallError::Body(status) | CallError::Ours(status)) => {
                status.message().to_owned()
            }
            Last::Response(response) => {
                let status = Status::from_header_map(response.headers());
                status.map_or_else(String::new, |status| {
                    format!("{:?}: {}", status.code(), status.message())
                })
            }
        };
        match note {
            Some(note) => format!("{text} ({note})"),
            None => text,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Ours(status)
    }
}

/// Adds a note to the status text in the head of a response. The text is percent-encoded, and a note has
/// nothing to encode.
fn add_to_message(headers: &mut HeaderMap, note: Note) {
    let text = headers.get(MESSAGE).map(HeaderValue::as_bytes);
    let longer = match text {
        Some(text) if !text.is_empty() => [text, format!(" ({note})").as_bytes()].concat(),
        _ => note.to_string().into_bytes(),
    };
    if let Ok(value) = HeaderValue::from_maybe_shared(longer) {
        headers.insert(MESSAGE, value);
    }
}
