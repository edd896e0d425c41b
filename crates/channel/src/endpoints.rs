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
    /// The subchannels of the addresses tried so far. They stay, and with them their backoff.
    subchannels: Vec<SubchannelId>,
    /// The address in use or being tried.
    current: usize,
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
    pub(crate) fn connect(
        &mut self,
        id: EndpointId,
        addresses: &Arc<[SocketAddr]>,
    ) -> Option<Change> {
        self.endpoints.entry(id).or_insert_with(|| Endpoint {
            addresses: Arc::clone(addresses),
            subchannels: Vec::new(),
            current: 0,
        });
        self.try_from(id, 0)
    }

    /// Lets go of an endpoint. Its open calls finish.
    pub(crate) fn release(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.remove(&id) else {
            return;
        };
        for subchannel in endpoint.subchannels {
            let Some(shared) = self.subchannels.get_mut(&subchannel) else {
                continue;
            };
            shared.users.remove(&id);
            if shared.users.is_empty() {
                self.by_address.remove(&shared.address);
                self.subchannels.remove(&subchannel);
            }
        }
    }

    /// Takes a subchannel's report, and says what it means for the endpoints that use it.
    pub(crate) fn handle(&mut self, (subchannel, state): Report) -> Vec<Change> {
        let Some(shared) = self.subchannels.get_mut(&subchannel) else {
            return Vec::new();
        };
        shared.state = state.clone();
        let users: Vec<EndpointId> = shared.users.iter().copied().collect();
        users
            .into_iter()
            .filter_map(|id| self.reported(id, subchannel, state.clone()))
            .collect()
    }

    /// What happens to an address that is not in use is no news. One that failed is followed by the
    /// next.
    fn reported(
        &mut self,
        id: EndpointId,
        subchannel: SubchannelId,
        state: EndpointState<Sender>,
    ) -> Option<Change> {
        let endpoint = self.endpoints.get(&id)?;
        if endpoint.subchannels.get(endpoint.current) != Some(&subchannel) {
            return None;
        }
        match state {
            EndpointState::TransientFailure(_) => self.try_from(id, endpoint.current),
            state => Some((id, state)),
        }
    }

    /// Takes the first address from `first` on that is not waiting out a failure. When all are, the
    /// endpoint has failed.
    fn try_from(&mut self, id: EndpointId, first: usize) -> Option<Change> {
        let addresses = Arc::clone(&self.endpoints.get(&id)?.addresses);
        let mut failure = None;
        for (index, address) in addresses.iter().enumerate().skip(first) {
            let subchannel = self.subchannel(*address);
            let shared = self.subchannels.get_mut(&subchannel)?;
            shared.users.insert(id);
            let endpoint = self.endpoints.get_mut(&id)?;
            if endpoint.subchannels.len() == index {
                endpoint.subchannels.push(subchannel);
            }
            endpoint.current = index;
            match shared.state.clone() {
                EndpointState::Idle => {
                    shared.subchannel.connect();
                    return Some((id, EndpointState::Connecting));
                }
                state @ EndpointState::TransientFailure(_) => failure = Some((id, state)),
                state => return Some((id, state)),
            }
        }
        failure
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

#[cfg(test)]
mod tests {
    use std::time::Instant as StdInstant;

    use crowfly_lb::{Balancer, Command, Event, Node, Plan};
    use tokio::time::Instant;

    use super::*;

    /// Waits between attempts grow, although each attempt is asked for anew.
    #[tokio::test(start_paused = true)]
    async fn waits_between_attempts_grow() {
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap();
        let (id, addresses) = endpoint(address);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(Profile::plaintext(), timeout);
        let mut waits = Vec::new();
        for _ in 0..3 {
            endpoints.connect(id, &addresses);
            let failed = until(&mut endpoints, &mut reports, |state| {
                matches!(state, EndpointState::TransientFailure(_))
            });
            failed.await;
            let since = Instant::now();
            let idle = until(&mut endpoints, &mut reports, |state| {
                matches!(state, EndpointState::Idle)
            });
            idle.await;
            waits.push(since.elapsed());
        }
        // 1 s, 1.6 s and 2.56 s, each 20 % more or less.
        assert!(
            waits.is_sorted() && waits[2] > waits[0] * 3 / 2,
            "{waits:?}"
        );
    }

    async fn until(
        endpoints: &mut Endpoints,
        reports: &mut mpsc::UnboundedReceiver<Report>,
        wanted: impl Fn(&EndpointState<Sender>) -> bool,
    ) {
        loop {
            let report = reports.recv().await.unwrap();
            let found = wanted(&report.1);
            endpoints.handle(report);
            if found {
                return;
            }
        }
    }

    /// An endpoint as a balancer names it.
    fn endpoint(address: SocketAddr) -> (EndpointId, Arc<[SocketAddr]>) {
        let mut balancer = Balancer::<Sender>::new(7, Arc::default());
        let now = StdInstant::now();
        let plan = Plan {
            cluster: "payments".into(),
            root: Node::round_robin([address.into()]),
            note: None,
        };
        balancer.handle(Event::Plan(Arc::new(plan)), now);
        balancer.flush(now);
        loop {
            if let Command::Connect { id, addresses } = balancer.poll_command().unwrap() {
                return (id, addresses);
            }
        }
    }
}
