//! The endpoints of every cluster, and what the driver must hear about them.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use super::{
    Connectivity, EndpointId, EndpointState, EndpointView,
    ready::{Ledger, ReadyEndpoint},
};
use crate::{Command, LocalityId, leaf::LeafId, plan::Endpoint, slots::Slots};

/// Owns the endpoints; lists of endpoints hold them by id.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    records: Slots<Record<T>>,
    /// How many failures were reported: orders them, so that the last one is told.
    failures: u64,
    connects: VecDeque<Command<T>>,
    releases: VecDeque<Command<T>>,
}

impl<T> Pool<T> {
    pub(crate) fn new() -> Self {
        Self {
            records: Slots::new(),
            failures: 0,
            connects: VecDeque::new(),
            releases: VecDeque::new(),
        }
    }

    /// Adds an endpoint that no list holds yet, and asks the driver to connect it.
    pub(crate) fn add(
        &mut self,
        leaf: LeafId,
        locality: &LocalityId,
        endpoint: &Endpoint,
    ) -> EndpointId {
        let id = EndpointId(self.records.insert(Record {
            leaf,
            locality: locality.clone(),
            identity: endpoint.identity(),
            endpoint: endpoint.clone(),
            ledger: Ledger::new(),
            state: State::Connecting,
            reported: false,
            holders: 0,
        }));
        self.connect(id, endpoint.addresses());
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

    /// A list let go of the endpoint; the driver may release it when the last one did.
    pub(crate) fn let_go(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        record.holders -= 1;
        if record.holders == 0 {
            self.records.remove(id.0);
            self.releases.push_back(Command::Release(id));
        }
    }

    /// Takes what the driver reports. Returns the leaf that must look again, if any.
    pub(crate) fn report(&mut self, id: EndpointId, reported: EndpointState<T>) -> Option<LeafId> {
        // An endpoint that is gone: the driver's report crossed our Release.
        let record = self.records.get_mut(id.0)?;
        let first = !std::mem::replace(&mut record.reported, true);
        if let EndpointState::Idle = reported {
            let addresses = record.endpoint.addresses().clone();
            self.connect(id, &addresses);
        }

        let record = self.records.get_mut(id.0)?;
        let changed = match reported {
            EndpointState::Idle | EndpointState::Connecting => record.disconnected(),
            EndpointState::Ready(transport) => record.ready(id, transport),
            EndpointState::TransientFailure(reason) => {
                self.failures += 1;
                record.failed(reason, self.failures)
            }
        };
        (first || changed).then_some(record.leaf)
    }

    pub(crate) fn next_connect(&mut self) -> Option<Command<T>> {
        self.connects.pop_front()
    }

    pub(crate) fn next_release(&mut self) -> Option<Command<T>> {
        self.releases.pop_front()
    }

    fn connect(&mut self, id: EndpointId, addresses: &Arc<[SocketAddr]>) {
        self.connects.push_back(Command::Connect {
            id,
            addresses: addresses.clone(),
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
    pub(crate) identity: Arc<[SocketAddr]>,
    pub(crate) endpoint: Endpoint,
    ledger: Ledger<T>,
    pub(crate) state: State<T>,
    /// Whether the driver has reported any state.
    pub(crate) reported: bool,
    /// How many lists hold it.
    holders: u32,
}

impl<T> Record<T> {
    /// The leaf it belongs to.
    pub(crate) fn leaf(&self) -> LeafId {
        self.leaf
    }

    pub(crate) fn connectivity(&self) -> Connectivity {
        match self.state {
            State::Connecting => Connectivity::Connecting,
            State::Ready(_) => Connectivity::Ready,
            State::Failing(_) => Connectivity::TransientFailure,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.connectivity() == Connectivity::Ready
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
    fn disconnected(&mut self) -> bool {
        let was_ready = self.is_ready();
        if was_ready {
            self.state = State::Connecting;
        }
        was_ready
    }

    fn ready(&mut self, id: EndpointId, transport: T) -> bool {
        let addresses = self.endpoint.addresses();
        let ready = self
            .ledger
            .connected(id, &self.locality, addresses, transport);
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
    Ready(Arc<ReadyEndpoint<T>>),
    Failing(Failed),
}

/// A failure to connect.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) reason: Arc<str>,
    /// Its place among all failures.
    pub(crate) at: u64,
}
