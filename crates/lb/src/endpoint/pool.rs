//! The endpoints of every cluster, and what the driver must hear about them.
//!
//! They are in one place, because a driver names an endpoint by its id alone. The roster of a leaf
//! cluster says which of them are its own.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    Connectivity, EndpointId, EndpointState, RosterId, Wish,
    ready::{Connected, LeafCounters, ReadyEndpoint},
    record::{Connection, Kind, Record, State},
    roster::Roster,
    sessions::Stirred,
};
use crate::{Command, LocalityId, leaf::LeafId, plan::Endpoint, slots::Slots};

/// Owns the endpoints; lists of endpoints hold them by id.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    pub(super) records: Slots<Record<T>>,
    pub(super) rosters: Slots<Roster<T>>,
    /// Copies a transport, because each locality of an endpoint has one. It is a function so that
    /// only [`Balancer::new`](crate::Balancer::new) has to ask for `Clone`.
    pub(super) copy: fn(&T) -> T,
    /// The leaves whose endpoints are one list of addresses.
    pub(super) flattened: HashSet<LeafId>,
    /// The leaf clusters with changes that sessions may wait for.
    pub(super) stirred: Vec<Stirred>,
    /// The number of failures that were reported. It orders them, because the text of a failed call
    /// names the last one.
    pub(super) failures: u64,
    marks: u64,
    /// The number of endpoints that were looked at for rosters, as a measure of the work.
    pub(crate) visits: u64,
    /// Leaves that were left without endpoints.
    emptied: Vec<LeafId>,
    /// Leaves with an endpoint that began to connect at the wish of another leaf, or that outlier detection
    /// ejected or let return.
    pub(super) affected: Vec<LeafId>,
    connects: VecDeque<Command<T>>,
    /// Commands that have to come after the pickers of the same flush.
    pub(super) after_pickers: VecDeque<Command<T>>,
}

/// The leaf that endpoints are held by.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) leaf: LeafId,
    pub(crate) locality: LocalityId,
    pub(crate) roster: RosterId,
}

impl<T> Pool<T> {
    pub(crate) fn new(copy: fn(&T) -> T) -> Self {
        Self {
            records: Slots::new(),
            rosters: Slots::new(),
            copy,
            flattened: HashSet::new(),
            stirred: Vec::new(),
            failures: 0,
            marks: 0,
            visits: 0,
            emptied: Vec::new(),
            affected: Vec::new(),
            connects: VecDeque::new(),
            after_pickers: VecDeque::new(),
        }
    }

    /// Adds an endpoint that is IDLE.
    pub(super) fn add(&mut self, record: Record<T>) -> EndpointId {
        let id = EndpointId(self.records.insert(record));
        if let Some(record) = self.records.get_mut(id.0) {
            record.state = State::Idle(Arc::new(Wish::new(id)));
        }
        id
    }

    pub(crate) fn get(&self, id: EndpointId) -> Option<&Record<T>> {
        self.records.get(id.0)
    }

    /// A list of a leaf took up the endpoint.
    pub(crate) fn hold(&mut self, id: EndpointId, (leaf, locality): (LeafId, &LocalityId)) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        if record.enter_again(leaf, locality) {
            return;
        }
        let was_held = !record.places.is_empty();
        let counters = counters_of(&self.rosters, record.roster);
        record.enter(id, (leaf, locality), counters, self.copy);
        if !was_held {
            let roster = record.roster;
            self.set_held(roster, id, true);
        }
    }

    /// A list of a leaf no longer has the endpoint. If no leaf wants its connection now,
    /// [`sweep`](Self::sweep) decides whether it is released or removed.
    pub(crate) fn let_go(&mut self, id: EndpointId, (leaf, locality): (LeafId, &LocalityId)) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        record.leave(leaf, locality);
        let roster = record.roster;
        if record.places.is_empty() {
            self.set_held(roster, id, false);
        } else if !self.is_wanted(id)
            && let Some(roster) = self.rosters.get_mut(roster.0)
        {
            roster.loosen(id);
        }
    }

    /// Adds all endpoints of a `pick_first` leaf as one list of addresses.
    pub(crate) fn add_flattened(&mut self, owner: &Owner, all: &Endpoint) -> EndpointId {
        let addresses = all.addresses().clone();
        let kind = Kind::Flattened { lent_to: None };
        let id = self.add(Record::new(owner.roster, kind, addresses));
        self.flattened.insert(owner.leaf);
        if let Some(record) = self.records.get_mut(id.0) {
            let place = (owner.leaf, &owner.locality);
            record.enter(id, place, None, self.copy);
        }
        id
    }

    /// Gives a `pick_first` leaf another list of addresses. The driver is told at once, unless the
    /// leaf is IDLE. An IDLE leaf uses the new addresses when it connects next.
    ///
    /// The connected address may belong to another endpoint now.
    pub(crate) fn readdress(&mut self, id: EndpointId, addresses: &Arc<[SocketAddr]>) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let moved = record.addresses != *addresses;
        record.addresses = addresses.clone();
        let connected = match &record.state {
            State::Ready(connection) => Some(connection.any().clone()),
            State::Connecting | State::Failing(_) | State::Idle(_) => None,
        };
        if moved && !matches!(record.state, State::Idle(_)) {
            self.dial(id);
        }
        if let Some(known) = connected {
            let (owner, locality) = self.owner_of(id, &known.address);
            if (owner, &locality) != (known.id, &known.locality) {
                let transport = (self.copy)(&known.transport);
                self.connect_owner(id, transport, known.address);
                self.lend(id);
            }
        }
    }

    /// Removes the list of addresses of a `pick_first` leaf.
    pub(crate) fn remove_flattened(&mut self, id: EndpointId) {
        let places = self.get(id).map(|record| &record.places);
        if let Some(place) = places.and_then(|places| places.first()) {
            let leaf = place.leaf;
            self.flattened.remove(&leaf);
        }
        self.take_back(id);
        self.remove(id);
    }

    /// A mark that no endpoint has.
    pub(crate) fn next_mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Marks the endpoint as one of a list, which has its health and the order of its addresses. Returns
    /// false, and does nothing, if it had this mark already.
    pub(crate) fn list(&mut self, id: EndpointId, endpoint: &Endpoint, mark: u64) -> bool {
        let is_first = self.mark(id, mark);
        let record = self.records.get_mut(id.0);
        if let Some(record) = record.filter(|_| is_first) {
            record.set_addresses(endpoint.addresses());
            record.set_health(endpoint.health);
        }
        is_first
    }

    /// Marks the endpoint. Returns false if it had this mark already.
    pub(crate) fn mark(&mut self, id: EndpointId, mark: u64) -> bool {
        let record = self.records.get_mut(id.0);
        record.is_some_and(|record| std::mem::replace(&mut record.mark, mark) != mark)
    }

    /// Asks the driver to connect an IDLE endpoint that it does not know yet or has released.
    /// Returns whether it was asked.
    pub(crate) fn connect_new(&mut self, id: EndpointId) -> bool {
        self.get(id).is_some_and(|record| !record.introduced) && self.connect(id)
    }

    /// Asks the driver to connect an endpoint, if it is IDLE and a leaf holds it. Returns whether
    /// it was asked.
    pub(crate) fn connect(&mut self, id: EndpointId) -> bool {
        let Some(record) = self.records.get_mut(id.0) else {
            return false;
        };
        // A call may ask for an endpoint that has left its leaf meanwhile.
        if !matches!(record.state, State::Idle(_)) || record.places.is_empty() {
            return false;
        }
        record.state = State::Connecting;
        if record.places.len() > 1 {
            self.affected.extend(record.leaves());
        }
        self.dial(id);
        self.show(id);
        true
    }

    /// Returns whether the driver knows the endpoint: it was told to connect it, and not to release
    /// it since.
    pub(crate) fn is_introduced(&self, id: EndpointId) -> bool {
        self.get(id).is_some_and(|record| record.introduced)
    }

    /// Takes the driver's report. Returns whether the leaves that hold the endpoint must look again.
    pub(crate) fn report(&mut self, id: EndpointId, reported: EndpointState<T>) -> bool {
        let is_wanted = self.is_wanted(id);
        let Some(record) = self.records.get_mut(id.0) else {
            return false;
        };
        let first = !std::mem::replace(&mut record.reported, true);
        let changed = match reported {
            EndpointState::Connecting => record.connecting(),
            EndpointState::Idle if record.has_failed() && is_wanted => {
                // An endpoint that failed is tried again for as long as a leaf wants it (A61).
                self.dial(id);
                return false;
            }
            EndpointState::Idle => record.idle(id),
            EndpointState::Ready { transport, address } => match record.kind {
                Kind::Endpoint { .. } => {
                    let counters = counters_of(&self.rosters, record.roster);
                    record.ready(id, (transport, address), counters, self.copy)
                }
                Kind::Flattened { .. } => self.connect_owner(id, transport, address),
            },
            EndpointState::TransientFailure(reason) => {
                self.failures += 1;
                record.failed(reason, self.failures)
            }
        };
        self.show(id);
        first || changed
    }

    /// Counts the calls of a leaf cluster in these counters from now on. Its connections stay, and
    /// its leaves have to look again.
    pub(crate) fn recount(&mut self, roster: RosterId, counters: LeafCounters) {
        let Some(known) = self.rosters.get_mut(roster.0) else {
            return;
        };
        known.counters = Some(counters);
        let records = self.records.entries();
        let is_ready = |record: &Record<T>| record.raw_connectivity() == Connectivity::Ready;
        let of_cluster = records.filter(|(_, record)| record.roster == roster && is_ready(record));
        let ids: Vec<_> = of_cluster.map(|(key, _)| EndpointId(key)).collect();
        for id in ids {
            self.affected.extend(self.leaves_of(id));
            let Some(record) = self.records.get_mut(id.0) else {
                continue;
            };
            match (&record.kind, &record.state) {
                (Kind::Endpoint { .. }, _) => {
                    record.recount(counters_of(&self.rosters, roster), self.copy);
                }
                (Kind::Flattened { .. }, State::Ready(connection)) => {
                    let known = connection.any();
                    let (transport, address) = ((self.copy)(&known.transport), known.address);
                    self.connect_owner(id, transport, address);
                }
                (Kind::Flattened { .. }, _) => {}
            }
            self.show(id);
        }
    }

    /// The leaves that hold an endpoint, each once.
    pub(crate) fn leaves_of(&self, id: EndpointId) -> SmallVec<[LeafId; 2]> {
        let leaves = self.get(id).into_iter().flat_map(Record::leaves);
        let mut leaves: SmallVec<_> = leaves.collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// A plan left a leaf without endpoints.
    pub(crate) fn empty(&mut self, leaf: LeafId) {
        self.emptied.push(leaf);
    }

    /// The leaves that were left without endpoints, since this was last asked.
    pub(crate) fn next_emptied(&mut self) -> Option<LeafId> {
        self.emptied.pop()
    }

    /// The leaves that have to look again because of others, since this was last asked.
    pub(crate) fn take_affected(&mut self) -> Vec<LeafId> {
        std::mem::take(&mut self.affected)
    }

    pub(crate) fn next_connect(&mut self) -> Option<Command<T>> {
        self.connects.pop_front()
    }

    pub(crate) fn next_after_pickers(&mut self) -> Option<Command<T>> {
        self.after_pickers.pop_front()
    }

    /// Gives back the memory that held the last batch.
    pub(crate) fn tidy(&mut self) {
        self.emptied.shrink_to_fit();
        self.connects.shrink_to_fit();
        self.after_pickers.shrink_to_fit();
    }

    /// The number of endpoints.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn dial(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let Some(roster) = self.rosters.get(record.roster.0) else {
            return;
        };
        record.introduced = true;
        let connect = Command::Connect {
            id,
            cluster: roster.cluster.clone(),
            addresses: record.addresses.clone(),
            is_pick_first: matches!(record.kind, Kind::Flattened { .. }),
        };
        // The driver may not have heard of the release yet.
        if record.released {
            self.after_pickers.push_back(connect);
        } else {
            self.connects.push_back(connect);
        }
    }

    /// A `pick_first` leaf is connected: its calls are those of the endpoint that owns the address.
    fn connect_owner(&mut self, id: EndpointId, transport: T, address: SocketAddr) -> bool {
        let (owner, locality) = self.owner_of(id, &address);
        let Some(record) = self.records.get_mut(owner.0) else {
            return false;
        };
        // Other addresses of the list are those of other endpoints, which a session must not stick to.
        let alone: Option<Arc<[SocketAddr]>> = (owner == id).then(|| Arc::from([address]));
        let ready: Arc<ReadyEndpoint<T>> = record.ledger.open(Connected {
            id: owner,
            locality,
            addresses: alone.as_ref().unwrap_or(&record.addresses),
            counters: counters_of(&self.rosters, record.roster),
            transport,
            address,
        });
        if let Some(record) = self.records.get_mut(id.0) {
            record.state = State::Ready(Connection::new(ready));
        }
        true
    }

    /// The endpoint of a `pick_first` leaf that has an address, and where it is. If none has, because
    /// the driver's report crossed a new list, calls are counted to the list as a whole.
    fn owner_of(&self, flattened: EndpointId, address: &SocketAddr) -> (EndpointId, LocalityId) {
        let record = self.get(flattened);
        let Some((record, place)) = record.and_then(|r| Some((r, r.places.first()?))) else {
            return (flattened, LocalityId::default());
        };
        let roster = self.rosters.get(record.roster.0);
        let owners = roster.map_or(&[][..], |roster| roster.index.owners(address));
        let owner = owners.iter().find_map(|&id| {
            let found = self.get(id)?.place_in(place.leaf)?;
            Some((id, found.locality.clone()))
        });
        owner.unwrap_or_else(|| (flattened, place.locality.clone()))
    }
}

pub(super) fn counters_of<T>(rosters: &Slots<Roster<T>>, id: RosterId) -> Option<&LeafCounters> {
    rosters.get(id.0)?.counters.as_ref()
}
