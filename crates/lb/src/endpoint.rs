//! Endpoints: their identity, the states a driver reports, and what calls leave behind.

mod pool;
mod ready;
mod wish;

use std::{fmt, net::SocketAddr, sync::Arc};

pub(crate) use pool::{Failed, Owner, Pool, Record, State};
pub(crate) use ready::ReadyEndpoint;
pub(crate) use wish::Wish;

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
    /// There is no connection and no attempt to make one. The balancer asks for one when it wants
    /// one.
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
/// It differs from the reported state in one way: an endpoint that failed counts as failing until it
/// is ready (A61).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Connectivity {
    /// No call can be sent yet: calls wait.
    Connecting,
    /// No connection is made until a call wants one.
    Idle,
    /// Calls can be sent.
    Ready,
    /// Calls fail.
    TransientFailure,
}

impl Connectivity {
    /// The state of a parent: the best of its children; failing, if there are none.
    pub fn aggregate(children: impl IntoIterator<Item = Self>) -> Self {
        let mut best = Self::TransientFailure;
        for child in children {
            best = match (child, best) {
                (Self::Ready, _) => return Self::Ready,
                (Self::Connecting, _) | (_, Self::Connecting) => Self::Connecting,
                (Self::Idle, _) | (_, Self::Idle) => Self::Idle,
                (Self::TransientFailure, best) => best,
            }
        }
        best
    }

    /// The state that follows `self` when a child reports `next`: a failure stays until READY.
    pub(crate) fn sticky(self, next: Self) -> Self {
        match (self, next) {
            (Self::TransientFailure, Self::Ready) => Self::Ready,
            (Self::TransientFailure, _) => Self::TransientFailure,
            (_, next) => next,
        }
    }
}

impl fmt::Display for Connectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "CONNECTING",
            Self::Idle => "IDLE",
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
