//! Endpoints: their identity, the states a driver reports, and their counters.

mod pool;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

pub(crate) use pool::{Failed, Pool, Record, State};

use crate::{LocalityId, slots::Key};

/// Names an endpoint from the [`Command::Connect`](crate::Command::Connect) that introduces it to
/// the [`Command::Release`](crate::Command::Release) that ends it. Ids are not used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointId(pub(crate) Key);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

/// What a driver reports about an endpoint.
///
/// `T` is what a call is sent on; it is handed out by picks as it was given here.
#[derive(Clone, Debug)]
pub enum EndpointState<T> {
    /// There is no connection and no attempt to make one. The balancer asks for one again.
    Idle,
    /// A connection is being made.
    Connecting,
    /// Calls can be sent.
    Ready(T),
    /// No address could be reached; the text is the reason, without the address.
    TransientFailure(Arc<str>),
}

/// The connectivity of an endpoint or of a part of the tree, as balancing sees it.
///
/// It differs from the reported state in two ways: an endpoint that failed counts as failing until
/// it is ready (A61), and one that is idle is asked to connect at once and counts as connecting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Connectivity {
    /// No call can be sent yet: calls wait.
    Connecting,
    /// Calls can be sent.
    Ready,
    /// Calls fail.
    TransientFailure,
}

impl Connectivity {
    /// The state of a parent: the best of its children; failing, if there are none.
    pub(crate) fn aggregate(children: impl IntoIterator<Item = Self>) -> Self {
        let mut best = Self::TransientFailure;
        for child in children {
            match child {
                Self::Ready => return Self::Ready,
                Self::Connecting => best = Self::Connecting,
                Self::TransientFailure => {}
            }
        }
        best
    }

    /// The state that follows `self` when a child reports `next`: a failure stays until READY.
    pub(crate) fn sticky(self, next: Self) -> Self {
        match (self, next) {
            (Self::TransientFailure, Self::Connecting) => Self::TransientFailure,
            _ => next,
        }
    }
}

impl fmt::Display for Connectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "CONNECTING",
            Self::Ready => "READY",
            Self::TransientFailure => "TRANSIENT_FAILURE",
        })
    }
}

/// One endpoint as [`Balancer::endpoints`](crate::Balancer::endpoints) shows it.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Its id.
    pub id: EndpointId,
    /// Where it is.
    pub locality: LocalityId,
    /// Its addresses, the main one first.
    pub addresses: Arc<[SocketAddr]>,
    /// Its state as balancing sees it.
    pub state: Connectivity,
    /// How many calls were sent to it.
    pub picks: u64,
    /// How many calls are open on it.
    pub in_flight: u64,
}

/// What calls leave behind on an endpoint, across all of its connections.
///
/// Two counters that only grow, so that a call costs two atomic additions; what is in flight is
/// their difference. Padded, so that endpoints do not share a cache line (or the pair of lines
/// that a prefetcher loads together).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    started: AtomicU64,
    finished: AtomicU64,
}

impl Counters {
    pub(crate) fn start(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.finished.fetch_add(1, Relaxed);
    }

    pub(crate) fn picks(&self) -> u64 {
        self.started.load(Relaxed)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        // Finished first: a call that ends in between is then counted as open, not as minus one.
        let finished = self.finished.load(Relaxed);
        self.started.load(Relaxed).saturating_sub(finished)
    }
}

/// An endpoint that can take calls: made when it becomes READY, shared by pickers and calls.
#[derive(Debug)]
pub(crate) struct ReadyEndpoint<T> {
    pub(crate) counters: Arc<Counters>,
    pub(crate) transport: T,
    pub(crate) id: EndpointId,
    pub(crate) addresses: Arc<[SocketAddr]>,
    pub(crate) locality: LocalityId,
}
