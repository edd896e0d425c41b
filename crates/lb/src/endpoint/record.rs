//! One endpoint: the places it has in the tree, its state, and its calls.
//!
//! All of these are in one record, because an endpoint that moves within its cluster must keep its
//! state and its calls.

use std::{net::SocketAddr, num::NonZeroU64, sync::Arc};

use smallvec::SmallVec;

use super::{
    Connectivity, EndpointId, EndpointView, RosterId, Wish,
    ready::{Connected, LeafCounters, Ledger, ReadyEndpoint, Settled},
    sessions::Tie,
};
use crate::{Health, LocalityId, Tree, TreeRole, leaf::LeafId};

/// One endpoint, as the plan describes it and as the driver has reported it.
#[derive(Debug)]
#[repr(C)] // The fields that every list looks at come first, because a list may have 10,000 endpoints.
pub(crate) struct Record<T> {
    /// The state of its connection. Leaves ask for [`seen`](Self::seen) instead.
    pub(crate) state: State<T>,
    /// Set while outlier detection has it ejected (A50): the reason, as a failure.
    pub(super) ejected: Option<Box<Failed>>,
    /// True if the driver has reported a state since it knows the endpoint.
    pub(crate) reported: bool,
    /// True if the driver knows the endpoint: it was told to connect it, and not to release it
    /// since.
    pub(super) introduced: bool,
    /// True if the driver was ever told to release the endpoint. A new command to connect it must
    /// then come after that release.
    pub(super) released: bool,
    /// The last search for repeated endpoints that found it.
    pub(super) mark: u64,
    /// The addresses of the endpoint, the main one first.
    pub(crate) addresses: Arc<[SocketAddr]>,
    /// Its places in the leaves that hold it. There may be several, for two reasons. A leaf holds
    /// an endpoint that left until the next list is as good. And two localities may list one
    /// address set.
    pub(super) places: SmallVec<[Place; 1]>,
    pub(super) roster: RosterId,
    pub(super) kind: Kind,
    pub(super) ledger: Ledger<T>,
    /// The endpoint as its sessions see it; `None` if the cluster has no sessions.
    pub(super) tie: Option<Box<Tie<T>>>,
}

/// The two kinds of thing that a driver connects.
#[derive(Debug)]
pub(super) enum Kind {
    /// An endpoint of the cluster, known by its addresses as a set (A61).
    Endpoint {
        identity: Arc<[SocketAddr]>,
        /// Its health in the lists of leaves.
        health: Health,
        /// True if the cluster's list of draining endpoints has it.
        is_draining: bool,
    },
    /// All endpoints of a `pick_first` leaf as one list of addresses. A call is counted to the endpoint
    /// that owns the connected address.
    Flattened {
        /// The endpoint that owns the connected address, if sessions may stick to it.
        lent_to: Option<EndpointId>,
    },
}

/// A place of an endpoint in the tree.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) leaf: LeafId,
    pub(super) locality: LocalityId,
    /// The number of lists of the leaf that hold the endpoint in this locality. An endpoint that a list
    /// carries over to the next counts once.
    pub(super) lists: u32,
}

impl<T> Record<T> {
    pub(super) fn new(roster: RosterId, kind: Kind, addresses: Arc<[SocketAddr]>) -> Self {
        Self {
            roster,
            kind,
            addresses,
            places: SmallVec::new(),
            ledger: Ledger::new(),
            tie: None,
            state: State::Connecting,
            ejected: None,
            introduced: false,
            released: false,
            reported: false,
            mark: 0,
        }
    }

    /// The endpoint as leaves see it. One that is ejected is failing to them, whatever its connection
    /// does (A50).
    pub(crate) fn seen(&self) -> Seen<'_, T> {
        match (&self.ejected, &self.state) {
            (Some(failed), _) => Seen::Failing(failed),
            (None, State::Failing(failed)) => Seen::Failing(failed),
            (None, State::Connecting) => Seen::Connecting,
            (None, State::Idle(wish)) => Seen::Idle(wish),
            (None, State::Ready(connection)) => Seen::Ready(connection),
        }
    }

    /// The state as leaves see it.
    pub(crate) fn connectivity(&self) -> Connectivity {
        match &self.ejected {
            Some(_) => Connectivity::TransientFailure,
            None => self.raw_connectivity(),
        }
    }

    /// The state of its connection. Session affinity goes by it, so an ejected endpoint keeps its sessions
    /// (A61).
    pub(crate) fn raw_connectivity(&self) -> Connectivity {
        match self.state {
            State::Connecting => Connectivity::Connecting,
            State::Failing(_) => Connectivity::TransientFailure,
            State::Idle(_) => Connectivity::Idle,
            State::Ready(_) => Connectivity::Ready,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.connectivity() == Connectivity::Ready
    }

    /// Returns whether its connection could not be made.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failing(_))
    }

    /// The leaves that hold it; one comes twice if it holds the endpoint in two localities.
    pub(super) fn leaves(&self) -> impl Iterator<Item = LeafId> {
        self.places.iter().map(|place| place.leaf)
    }

    pub(super) fn set_addresses(&mut self, addresses: &Arc<[SocketAddr]>) {
        if !Arc::ptr_eq(&self.addresses, addresses) {
            self.addresses = addresses.clone();
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.kind, Kind::Endpoint { is_draining, .. } if is_draining)
    }

    pub(super) fn set_health(&mut self, listed: Health) {
        if let Kind::Endpoint { health, .. } = &mut self.kind {
            *health = listed;
        }
    }

    pub(super) fn set_draining(&mut self, draining: bool) {
        if let Kind::Endpoint { is_draining, .. } = &mut self.kind {
            *is_draining = draining;
        }
    }

    pub(super) fn place_in(&self, leaf: LeafId) -> Option<&Place> {
        self.places.iter().find(|place| place.leaf == leaf)
    }

    /// The calls that are open on it, in any place.
    pub(crate) fn in_flight(&self) -> u64 {
        self.ledger.in_flight()
    }

    /// The calls that were sent to it, in any place.
    pub(crate) fn picks(&self) -> u64 {
        self.ledger.picks()
    }

    /// The calls that have ended, in any place.
    pub(super) fn settled(&self) -> Settled {
        self.ledger.settled()
    }

    /// The endpoint as it is seen in one of its places.
    pub(crate) fn view(&self, id: EndpointId, locality: &LocalityId) -> EndpointView {
        EndpointView {
            id,
            locality: locality.clone(),
            addresses: self.addresses.clone(),
            state: self.connectivity(),
            picks: self.picks(),
            in_flight: self.in_flight(),
        }
    }

    /// The endpoint as a tree shows it. `weight` is `None` for one that no leaf holds.
    pub(crate) fn tree(
        &self,
        view: &EndpointView,
        weight: Option<NonZeroU64>,
        role: Option<TreeRole>,
    ) -> Tree {
        let failure = match self.seen() {
            Seen::Failing(failed) => Some(failed.reason.clone()),
            Seen::Connecting | Seen::Idle(_) | Seen::Ready(_) => None,
        };
        let mut tree = Tree::endpoint(&view.addresses, weight)
            .with_state(view.state)
            .with_role(role)
            .with_note(failure);
        tree.endpoint = Some(view.id);
        tree.in_flight = Some(view.in_flight);
        tree.picks = Some(view.picks);
        tree
    }

    /// Counts one more list of a place; false if the endpoint does not have the place.
    pub(super) fn enter_again(&mut self, leaf: LeafId, locality: &LocalityId) -> bool {
        let is_it = |place: &&mut Place| place.leaf == leaf && place.locality == *locality;
        let place = self.places.iter_mut().find(is_it);
        place.map(|place| place.lists += 1).is_some()
    }

    /// Adds a place. If the endpoint is connected, its calls there are
    /// to name the locality of the place.
    pub(super) fn enter(
        &mut self,
        id: EndpointId,
        (leaf, locality): (LeafId, &LocalityId),
        counters: Option<&LeafCounters>,
        copy: fn(&T) -> T,
    ) {
        self.places.push(Place {
            leaf,
            locality: locality.clone(),
            lists: 1,
        });
        let State::Ready(connection) = &mut self.state else {
            return;
        };
        if connection.find(locality).is_none() {
            let known = &connection.first;
            let ready = self.ledger.open(Connected {
                id,
                locality: locality.clone(),
                addresses: &self.addresses,
                counters,
                transport: copy(&known.transport),
                address: known.address,
            });
            connection.others.push(ready);
        }
    }

    /// Takes back a list of a place.
    pub(super) fn leave(&mut self, leaf: LeafId, locality: &LocalityId) {
        let is_it = |place: &Place| place.leaf == leaf && place.locality == *locality;
        let Some(index) = self.places.iter().position(is_it) else {
            return;
        };
        self.places[index].lists -= 1;
        if self.places[index].lists > 0 {
            return;
        }
        self.places.remove(index);
        let is_elsewhere = self.places.iter().any(|place| place.locality == *locality);
        if let State::Ready(connection) = &mut self.state
            && !is_elsewhere
        {
            connection.forget(locality);
        }
    }

    /// TRANSIENT_FAILURE is sticky until READY (A61): an attempt to reconnect changes nothing.
    pub(super) fn connecting(&mut self) -> bool {
        match self.state {
            State::Connecting | State::Failing(_) => false,
            State::Idle(_) | State::Ready(_) => {
                self.state = State::Connecting;
                true
            }
        }
    }

    pub(super) fn idle(&mut self, id: EndpointId) -> bool {
        if matches!(self.state, State::Idle(_)) {
            return false;
        }
        self.state = State::Idle(Arc::new(Wish::new(id)));
        true
    }

    /// Takes a new connection, which calls of every place see with their own locality. Returns whether
    /// there are such places.
    pub(super) fn ready(
        &mut self,
        id: EndpointId,
        (transport, address): (T, SocketAddr),
        counters: Option<&LeafCounters>,
        copy: fn(&T) -> T,
    ) -> bool {
        let Some(locality) = self.locality().cloned() else {
            return false;
        };
        let (addresses, ledger) = (&self.addresses, &mut self.ledger);
        let mut open = |transport, locality| {
            ledger.open(Connected {
                id,
                locality,
                addresses,
                counters,
                transport,
                address,
            })
        };
        let mut connection = Connection::new(open(transport, locality));
        for place in self.places.iter().skip(1) {
            if connection.find(&place.locality).is_none() {
                let transport = copy(&connection.first.transport);
                let ready = open(transport, place.locality.clone());
                connection.others.push(ready);
            }
        }
        self.state = State::Ready(connection);
        true
    }

    /// Counts future calls in other counters of the cluster. Open calls stay in the counters in
    /// which they began.
    pub(super) fn recount(&mut self, counters: Option<&LeafCounters>, copy: fn(&T) -> T) {
        let State::Ready(connection) = &mut self.state else {
            return;
        };
        let all = std::iter::once(&mut connection.first).chain(&mut connection.others);
        for ready in all {
            let connected = Connected {
                id: ready.id,
                locality: ready.locality.clone(),
                addresses: &ready.addresses,
                counters,
                transport: copy(&ready.transport),
                address: ready.address,
            };
            *ready = self.ledger.open(connected);
        }
    }

    /// The locality of its first place. An endpoint that sessions alone hold is where the plan has it.
    fn locality(&self) -> Option<&LocalityId> {
        let place = self.places.first().map(|place| &place.locality);
        place.or_else(|| self.tie.as_ref().map(|tie| &tie.locality))
    }

    pub(super) fn failed(&mut self, reason: Arc<str>, at: u64) -> bool {
        self.state = State::Failing(Failed {
            reason,
            at,
            is_ejection: false,
        });
        true
    }
}

/// The state of an endpoint's connection. A failure stays until READY (A61).
#[derive(Debug)]
pub(crate) enum State<T> {
    Connecting,
    Failing(Failed),
    Idle(Arc<Wish>),
    Ready(Connection<T>),
}

/// An endpoint as leaves see it.
#[derive(Debug)]
pub(crate) enum Seen<'a, T> {
    Connecting,
    Failing(&'a Failed),
    Idle(&'a Arc<Wish>),
    Ready(&'a Connection<T>),
}

/// A failure to connect, or an ejection.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) reason: Arc<str>,
    /// The number of this failure among all failures, so that the last one can be found.
    pub(crate) at: u64,
    /// True if outlier detection ejected the endpoint. It may be connected then.
    pub(crate) is_ejection: bool,
}

/// The connection of an endpoint, once for each locality that the endpoint is in: mostly one.
#[derive(Debug)]
pub(crate) struct Connection<T> {
    first: Arc<ReadyEndpoint<T>>,
    others: Vec<Arc<ReadyEndpoint<T>>>,
}

impl<T> Connection<T> {
    pub(super) fn new(first: Arc<ReadyEndpoint<T>>) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }

    /// Any of its localities: the connection is the same.
    pub(crate) fn any(&self) -> &Arc<ReadyEndpoint<T>> {
        &self.first
    }

    /// The connection for calls of a locality.
    pub(crate) fn in_locality(&self, locality: &LocalityId) -> &Arc<ReadyEndpoint<T>> {
        // An endpoint of one locality is the rule, and a look at its own would be a cache miss.
        match self.others.is_empty() {
            true => &self.first,
            false => self.find(locality).unwrap_or(&self.first),
        }
    }

    /// The connection in one more locality.
    pub(super) fn add(&mut self, ready: Arc<ReadyEndpoint<T>>) {
        self.others.push(ready);
    }

    pub(super) fn find(&self, locality: &LocalityId) -> Option<&Arc<ReadyEndpoint<T>>> {
        let mut all = std::iter::once(&self.first).chain(&self.others);
        all.find(|ready| ready.locality == *locality)
    }

    /// The endpoint left a locality. If that was its last one the connection is kept, because the
    /// endpoint may be on its way to another.
    fn forget(&mut self, locality: &LocalityId) {
        if self.first.locality != *locality {
            self.others.retain(|ready| ready.locality != *locality);
        } else if !self.others.is_empty() {
            self.first = self.others.remove(0);
        }
    }
}
