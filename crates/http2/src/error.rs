//! The failures of connections and streams.
//!
//! Failures are sorted by the retry that gRFC A6 allows, because the caller decides by them whether a call is sent
//! again.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::Reason;

/// A failure that ended a connection.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The socket failed, or the server closed it while streams were open.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The server violated the protocol. The client answered with GOAWAY.
    #[error("the server violates HTTP/2: {text} ({reason:?})")]
    Protocol {
        /// The code of the GOAWAY.
        reason: Reason,
        /// The violation.
        text: Cow<'static, str>,
    },
}

impl Error {
    pub(crate) fn new(reason: Reason, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self::Protocol { reason, text }
    }

    pub(crate) fn protocol(text: &'static str) -> Self {
        Self::new(Reason::PROTOCOL_ERROR, text)
    }

    pub(crate) fn frame_size(text: &'static str) -> Self {
        Self::new(Reason::FRAME_SIZE_ERROR, text)
    }

    pub(crate) fn flow_control(text: &'static str) -> Self {
        Self::new(Reason::FLOW_CONTROL_ERROR, text)
    }

    /// The error for a server that costs more than the limits allow.
    pub(crate) fn calm(text: &'static str) -> Self {
        Self::new(Reason::ENHANCE_YOUR_CALM, text)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// A request that no stream was opened for.
#[derive(Clone, Debug, Error)]
pub enum OpenError {
    /// The connection is over, or the server takes no more streams.
    #[error("the connection takes no new streams")]
    Closed,
    /// All stream ids are used up, so another connection is needed.
    #[error("the connection has used up its stream ids")]
    IdsExhausted,
    /// HTTP/2 cannot carry the request.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A failure that ended a stream.
#[derive(Clone, Debug, Error)]
pub enum StreamError {
    /// The client cancelled the stream.
    #[error("the stream was cancelled")]
    Cancelled,
    /// The head of the response, or its trailers, are larger than this limit. They have no failed gRPC status that
    /// could be reported instead.
    #[error("the server sent more headers than the limit of {0} bytes")]
    HeadersTooLarge(u32),
    /// The connection ended after some of the request had been sent: the server may have acted on it.
    #[error("{0}")]
    Lost(Arc<str>),
    /// The response is malformed. The client answered with RST_STREAM.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The connection ended before any of the request had been sent.
    #[error("{0}")]
    NeverSent(Arc<str>),
    /// The server promised that it did not act on the request: by REFUSED_STREAM, or by a GOAWAY with a
    /// lower last stream id.
    #[error("the server did not act on the request ({0:?})")]
    Refused(Reason),
    /// The server reset the stream.
    #[error("the server reset the stream: {0}")]
    Reset(Reason),
}
