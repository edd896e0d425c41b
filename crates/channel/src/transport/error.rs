//! The failures of a connection and of its calls, sorted by the retry that gRFC A6 allows.
//!
//! gRFC A6 lets a client repeat a call without asking the application in two cases only. The call never left the client
//! (any number of times), or the server is known not to have acted on it (once). In all other cases the application or
//! a retry policy decides. [`SendErrorKind`] is that distinction.

use std::error::Error as StdError;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use tonic::{Code, Status};

use super::http2::{GoAway, OpenError, Reason, StreamError};

/// A failure to connect to an address: the step that failed, and the reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot connect to {address}: {phase}: {reason}")]
pub struct ConnectError {
    /// The address that was tried.
    pub address: SocketAddr,
    /// The step that failed.
    pub phase: ConnectPhase,
    /// The reason for which the step failed.
    pub reason: Arc<str>,
}

/// The steps to a READY connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectPhase {
    /// The reading of certificates, before TCP.
    Certificates,
    /// The TCP handshake.
    Connect,
    /// From the server's preface to its SETTINGS frame.
    Settings,
    /// The TLS handshake, including the choice of `h2` by ALPN.
    Tls,
}

impl fmt::Display for ConnectPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificates => "TLS certificates",
            Self::Connect => "connect",
            Self::Settings => "HTTP/2 SETTINGS",
            Self::Tls => "TLS handshake",
        })
    }
}

/// A call that failed on its connection, before or after its response began.
#[derive(Debug, Error)]
#[error("{}", self.message())]
pub struct SendError {
    kind: SendErrorKind,
    address: SocketAddr,
    reason: String,
    /// The error of the body, for [`SendErrorKind::RequestBody`].
    #[source]
    status: Option<Status>,
}

/// The failures of calls, by the retry that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendErrorKind {
    /// HTTP/2 cannot carry the request, for example because of a `connection` header. The request would fail again.
    Invalid,
    /// The connection broke after the request was handed to it, so the server may have acted on it.
    Lost,
    /// The request never left this process, so it may be repeated without limit.
    NeverSent,
    /// The server did not act on the request, so it may be repeated once. The server says so by REFUSED_STREAM or by a
    /// GOAWAY with a lower last stream id.
    Refused,
    /// The request body failed; the stream was cancelled.
    RequestBody,
    /// The stream was reset with this code.
    Stream(Reason),
}

impl SendErrorKind {
    /// The gRPC status code of a call that fails with this kind. Codes of RST_STREAM map as gRPC's HTTP/2 protocol
    /// document says.
    pub fn code(self) -> Code {
        match self {
            Self::Invalid | Self::RequestBody => Code::Internal,
            Self::Lost | Self::NeverSent | Self::Refused => Code::Unavailable,
            Self::Stream(reason) => code_of_reset(reason),
        }
    }
}

impl SendError {
    /// The kind of the failure, which says whether the call may be repeated.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// The backend that the call was sent to, or would have been sent to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The error as a gRPC client reports it.
    ///
    /// Reset codes map as gRPC's HTTP/2 protocol document says. A lost connection is UNAVAILABLE
    /// with a [`ConnectionLost`] as its source.
    pub fn to_status(&self) -> Status {
        if let Some(status) = &self.status {
            return status.clone();
        }
        let mut status = Status::new(self.kind.code(), self.message());
        if self.kind == SendErrorKind::Lost {
            let lost = ConnectionLost {
                address: self.address,
                reason: self.reason.as_str().into(),
            };
            status.set_source(Arc::new(lost));
        }
        status
    }

    pub(super) fn never_sent(address: SocketAddr, reason: impl Into<String>) -> Self {
        Self::new(SendErrorKind::NeverSent, address, reason)
    }

    pub(super) fn lost(address: SocketAddr, reason: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Lost, address, reason)
    }

    pub(super) fn request_body(address: SocketAddr, status: Status) -> Self {
        let mut error = Self::new(SendErrorKind::RequestBody, address, status.message());
        error.status = Some(status);
        error
    }

    /// An error of a request that the connection did not take.
    pub(super) fn not_opened(address: SocketAddr, error: &OpenError) -> Self {
        let kind = match error {
            OpenError::Closed | OpenError::IdsExhausted => SendErrorKind::NeverSent,
            OpenError::Invalid(_) => SendErrorKind::Invalid,
        };
        Self::new(kind, address, error.to_string())
    }

    /// An error of an open stream.
    pub(super) fn of_stream(address: SocketAddr, error: &StreamError) -> Self {
        let kind = match error {
            StreamError::Cancelled => SendErrorKind::Stream(Reason::CANCEL),
            StreamError::HeadersTooLarge(_) => SendErrorKind::Stream(Reason::ENHANCE_YOUR_CALM),
            StreamError::Lost(_) => SendErrorKind::Lost,
            StreamError::Malformed(_) => SendErrorKind::Stream(Reason::PROTOCOL_ERROR),
            StreamError::NeverSent(_) => SendErrorKind::NeverSent,
            StreamError::Refused(_) => SendErrorKind::Refused,
            StreamError::Reset(reason) => SendErrorKind::Stream(*reason),
        };
        Self::new(kind, address, error.to_string())
    }

    /// Adds the words of the server's GOAWAY to the error.
    pub(super) fn explained(mut self, go_away: &GoAway) -> Self {
        self.reason = format!("{}; {go_away}", self.reason);
        self
    }

    fn new(kind: SendErrorKind, address: SocketAddr, reason: impl Into<String>) -> Self {
        Self {
            kind,
            address,
            reason: reason.into(),
            status: None,
        }
    }

    fn message(&self) -> String {
        let Self {
            address, reason, ..
        } = self;
        match self.kind {
            SendErrorKind::Invalid => format!("cannot send the request to {address}: {reason}"),
            SendErrorKind::Lost => format!("connection to {address} lost: {reason}"),
            SendErrorKind::NeverSent => format!("request not sent to {address}: {reason}"),
            SendErrorKind::Refused => format!("{address} refused the stream: {reason}"),
            SendErrorKind::RequestBody => format!("request body for {address} failed: {reason}"),
            SendErrorKind::Stream(_) => format!("stream to {address} ended: {reason}"),
        }
    }
}

/// The connection of a call broke after the call was sent, so the server may have acted on it.
///
/// This error is the source of the call's [`tonic::Status`]. By it a program can tell such calls from an UNAVAILABLE of
/// the server or of the balancer.
///
/// ```
/// # fn count(status: &tonic::Status) {
/// use crowfly::ConnectionLost;
///
/// if let Some(lost) = ConnectionLost::find(status) {
///     println!("lost in flight: {}", lost.address());
/// }
/// # }
/// ```
#[derive(Clone, Debug, Error)]
#[error("connection to {address} lost: {reason}")]
pub struct ConnectionLost {
    address: SocketAddr,
    reason: Arc<str>,
}

impl ConnectionLost {
    /// Looks for a lost connection among the causes of `error`.
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(lost) = error.downcast_ref() {
                return Some(lost);
            }
            cause = error.source();
        }
        None
    }

    /// The backend at the other end.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The gRPC code for a code of RST_STREAM, by the table in
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors>. The two codes that the table
/// leaves to the implementation are INTERNAL.
fn code_of_reset(reason: Reason) -> Code {
    match reason {
        Reason::NO_ERROR
        | Reason::PROTOCOL_ERROR
        | Reason::INTERNAL_ERROR
        | Reason::FLOW_CONTROL_ERROR
        | Reason::SETTINGS_TIMEOUT
        | Reason::STREAM_CLOSED
        | Reason::FRAME_SIZE_ERROR
        | Reason::COMPRESSION_ERROR
        | Reason::CONNECT_ERROR
        | Reason::HTTP_1_1_REQUIRED => Code::Internal,
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_codes_map_as_the_grpc_http2_document_says() {
        let code = |reason| {
            SendError::new(SendErrorKind::Stream(reason), ADDRESS, "")
                .to_status()
                .code()
        };
        assert_eq!(code(Reason::NO_ERROR), Code::Internal);
        assert_eq!(code(Reason::FLOW_CONTROL_ERROR), Code::Internal);
        assert_eq!(code(Reason::REFUSED_STREAM), Code::Unavailable);
        assert_eq!(code(Reason::CANCEL), Code::Cancelled);
        assert_eq!(code(Reason::ENHANCE_YOUR_CALM), Code::ResourceExhausted);
        assert_eq!(code(Reason::INADEQUATE_SECURITY), Code::PermissionDenied);
        assert_eq!(code(Reason::from(0xff)), Code::Unknown);
    }

    #[test]
    fn only_a_lost_connection_has_connection_lost_as_its_source() {
        let lost = SendError::new(SendErrorKind::Lost, ADDRESS, "broken pipe").to_status();
        assert_eq!(lost.code(), Code::Unavailable);
        let found = ConnectionLost::find(&lost).unwrap();
        assert_eq!(
            found.to_string(),
            "connection to 127.0.0.1:1 lost: broken pipe"
        );

        let refused = SendError::new(SendErrorKind::Refused, ADDRESS, "no").to_status();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(ConnectionLost::find(&refused).is_none());
    }

    const ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
}
