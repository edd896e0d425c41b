//! The ways in which a call can end.
//!
//! A call that was lost with its connection is apart from other failures, because it must not be sent again. The
//! server may have acted on it.

use std::{error::Error, io, net::SocketAddr};

use crowfly::ConnectionLost;
use tonic::{Code, ConnectError, Response, Status, TimeoutExpired};

use crate::testing::SimpleResponse;

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call ended with a status other than OK.
    Failed {
        /// The status code.
        code: Code,
        /// The status message.
        message: String,
    },
    /// The connection broke after the call was sent.
    LostInFlight {
        /// The server's address, if the channel reports it.
        server: Option<SocketAddr>,
    },
    /// The call was answered with OK.
    Ok {
        /// The name of the server that answered.
        backend: String,
    },
}

impl From<Result<Response<SimpleResponse>, Status>> for Outcome {
    fn from(result: Result<Response<SimpleResponse>, Status>) -> Self {
        match result {
            Ok(response) => Self::Ok {
                backend: response.into_inner().hostname,
            },
            Err(status) => Self::from(&status),
        }
    }
}

impl From<&Status> for Outcome {
    fn from(status: &Status) -> Self {
        if let Some(lost) = ConnectionLost::find(status) {
            return Self::LostInFlight {
                server: Some(lost.address()),
            };
        }
        if is_connection_lost(status) {
            return Self::LostInFlight { server: None };
        }
        Self::Failed {
            code: if is_deadline(status) {
                Code::DeadlineExceeded
            } else {
                status.code()
            },
            message: status.message().to_owned(),
        }
    }
}

/// True if the connection of a plain tonic channel broke during the call. Only the errors of hyper
/// and h2 show this. A failure to connect does not count, because nothing was sent.
fn is_connection_lost(status: &Status) -> bool {
    let mut lost = false;
    for cause in causes(status) {
        if cause.is::<ConnectError>() {
            return false;
        }
        lost |= cause
            .downcast_ref::<h2::Error>()
            .is_some_and(h2::Error::is_io)
            || cause
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_incomplete_message)
            || cause.downcast_ref::<io::Error>().is_some_and(is_broken);
    }
    lost
}

fn is_broken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
    )
}

/// tonic's own channel ends a call at its deadline with CANCELLED, where gRPC says
/// DEADLINE_EXCEEDED.
fn is_deadline(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<TimeoutExpired>())
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_unavailable_has_lost_nothing() {
        let outcome = Outcome::from(Err(Status::unavailable("overloaded")));
        let message = "overloaded".to_owned();
        assert_eq!(
            outcome,
            Outcome::Failed {
                code: Code::Unavailable,
                message
            }
        );
    }

    #[test]
    fn a_refused_stream_was_not_lost() {
        let refused = h2::Error::from(h2::Reason::REFUSED_STREAM);
        let outcome = Outcome::from(Err(Status::from_error(refused.into())));
        assert!(
            matches!(
                outcome,
                Outcome::Failed {
                    code: Code::Unavailable,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_reset_connection_lost_its_calls() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let outcome = Outcome::from(Err(Status::from_error(reset.into())));
        assert_eq!(outcome, Outcome::LostInFlight { server: None });
    }

    #[test]
    fn tonic_deadlines_are_deadlines() {
        let outcome = Outcome::from(Err(Status::from_error(TimeoutExpired(()).into())));
        assert!(
            matches!(
                outcome,
                Outcome::Failed {
                    code: Code::DeadlineExceeded,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
}
