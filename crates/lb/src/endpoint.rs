//! Endpoints: their identity, the states a driver reports, and the counters of their calls.
//!
//! An endpoint belongs to its leaf cluster (see `roster`), because it may move between the priorities and
//! localities of the cluster. Leaves hold it by id, and a call names the place that it was picked in.

mod index;
mod outlier;
mod pool;
mod ready;
mod record;
mod roster;
mod sessions;
mod wish;

use std::{fmt, net::SocketAddr, sync::Arc};

pub use outlier::{Ejection, EjectionCause, OutlierChange, OutlierEvent, OutlierRule, SpareReason};
pub(crate) use pool::{Owner, Pool};
pub(crate) use ready::{LeafCounters, ReadyEndpoint};
pub(crate) use record::{Failed, Record, Seen, State};
pub(crate) use roster::RosterId;
pub use sessions::SessionsId;
pub(crate) use wish::Wish;

use crate::{ClusterName, Health, LocalityId, slots::Key};

/// Names an endpoint for as long as its leaf cluster knows it, wherever in the cluster it is. Ids are
/// not used again for others.
///
/// A driver hears of an endpoint by [`Command::Connect`](crate::Command::Connect), and may forget it
/// after [`Command::Release`](crate::Command::Release). An endpoint that is needed again later is
/// connected by the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointId(pub(crate) Key);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

/// Something that a call needs before it can be sent. A driver passes it on to the balancer
/// ([`BalancerEvent::Demand`](crate::BalancerEvent::Demand)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// The call wants this endpoint to be connected.
    Endpoint(EndpointId),
    /// The call is the first with a session in its cluster. The balancer looks for the endpoints of
    /// sessions from now on.
    Sessions(SessionsId),
}

impl From<EndpointId> for Demand {
    fn from(id: EndpointId) -> Self {
        Self::Endpoint(id)
    }
}

/// A driver's report about an endpoint.
///
/// `T` is the transport that calls are sent on; picks hand it out as it was given here.
#[derive(Clone, Debug)]
pub enum EndpointState<T> {
    /// There is no connection and no attempt to make one. The balancer asks for a connection when
    /// it wants one.
    Idle,
    /// A connection is being made.
    Connecting,
    /// Calls can be sent.
    Ready {
        /// The transport that calls are sent on.
        transport: T,
        /// The address that is connected. It tells which endpoint a call is counted to where several
        /// are one list of addresses (`pick_first`).
        address: SocketAddr,
    },
    /// No address could be reached; the text is the reason, without the address.
    TransientFailure(Arc<str>),
}

/// The connectivity of an endpoint or of a part of the tree, as balancing sees it.
///
/// It differs from the reported state in two ways. An endpoint that failed counts as failing until it
/// is ready (A61), and one that outlier detection ejected until it returns (A50).
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

/// One endpoint of a leaf, as [`Balancer::endpoints`](crate::Balancer::endpoints) shows it. All
/// endpoints of a `pick_first` leaf are one, with all of their addresses.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Its id.
    pub id: EndpointId,
    /// The locality that the leaf has it in.
    pub locality: LocalityId,
    /// Its addresses, the main one first.
    pub addresses: Arc<[SocketAddr]>,
    /// Its state as balancing sees it.
    pub state: Connectivity,
    /// The number of calls that were sent to it, in all of its places in the tree.
    pub picks: u64,
    /// The number of calls that are open on it, also those that began in another place of the tree.
    pub in_flight: u64,
}

/// One endpoint as its leaf cluster knows it, as [`Balancer::roster`](crate::Balancer::roster) shows it.
///
/// The calls of a `pick_first` policy are counted to the endpoint whose address is connected.
#[derive(Clone, Debug)]
pub struct RosterView {
    /// Its id.
    pub id: EndpointId,
    /// The leaf cluster.
    pub cluster: ClusterName,
    /// Its addresses, the main one first.
    pub addresses: Arc<[SocketAddr]>,
    /// Its health. No leaf gets an endpoint that is DRAINING, because only calls of its sessions may
    /// go to it (A55).
    pub health: Health,
    /// The localities of its places in the tree, which may be several; empty if no leaf holds it.
    pub localities: Vec<LocalityId>,
    /// The state of its own connection, also while it is ejected. Under `pick_first` it has none of its
    /// own, and is IDLE.
    pub state: Connectivity,
    /// Its ejection, while outlier detection has it ejected (A50).
    pub ejection: Option<Ejection>,
    /// The number of calls that were sent to it, in all of its places in the tree.
    pub picks: u64,
    /// The number of calls that are open on it, also those that began in another place of the tree.
    pub in_flight: u64,
    /// The number of its calls that succeeded, as outlier detection counts them
    /// ([`CallOutcome::for_outlier_detection`](crate::CallOutcome::for_outlier_detection)).
    pub succeeded: u64,
    /// The number of its calls that failed. Calls of which nothing was sent are left out.
    pub failed: u64,
}

/// Prints addresses with commas in between.
pub(crate) struct AddressList<'a>(pub(crate) &'a [SocketAddr]);

impl fmt::Display for AddressList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            address.fmt(f)?;
        }
        Ok(())
    }
}
