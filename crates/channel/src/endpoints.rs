//! Endpoints on top of subchannels.
//!
//! An endpoint belongs to one cluster and locality and is reachable at one or more addresses (gRFC
//! A61); a subchannel is one address and the way to speak to it. Two endpoints with an address in
//! common share its connection, and a subchannel lives for as long as an endpoint uses it.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_lb::{EndpointId, EndpointState};
use tokio::sync::mpsc;

use crate::subchannel::{Report, Subchannel, SubchannelId};
use crate::transport::{Profile, Sender};

/// A change that the balancer must hear of.
pub(crate) type Change = (EndpointId, EndpointState<Sender>);

/// The endpoints a channel is connected to, or tries to be.
#[derive(Debug)]
pub(crate) struct Endpoints {
    profile: Profile,
    connect_timeout: Duration,
    reports: mpsc::UnboundedSender<Report>,
    endpoints: HashMap<EndpointId, Endpoint>,
    subchannels: HashMap<SubchannelId, Shared>,
    by_address: HashMap<SocketAddr, SubchannelId>,
    next_id: u64,
}

#[derive(Debug)]
struct Endpoint {
    addresses: Arc<[SocketAddr]>,
    /// The address in use or being tried, and its subchannel.
    current: usize,
    subchannel: SubchannelId,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    subchannel: Subchannel,
    state: EndpointState<Sender>,
    users: BTreeSet<EndpointId>,
}

impl Endpoints {
    /// No endpoints yet. What subchannels report comes out of the receiver and belongs into
    /// [`handle`](Self::handle).
    pub(crate) fn new(
        profile: Profile,
        connect_timeout: Duration,
    ) -> (Self, mpsc::UnboundedReceiver<Report>) {
        let (reports, receiver) = mpsc::unbounded_channel();
        let endpoints = Self {
            profile,
            connect_timeout,
            reports,
            endpoints: HashMap::new(),
            subchannels: HashMap::new(),
            by_address: HashMap::new(),
            next_id: 0,
        };
        (endpoints, receiver)
    }

    /// Connects an endpoint, beginning with its main address. What is known at once is returned.
    pub(crate) fn connect(&mut self, id: EndpointId, addresses: &Arc<[SocketAddr]>) -> Vec<Change> {
        self.release(id);
        self.try_address(id, addresses, 0)
    }

    /// Lets go of an endpoint. Its open calls finish.
    pub(crate) fn release(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.remove(&id) else {
            return;
        };
        let Some(shared) = self.subchannels.get_mut(&endpoint.subchannel) else {
            return;
        };
        shared.users.remove(&id);
        if shared.users.is_empty() {
            self.by_address.remove(&shared.address);
            self.subchannels.remove(&endpoint.subchannel);
        }
    }

    /// Takes a subchannel's report, and says what it means for the endpoints that use it.
    pub(crate) fn handle(&mut self, (id, state): Report) -> Vec<Change> {
        let Some(shared) = self.subchannels.get_mut(&id) else {
            return Vec::new();
        };
        shared.state = state.clone();
        let users: Vec<EndpointId> = shared.users.iter().copied().collect();
        users
            .into_iter()
            .flat_map(|user| self.reported(user, state.clone()))
            .collect()
    }

    /// An address that failed is followed by the next; the endpoint has failed when all have.
    fn reported(&mut self, id: EndpointId, state: EndpointState<Sender>) -> Vec<Change> {
        let Some(endpoint) = self.endpoints.get(&id) else {
            return Vec::new();
        };
        let next = endpoint.current + 1;
        let failed = matches!(state, EndpointState::TransientFailure(_));
        if failed && next < endpoint.addresses.len() {
            let addresses = Arc::clone(&endpoint.addresses);
            self.release(id);
            return self.try_address(id, &addresses, next);
        }
        vec![(id, state)]
    }

    fn try_address(
        &mut self,
        id: EndpointId,
        addresses: &Arc<[SocketAddr]>,
        index: usize,
    ) -> Vec<Change> {
        let Some(&address) = addresses.get(index) else {
            return Vec::new();
        };
        let subchannel = self.subchannel(address);
        let Some(shared) = self.subchannels.get_mut(&subchannel) else {
            return Vec::new();
        };
        shared.users.insert(id);
        self.endpoints.insert(
            id,
            Endpoint {
                addresses: Arc::clone(addresses),
                current: index,
                subchannel,
            },
        );
        let state = shared.state.clone();
        match state {
            EndpointState::Idle => {
                shared.subchannel.connect();
                vec![(id, EndpointState::Connecting)]
            }
            state => self.reported(id, state),
        }
    }

    fn subchannel(&mut self, address: SocketAddr) -> SubchannelId {
        if let Some(id) = self.by_address.get(&address) {
            return *id;
        }
        let id = SubchannelId(self.next_id);
        self.next_id += 1;
        let subchannel = Subchannel::start(
            id,
            address,
            self.profile.clone(),
            self.connect_timeout,
            self.reports.clone(),
        );
        self.by_address.insert(address, id);
        self.subchannels.insert(
            id,
            Shared {
                address,
                subchannel,
                state: EndpointState::Idle,
                users: BTreeSet::new(),
            },
        );
        id
    }
}
