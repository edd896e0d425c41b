//! The most that clients may take from a control plane, so that one of them cannot harm the others.
//!
//! Limits of a connection hold for all of its streams together, because a client may open many
//! streams. Totals hold for all clients, and a share of them for each address.

mod gate;
mod hush;
mod labels;
mod metrics;
mod pacer;
mod quota;
mod reached;

use std::fmt;
use std::time::Duration;

use tonic::Status;

pub(crate) use gate::Gate;
pub(crate) use hush::{Hush, Hushes};
pub(crate) use labels::{LabelNames, OTHERS};
pub(crate) use metrics::LimitMetrics;
pub(crate) use pacer::Pacer;
pub(crate) use quota::{Quota, Spent, Ticket, network};
pub(crate) use reached::Reached;

/// The limits of a control plane.
///
/// ```
/// use crowfly_control::Limits;
///
/// let limits = Limits { streams: 1_000, ..Limits::default() };
/// assert_eq!(limits.of_address(limits.streams), 500);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The most connections to the port of ADS. More are closed at once.
    pub connections: usize,
    /// The most open streams for discovery, load reports, the status of clients (CSDS), health and
    /// reflection.
    pub streams: usize,
    /// The most open streams of one connection. HTTP/2 tells clients, and they wait.
    pub streams_per_connection: u32,
    /// The connections that are taken in a second. More have to wait, up to five seconds.
    pub connects_per_second: u32,
    /// The share of connections, streams and connects per second that one address may take. It is
    /// at most 1; an IPv6 network of 64 bits counts as one address.
    pub address_share: f64,
    /// The most types of resources on one stream.
    pub types: usize,
    /// The most names of one type on one stream.
    pub names: usize,
    /// The most bytes that are held for the client of one connection. They are names, its node, the buffers of its
    /// requests, responses that it has not accepted, and answers of CSDS and reflection. The newest response of each
    /// type is free, because a client that answers has it, too.
    pub held_bytes: usize,
    /// The most bytes of one discovery request.
    pub request_bytes: usize,
    /// The requests in a second that the client of one connection may make by itself, with 64 KiB
    /// each. It is read no faster, after a start of ten seconds' worth. An answer to a response
    /// counts for each whole 64 KiB alone, because there are no more answers than responses. A
    /// request for everything counts once more for each 4,096 resources, and so does one of a client that refused so
    /// many. An expression of CSDS counts as 16.
    pub requests_per_second: u32,
    /// The time after which a client that does not take a response is named in log and metrics.
    pub slow_after: Duration,
    /// The time after which the connection of such a client is closed.
    pub close_after: Duration,
    /// The time that a client has for the handshakes of TLS and HTTP/2.
    pub handshake_timeout: Duration,
}

impl Limits {
    /// The part of a total that one address may take; at least one.
    pub fn of_address(&self, total: usize) -> usize {
        // The sign and the fraction are lost on purpose; a share beyond 1 is taken for 1.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a total is far below 2^52, and a share of it is not negative"
        )]
        let share = (total as f64 * self.address_share.clamp(0.0, 1.0)) as usize;
        share.max(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            streams: 40_000,
            streams_per_connection: 100,
            connects_per_second: 2_000,
            address_share: 0.5,
            types: 100,
            names: 100_000,
            held_bytes: 32 << 20,
            request_bytes: 4 << 20,
            requests_per_second: 100,
            slow_after: Duration::from_secs(10),
            close_after: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// A limit that a client reached, by the name of its field in [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    Connections,
    ConnectsPerSecond,
    Streams,
    Types,
    Names,
    HeldBytes,
    RequestBytes,
    RequestsPerSecond,
    SlowAfter,
    CloseAfter,
}

impl Limit {
    /// The name of the limit, for labels of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectsPerSecond => "connects_per_second",
            Self::Streams => "streams",
            Self::Types => "types",
            Self::Names => "names",
            Self::HeldBytes => "held_bytes",
            Self::RequestBytes => "request_bytes",
            Self::RequestsPerSecond => "requests_per_second",
            Self::SlowAfter => "slow_after",
            Self::CloseAfter => "close_after",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A limit that a client went beyond, in words for it and for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub(crate) limit: Limit,
    pub(crate) text: String,
}

impl Beyond {
    pub(crate) fn new(limit: Limit, text: String) -> Self {
        Self { limit, text }
    }

    /// A type with `got` names on a stream that may have `most`.
    pub(crate) fn too_many_names(most: usize, got: usize) -> Self {
        let text = format!("expected at most {most} names of a type on a stream, got {got}");
        Self::new(Limit::Names, text)
    }

    /// The status for the client.
    pub(crate) fn status(&self) -> Status {
        Status::resource_exhausted(format!("limit {}: {}", self.limit, self.text))
    }

    /// The limit of a message that a status tells of, because the message was refused before it was read.
    pub(crate) fn of_status(status: &Status) -> Option<Self> {
        let of_messages = [Limit::HeldBytes, Limit::Names, Limit::RequestBytes];
        of_messages.into_iter().find_map(|limit| {
            let text = status.message().strip_prefix(&format!("limit {limit}: "))?;
            Some(Self::new(limit, text.to_owned()))
        })
    }
}
