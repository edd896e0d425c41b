//! The error of one resource, and the reasons for it.
//!
//! An error names the resource, the reason and the node, because it is shown to people: in logs and
//! in the status of an RPC.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::Errors;

/// The error of one resource.
///
/// Operators read its text in logs and in the status of an RPC:
/// `cluster payments: does not exist: the server did not send it within 15s [node web-1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceError {
    /// The name of the resource type in messages: `listener`, `cluster`.
    pub noun: &'static str,
    /// The name of the resource.
    pub name: Arc<str>,
    /// The reason for the error.
    pub reason: TroubleReason,
    /// The id of this client's node.
    pub node: Arc<str>,
}

impl ResourceError {
    /// The text without the node, for a text that names the node itself.
    ///
    /// ```
    /// use crowfly_xds::{ResourceError, TroubleReason};
    ///
    /// let error = ResourceError {
    ///     noun: "cluster",
    ///     name: "payments".into(),
    ///     reason: TroubleReason::Deleted,
    ///     node: "web-1".into(),
    /// };
    /// let text = "cluster payments: does not exist: the server deleted it";
    /// assert_eq!(error.without_node(), text);
    /// assert_eq!(error.to_string(), format!("{text} [node web-1]"));
    /// ```
    pub fn without_node(&self) -> String {
        let Self {
            noun, name, reason, ..
        } = self;
        format!("{noun} {name}: {reason}")
    }
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [node {}]", self.without_node(), self.node)
    }
}

impl std::error::Error for ResourceError {}

/// The reasons why a resource is in error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleReason {
    /// No server can be reached, or each ended its stream before it sent a response.
    Connectivity(Arc<str>),
    /// The server no longer lists the resource, or says that it is removed.
    Deleted,
    /// The lookup of a DNS name failed.
    Dns(Arc<str>),
    /// The server sent the resource, but it is not valid.
    Invalid(Errors),
    /// The name of the resource is malformed.
    Name(String),
    /// The server reported an error in place of the resource (xRFC TP3).
    Reported {
        /// A canonical status code.
        code: i32,
        /// The server's message.
        message: Arc<str>,
    },
    /// The server did not send the resource in time. It would have said so if the resource did not
    /// exist (gRFC A88).
    Slow(Duration),
    /// The server did not send the resource in time (gRFC A27's does-not-exist timer).
    TimedOut(Duration),
    /// The name belongs to an authority that the bootstrap does not have (gRFC A47).
    UnknownAuthority(String),
}

impl fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connectivity(why) => write!(f, "xDS server: {why}"),
            Self::Deleted => f.write_str("does not exist: the server deleted it"),
            Self::Dns(why) => f.write_str(why),
            Self::Invalid(errors) => write!(f, "invalid: {errors}"),
            Self::Name(why) => write!(f, "malformed name: {why}"),
            Self::Reported { code, message } => {
                write!(f, "the server reports status {code}: {message}")
            }
            Self::Slow(after) => write!(f, "the server did not answer within {after:?}"),
            Self::TimedOut(after) => write!(
                f,
                "does not exist: the server did not send it within {after:?}"
            ),
            Self::UnknownAuthority(authority) => {
                write!(f, "{authority} is not in the bootstrap")
            }
        }
    }
}
