//! Inputs and outputs of a session.
//!
//! They are values, so that a test can play the part of the socket and the clock.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};

use crate::cache::Changed;
use crate::data_errors::DataErrors;
use crate::kind::{Key, Kind};

/// What a session needs to know from the start.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Who this client is; sent in the first request of each stream.
    pub node: Arc<Node>,
    /// Which variant of the protocol to speak.
    pub protocol: Protocol,
    /// What to do about errors in the data.
    pub data_errors: DataErrors,
    /// Where the jitter of the backoff comes from.
    pub seed: u64,
}

impl SessionConfig {
    /// State of the world, with the classic treatment of data errors, for `node`.
    pub fn new(node: impl Into<Arc<Node>>, seed: u64) -> Self {
        Self {
            node: node.into(),
            protocol: Protocol::StateOfTheWorld,
            data_errors: DataErrors::default(),
            seed,
        }
    }
}

/// The variants of ADS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `DeltaAggregatedResources`: a response names what changed.
    Delta,
    /// `StreamAggregatedResources`.
    #[default]
    StateOfTheWorld,
}

/// Which resources of a type are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// All the server has.
    All,
    /// The one of that name.
    Named(Arc<str>),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The stream has ended, or could not be opened.
    Closed(Ending),
    /// Every watcher has taken what the last response changed.
    Consumed,
    /// The server sent this on a delta stream.
    DeltaResponse(DeltaDiscoveryResponse),
    /// The stream is open.
    Opened,
    /// The server sent this on a state-of-the-world stream.
    Response(DiscoveryResponse),
    /// The last [`SessionOutput::Send`] is on its way.
    Sent,
    /// Somebody wants these resources.
    Subscribe {
        /// Of which type.
        kind: Kind,
        /// Which.
        want: Want,
    },
    /// Nobody wants these resources any more.
    Unsubscribe {
        /// Of which type.
        kind: Kind,
        /// Which.
        want: Want,
    },
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// For a person to read.
    pub reason: Arc<str>,
    /// What follows from it.
    pub kind: EndingKind,
}

/// What follows from the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndingKind {
    /// Nothing in particular.
    Ordinary,
    /// A response was over the size limit, and would be again.
    TooLarge {
        /// Whether the reason says of which type it is.
        type_known: bool,
    },
    /// The server does not know the method.
    Unimplemented,
}

impl Ending {
    /// An end without further meaning.
    pub fn ordinary(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            kind: EndingKind::Ordinary,
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionOutput {
    /// The server spoke for the first time on this stream.
    Answered,
    /// Tell the watchers of `key` what the cache now says.
    Changed {
        /// Which resource.
        key: Key,
        /// What of it.
        changed: Changed,
    },
    /// Nothing is wanted any more: drop the stream. No [`Input::Closed`] is due for it.
    Close,
    /// The stream failed before the server spoke.
    Failed(Arc<str>),
    /// Open a stream of this protocol; answer with [`Input::Opened`] or [`Input::Closed`].
    Open(Protocol),
    /// For metrics: what a response held.
    Received {
        /// Of which type.
        kind: Kind,
        /// How many resources were taken.
        valid: usize,
        /// How many were refused.
        invalid: usize,
    },
    /// The server has been told, as far as there is one to tell, that this is no longer wanted: it
    /// can be forgotten, unless it is wanted of another server.
    Released(Key),
    /// Send this; answer with [`Input::Sent`]. There is never more than one on its way, so what
    /// changes meanwhile goes out as one request.
    Send(Box<Request>),
}

/// A request of either protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// For a delta stream.
    Delta(DeltaDiscoveryRequest),
    /// For a state-of-the-world stream.
    Sotw(DiscoveryRequest),
}
