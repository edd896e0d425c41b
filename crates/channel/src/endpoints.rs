//! Endpoints on top of subchannels.
//!
//! An endpoint belongs to one cluster and locality and is reachable at one or more addresses (gRFC
//! A61); a subchannel is one address and the way to speak to it. Which address of an endpoint is
//! tried when, and which one is used, a [`Race`] decides for each endpoint. Two endpoints with an
//! address in common share its connection, and a subchannel lives for as long as an endpoint uses it.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_lb::{EndpointId, EndpointState, Race, RaceAction, RaceEvent};
use futures_channel::mpsc;

use crate::subchannel::{Dialling, Report, Subchannel, SubchannelId};
use crate::transport::{Profile, Sender};

/// A change that the balancer must hear of.
pub(crate) type Change = (EndpointId, EndpointState<Sender>);

/// The endpoints a channel is connected to, or tries to be.
#[derive(Debug)]
pub(crate) struct Endpoints {
    dialling: Arc<Dialling>,
    reports: mpsc::UnboundedSender<Report>,
    /// Boxed, as a table has room for more than there are.
    endpoints: HashMap<EndpointId, Box<Endpoint>>,
    /// When the next address of an endpoint is to be tried.
    timers: BTreeSet<(Instant, EndpointId)>,
    subchannels: HashMap<SocketAddr, Box<Shared>>,
    next_serial: u64,
}

#[derive(Debug, Default)]
struct Endpoint {
    race: Race<Sender>,
    /// Its entry among the timers.
    timer: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    id: SubchannelId,
    subchannel: Subchannel,
    state: EndpointState<Sender>,
    /// In order.
    users: Vec<EndpointId>,
}

impl Endpoints {
    /// No endpoints yet. What subchannels report comes out of the receiver and belongs into
    /// [`handle`](Self::handle).
    pub(crate) fn new(
        profile: Profile,
        timeout: Duration,
    ) -> (Self, mpsc::UnboundedReceiver<Report>) {
        let (reports, receiver) = mpsc::unbounded();
        let endpoints = Self {
            dialling: Arc::new(Dialling::new(profile, timeout)),
            reports,
            endpoints: HashMap::new(),
            timers: BTreeSet::new(),
            subchannels: HashMap::new(),
            next_serial: 0,
        };
        (endpoints, receiver)
    }

    /// Connects an endpoint to one of its addresses. What is known at once is returned.
    pub(crate) fn connect(
        &mut self,
        id: EndpointId,
        addresses: Arc<[SocketAddr]>,
        now: Instant,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        self.endpoints.entry(id).or_default();
        self.step(id, RaceEvent::Connect(addresses), now, &mut changes);
        changes
    }

    /// Lets go of an endpoint. Its open calls finish.
    pub(crate) fn release(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.remove(&id) else {
            return;
        };
        if let Some(at) = endpoint.timer {
            self.timers.remove(&(at, id));
        }
        for address in endpoint.race.held() {
            self.abandon(id, address);
        }
    }

    /// Takes a subchannel's report, and says what it means for the endpoints that use it.
    pub(crate) fn handle(&mut self, (subchannel, state): Report, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        let address = subchannel.address;
        let known = self.subchannels.get_mut(&address);
        let Some(shared) = known.filter(|shared| shared.id == subchannel) else {
            return changes;
        };
        shared.state = state.clone();
        for id in shared.users.clone() {
            let state = state.clone();
            let event = RaceEvent::Subchannel { address, state };
            self.step(id, event, now, &mut changes);
        }
        changes
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The turn of the next address of some endpoints may have come.
    pub(crate) fn handle_timeouts(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(endpoint) = self.endpoints.get_mut(&id) {
                endpoint.timer = None;
            }
            self.step(id, RaceEvent::Timeout, now, &mut changes);
        }
        changes
    }

    /// Tells an endpoint's race what happened, and does what it asks for.
    fn step(
        &mut self,
        id: EndpointId,
        event: RaceEvent<Sender>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        endpoint.race.handle(event, now);
        while let Some(endpoint) = self.endpoints.get_mut(&id)
            && let Some(action) = endpoint.race.poll_action()
        {
            match action {
                RaceAction::Abandon(address) => self.abandon(id, address),
                RaceAction::Dial(address) => self.dial(id, address, now),
                RaceAction::State(state) => changes.push((id, state)),
            }
        }
        self.set_timer(id);
    }

    fn set_timer(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        let at = endpoint.race.next_timeout();
        let before = std::mem::replace(&mut endpoint.timer, at);
        if before != at {
            before.map(|before| self.timers.remove(&(before, id)));
            self.timers.extend(at.map(|at| (at, id)));
        }
    }

    /// Takes up the subchannel of an address. If another endpoint has one it is shared, and its state
    /// is news.
    fn dial(&mut self, id: EndpointId, address: SocketAddr, now: Instant) {
        let shared = self.subchannel(address);
        if let Err(place) = shared.users.binary_search(&id) {
            shared.users.insert(place, id);
        }
        if matches!(shared.state, EndpointState::Idle) {
            shared.subchannel.connect();
            shared.state = EndpointState::Connecting;
        }
        let state = shared.state.clone();
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            let event = RaceEvent::Subchannel { address, state };
            endpoint.race.handle(event, now);
        }
    }

    fn abandon(&mut self, id: EndpointId, address: SocketAddr) {
        let Some(shared) = self.subchannels.get_mut(&address) else {
            return;
        };
        if let Ok(place) = shared.users.binary_search(&id) {
            shared.users.remove(place);
        }
        if shared.users.is_empty() {
            self.subchannels.remove(&address);
        }
    }

    /// The subchannel of an address; a new one, if there is none.
    fn subchannel(&mut self, address: SocketAddr) -> &mut Shared {
        self.subchannels.entry(address).or_insert_with(|| {
            let serial = self.next_serial;
            self.next_serial += 1;
            let id = SubchannelId { address, serial };
            let dialling = Arc::clone(&self.dialling);
            Box::new(Shared {
                id,
                subchannel: Subchannel::start(id, dialling, self.reports.clone()),
                state: EndpointState::Idle,
                users: Vec::new(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use crowfly_lb::{Balancer, Command, Event, Node, Plan};
    use crowfly_testkit::Reserved;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// Waits between attempts grow for as long as they fail.
    #[tokio::test(start_paused = true)]
    async fn waits_between_attempts_grow() {
        let refusing = Reserved::new();
        let (id, addresses) = endpoints_at([refusing.address]).remove(0);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(Profile::plaintext(), timeout);
        let mut waits = Vec::new();
        endpoints.connect(id, addresses, now());
        for _ in 0..3 {
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

    /// Two endpoints at one address share its connection, and when that is lost it is not made again
    /// until one of them asks for it.
    #[tokio::test]
    async fn an_address_of_two_endpoints_is_dialled_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ids = endpoints_at([address, address]);
        let timeout = Duration::from_secs(20);
        let (mut endpoints, mut reports) = Endpoints::new(Profile::plaintext(), timeout);
        for (id, addresses) in &ids {
            endpoints.connect(*id, Arc::clone(addresses), now());
            // The subchannel has begun, but what it reported was not read yet.
            tokio::task::yield_now().await;
        }
        let serve = async {
            let (tcp, _) = listener.accept().await.unwrap();
            h2::server::handshake(tcp).await.unwrap()
        };
        let ready = until(&mut endpoints, &mut reports, |state| {
            matches!(state, EndpointState::Ready { .. })
        });
        let (server, changes) = tokio::join!(serve, ready);
        let changed: BTreeSet<EndpointId> = changes.iter().map(|(id, _)| *id).collect();
        assert_eq!(changed, ids.iter().map(|(id, _)| *id).collect());

        drop(server);
        let idle = until(&mut endpoints, &mut reports, |state| {
            matches!(state, EndpointState::Idle)
        });
        idle.await;
        tokio::time::pause();
        let another = tokio::time::timeout(Duration::from_secs(3600), reports.recv());
        another.await.expect_err("nobody asked for a connection");
    }

    /// What the report that was wanted means for the endpoints.
    async fn until(
        endpoints: &mut Endpoints,
        reports: &mut mpsc::UnboundedReceiver<Report>,
        wanted: impl Fn(&EndpointState<Sender>) -> bool,
    ) -> Vec<Change> {
        loop {
            let report = reports.recv().await.unwrap();
            let found = wanted(&report.1);
            let changes = endpoints.handle(report, now());
            if found {
                return changes;
            }
        }
    }

    fn now() -> std::time::Instant {
        Instant::now().into_std()
    }

    /// Endpoints as a balancer names them, each in a cluster of its own.
    fn endpoints_at<const N: usize>(
        addresses: [SocketAddr; N],
    ) -> Vec<(EndpointId, Arc<[SocketAddr]>)> {
        let mut balancer = Balancer::<Sender>::new(7, Arc::default());
        for (i, address) in addresses.into_iter().enumerate() {
            let plan = Plan {
                cluster: format!("payments-{i}").as_str().into(),
                root: Node::round_robin([address.into()]),
                note: None,
            };
            balancer.handle(Event::Plan(Arc::new(plan)), now());
        }
        balancer.flush(now());
        let commands = std::iter::from_fn(|| balancer.poll_command());
        let named = commands.filter_map(|command| match command {
            Command::Connect { id, addresses } => Some((id, addresses)),
            _ => None,
        });
        named.collect()
    }
}
