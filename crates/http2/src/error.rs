//! What can go wrong, sorted by what may be done about it.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::Reason;

/// Why a connection ended before its time.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// It broke, or the server closed it while streams were open.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The server does not follow the protocol. It was told so.
    #[error("the server violates HTTP/2: {text} ({reason:?})")]
    Protocol {
        /// The code that it was told.
        reason: Reason,
        /// What it did.
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

    /// What a server gets that wants more than is good for us.
    pub(crate) fn calm(text: &'static str) -> Self {
        Self::new(Reason::ENHANCE_YOUR_CALM, text)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Why a request was not taken.
#[derive(Clone, Debug, Error)]
pub enum OpenError {
    /// The connection is over, or the server takes no more streams.
    #[error("the connection takes no new streams")]
    Closed,
    /// All stream ids are used up: another connection is needed.
    #[error("the connection has used up its stream ids")]
    IdsExhausted,
    /// HTTP/2 cannot carry it.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Why a stream ended before its time.
#[derive(Clone, Debug, Error)]
pub enum StreamError {
    /// This side cancelled it.
    #[error("the stream was cancelled")]
    Cancelled,
    /// The head of the response, or its trailers, are larger than this limit, and no failure of the call is
    /// among them that could be told instead.
    #[error("the server sent more headers than the limit of {0} bytes")]
    HeadersTooLarge(u32),
    /// The connection ended after some of the request had been sent: the server may have acted on it.
    #[error("{0}")]
    Lost(Arc<str>),
    /// What the server sent on this stream is no response. It was told so.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The connection ended before any of the request had been sent.
    #[error("{0}")]
    NeverSent(Arc<str>),
    /// The server says that it did nothing about the request: with REFUSED_STREAM, or with a GOAWAY
    /// that names a lower last stream.
    #[error("the server did not act on the request ({0:?})")]
    Refused(Reason),
    /// The server reset it.
    #[error("the server reset the stream: {0}")]
    Reset(Reason),
}
