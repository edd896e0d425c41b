//! Inputs and outputs of a session.
//!
//! They are values, so that a test can replace the socket and the clock.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};

use crate::cache::Changed;
use crate::data_errors::DataErrors;
use crate::kind::{Key, Kind};
use crate::readings::Readings;

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The identity of this client, sent in the first request of each stream.
    pub node: Arc<Node>,
    /// The variant of the protocol to speak.
    pub protocol: Protocol,
    /// The treatment of errors in the data of this server.
    pub data_errors: DataErrors,
    /// The readings of this server's resources, if they differ from those of the client: a server that
    /// is trusted may say more (gRFC A81).
    pub readings: Option<Readings>,
    /// The seed of the jitter in the backoff.
    pub seed: u64,
}

impl SessionConfig {
    /// Settings for `node` with state of the world and the classic treatment of data errors.
    pub fn new(node: impl Into<Arc<Node>>, seed: u64) -> Self {
        Self {
            node: node.into(),
            protocol: Protocol::StateOfTheWorld,
            data_errors: DataErrors::default(),
            readings: None,
            seed,
        }
    }
}

/// The variants of ADS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `DeltaAggregatedResources`: a response names what changed.
    Delta,
    /// `StreamAggregatedResources`: a request lists all names, and one version covers all resources
    /// of a type.
    #[default]
    StateOfTheWorld,
}

/// The resources of a type that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// All resources that the server has.
    All,
    /// The resource of that name.
    Named(Arc<str>),
}

/// An event that the owner of a session reports to it.
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
    /// The owner wants these resources.
    Subscribe {
        /// The type of the resources.
        kind: Kind,
        /// The names of the resources.
        want: Want,
    },
    /// The owner no longer wants these resources.
    Unsubscribe {
        /// The type of the resources.
        kind: Kind,
        /// The names of the resources.
        want: Want,
    },
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The reason, as text for people.
    pub reason: Arc<str>,
    /// The kind of the end, which decides how the session goes on.
    pub kind: EndingKind,
}

/// The kinds of end that a session treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndingKind {
    /// An end that has no special treatment.
    Ordinary,
    /// A response was over the size limit, and would be again.
    TooLarge {
        /// True if the reason names the type of the response.
        type_known: bool,
    },
    /// The server does not implement the method of this protocol.
    Unimplemented,
}

impl Ending {
    /// An end that has no special treatment.
    pub fn ordinary(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            kind: EndingKind::Ordinary,
        }
    }
}

/// An action that the owner of a session has to take.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionOutput {
    /// The server sent its first response on this stream.
    Answered,
    /// Tell the watchers of `key` its new state in the cache.
    Changed {
        /// The resource that changed.
        key: Key,
        /// The part of its state that changed.
        changed: Changed,
    },
    /// Drop the stream, because nothing is wanted any more. No [`Input::Closed`] is due for it.
    Close,
    /// The stream failed before the server sent a response.
    Failed(Arc<str>),
    /// Open a stream of this protocol; answer with [`Input::Opened`] or [`Input::Closed`].
    Open(Protocol),
    /// The numbers of resources in a response, for metrics.
    Received {
        /// The type of the resources.
        kind: Kind,
        /// The number of resources that were accepted.
        valid: usize,
        /// The number of resources that were refused.
        invalid: usize,
    },
    /// Forget this resource, unless it is wanted from another server. The server was told that it
    /// is no longer wanted, or there is no stream to tell it on.
    Released(Key),
    /// Send this request; answer with [`Input::Sent`]. Only one request is being sent at a time, so
    /// all changes in the meantime go out as one request.
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
