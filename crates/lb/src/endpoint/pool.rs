//! The endpoints of every cluster, and what the driver must hear about them.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use super::{
    Connectivity, EndpointId, EndpointState, EndpointView, Wish,
    ready::{Ledger, ReadyEndpoint},
};
use crate::{
    Command, LocalityId, counters::CallCounter, leaf::LeafId, plan::Endpoint, slots::Slots,
};

/// Owns the endpoints; lists of endpoints hold them by id.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    records: Slots<Record<T>>,
    /// How many failures were reported: orders them, so that the last one is told.
    failures: u64,
    marks: u64,
    /// Leaves that were left without endpoints.
    emptied: Vec<LeafId>,
    connects: VecDeque<Command<T>>,
    releases: VecDeque<Command<T>>,
}

/// Who an endpoint belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) leaf: LeafId,
    pub(crate) locality: LocalityId,
    pub(crate) counter: Option<Arc<CallCounter>>,
}

impl<T> Pool<T> {
    pub(crate) fn new() -> Self {
        Self {
            records: Slots::new(),
            failures: 0,
            marks: 0,
            emptied: Vec::new(),
            connects: VecDeque::new(),
            releases: VecDeque::new(),
        }
    }

    /// Adds an endpoint that no list holds yet. It is IDLE.
    pub(crate) fn add(&mut self, owner: &Owner, endpoint: &Endpoint) -> EndpointId {
        let locality = endpoint.locality.as_ref().unwrap_or(&owner.locality);
        let id = EndpointId(self.records.insert(Record {
            leaf: owner.leaf,
            locality: locality.clone(),
            counter: owner.counter.clone(),
            identity: endpoint.identity(),
            endpoint: endpoint.clone(),
            ledger: Ledger::new(),
            state: State::Connecting,
            introduced: false,
            reported: false,
            holders: 0,
            mark: 0,
        }));
        if let Some(record) = self.records.get_mut(id.0) {
            record.state = State::Idle(Arc::new(Wish::new(id)));
        }
        id
    }

    pub(crate) fn get(&self, id: EndpointId) -> Option<&Record<T>> {
        self.records.get(id.0)
    }

    /// A list took up the endpoint, as the plan now describes it.
    pub(crate) fn hold(&mut self, id: EndpointId, endpoint: &Endpoint) {
        if let Some(record) = self.records.get_mut(id.0) {
            record.holders += 1;
            record.endpoint = endpoint.clone();
        }
    }

    /// The endpoint is to be reached at other addresses. The driver hears of it, unless it has
    /// nothing to do: what is IDLE stays so, and is connected to the new addresses when it is wanted.
    pub(crate) fn readdress(&mut self, id: EndpointId, endpoint: &Endpoint) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let moved = record.endpoint.addresses() != endpoint.addresses();
        record.identity = endpoint.identity();
        record.endpoint = endpoint.clone();
        if moved && !matches!(record.state, State::Idle(_)) {
            self.dial(id);
        }
    }

    /// A list let go of the endpoint; the driver may release it when the last one did.
    /// Its identity is returned then.
    pub(crate) fn let_go(&mut self, id: EndpointId) -> Option<Arc<[SocketAddr]>> {
        let record = self.records.get_mut(id.0)?;
        record.holders -= 1;
        if record.holders > 0 {
            return None;
        }
        let record = self.records.remove(id.0)?;
        // The driver has never heard of the others.
        if record.introduced {
            self.releases.push_back(Command::Release(id));
        }
        Some(record.identity)
    }

    /// Whether the endpoint has these addresses, in this order.
    pub(crate) fn is_at(&self, id: EndpointId, addresses: &Arc<[SocketAddr]>) -> bool {
        self.get(id).is_some_and(|record| {
            let known = record.endpoint.addresses();
            Arc::ptr_eq(known, addresses) || known == addresses
        })
    }

    /// A mark that no endpoint has.
    pub(crate) fn next_mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Marks the endpoint; whether it was not marked so before.
    pub(crate) fn mark(&mut self, id: EndpointId, mark: u64) -> bool {
        let record = self.records.get_mut(id.0);
        record.is_some_and(|record| std::mem::replace(&mut record.mark, mark) != mark)
    }

    /// The same, if it never was connected.
    pub(crate) fn connect_new(&mut self, id: EndpointId) -> bool {
        self.get(id).is_some_and(|record| !record.introduced) && self.connect(id)
    }

    /// Asks the driver to connect an endpoint, if it is IDLE. Whether it is.
    pub(crate) fn connect(&mut self, id: EndpointId) -> bool {
        let Some(record) = self.records.get_mut(id.0) else {
            return false;
        };
        if !matches!(record.state, State::Idle(_)) {
            return false;
        }
        record.state = State::Connecting;
        self.dial(id);
        true
    }

    /// Takes what the driver reports. Returns the leaf that must look again, if any.
    pub(crate) fn report(&mut self, id: EndpointId, reported: EndpointState<T>) -> Option<LeafId> {
        // An endpoint that is gone: the driver's report crossed our Release.
        let record = self.records.get_mut(id.0)?;
        let first = !std::mem::replace(&mut record.reported, true);
        let changed = match reported {
            EndpointState::Connecting => record.connecting(),
            EndpointState::Idle if record.is_failing() => {
                // What failed is tried again for as long as it is wanted (A61).
                self.dial(id);
                return None;
            }
            EndpointState::Idle => record.idle(id),
            EndpointState::Ready(transport) => record.ready(id, transport),
            EndpointState::TransientFailure(reason) => {
                self.failures += 1;
                record.failed(reason, self.failures)
            }
        };
        let record = self.records.get(id.0)?;
        (first || changed).then_some(record.leaf)
    }

    /// A plan left a leaf without endpoints.
    pub(crate) fn empty(&mut self, leaf: LeafId) {
        self.emptied.push(leaf);
    }

    /// The leaves that were left without endpoints, since this was last asked.
    pub(crate) fn next_emptied(&mut self) -> Option<LeafId> {
        self.emptied.pop()
    }

    pub(crate) fn next_connect(&mut self) -> Option<Command<T>> {
        self.connects.pop_front()
    }

    pub(crate) fn next_release(&mut self) -> Option<Command<T>> {
        self.releases.pop_front()
    }

    /// Gives back what held the last batch.
    pub(crate) fn tidy(&mut self) {
        self.emptied.shrink_to_fit();
        self.connects.shrink_to_fit();
        self.releases.shrink_to_fit();
    }

    /// How many endpoints there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    fn dial(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        record.introduced = true;
        self.connects.push_back(Command::Connect {
            id,
            addresses: record.endpoint.addresses().clone(),
        });
    }
}

/// One endpoint: what the plan says about it, and what the driver said.
#[derive(Debug)]
pub(crate) struct Record<T> {
    /// The leaf it belongs to: endpoints of other localities and clusters are others, also at the
    /// same address (the driver may share a connection between them).
    leaf: LeafId,
    locality: LocalityId,
    counter: Option<Arc<CallCounter>>,
    pub(crate) identity: Arc<[SocketAddr]>,
    pub(crate) endpoint: Endpoint,
    ledger: Ledger<T>,
    pub(crate) state: State<T>,
    /// Whether the driver was told of it.
    introduced: bool,
    /// Whether the driver has reported any state.
    pub(crate) reported: bool,
    /// How many lists hold it.
    holders: u32,
    /// The last list that took it up.
    mark: u64,
}

impl<T> Record<T> {
    /// The leaf it belongs to.
    pub(crate) fn leaf(&self) -> LeafId {
        self.leaf
    }

    pub(crate) fn connectivity(&self) -> Connectivity {
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

    pub(crate) fn is_failing(&self) -> bool {
        self.connectivity() == Connectivity::TransientFailure
    }

    /// Whether both lists of its leaf hold it.
    pub(crate) fn is_in_both_lists(&self) -> bool {
        self.holders > 1
    }

    pub(crate) fn view(&self, id: EndpointId) -> EndpointView {
        EndpointView {
            id,
            locality: self.locality.clone(),
            addresses: self.endpoint.addresses().clone(),
            state: self.connectivity(),
            picks: self.ledger.picks(),
            in_flight: self.ledger.in_flight(),
        }
    }

    /// TRANSIENT_FAILURE is sticky until READY (A61): an attempt to reconnect changes nothing.
    fn connecting(&mut self) -> bool {
        match self.state {
            State::Connecting | State::Failing(_) => false,
            State::Idle(_) | State::Ready(_) => {
                self.state = State::Connecting;
                true
            }
        }
    }

    fn idle(&mut self, id: EndpointId) -> bool {
        if matches!(self.state, State::Idle(_)) {
            return false;
        }
        self.state = State::Idle(Arc::new(Wish::new(id)));
        true
    }

    fn ready(&mut self, id: EndpointId, transport: T) -> bool {
        let addresses = self.endpoint.addresses();
        let counter = self.counter.as_ref();
        let ready = self
            .ledger
            .connected(id, &self.locality, addresses, counter, transport);
        self.state = State::Ready(ready);
        true
    }

    fn failed(&mut self, reason: Arc<str>, at: u64) -> bool {
        self.state = State::Failing(Failed { reason, at });
        true
    }
}

/// The state of an endpoint as balancing sees it.
#[derive(Debug)]
pub(crate) enum State<T> {
    Connecting,
    Failing(Failed),
    Idle(Arc<Wish>),
    Ready(Arc<ReadyEndpoint<T>>),
}

/// A failure to connect.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) reason: Arc<str>,
    /// Its place among all failures.
    pub(crate) at: u64,
}
