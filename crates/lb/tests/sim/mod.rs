//! Drives a [`Balancer`] with scripted states, as a channel's driver would. There is no network and
//! no clock, so a test decides the order of all events.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod plans;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, BalancerEvent, Call, CallContext, CallCounters, ClusterName, Command, Demand,
    Endpoint, EndpointId, EndpointState, EndpointView, OutlierEvent, Pick, Picker, Plan, Tree,
};
use plans::{localities, tree_of};

/// The cluster of every plan made here.
pub(crate) const CLUSTER: &str = "payments";

/// A transport is the port that it leads to.
pub(crate) type Port = u16;

/// A driver that does what the balancer asks and reports what the test says.
pub(crate) struct Sim {
    pub(crate) balancer: Balancer<Port>,
    /// The picker of [`CLUSTER`].
    pub(crate) picker: Option<Arc<Picker<Port>>>,
    /// The pickers of every cluster.
    pub(crate) pickers: BTreeMap<ClusterName, Arc<Picker<Port>>>,
    /// The connects since the test last looked.
    pub(crate) connects: Vec<Port>,
    /// The leaf clusters of those connects.
    pub(crate) connected_for: Vec<String>,
    pub(crate) releases: Vec<Port>,
    pub(crate) publishes: usize,
    pub(crate) reresolves: usize,
    pub(crate) outliers: Vec<OutlierEvent>,
    /// Every endpoint that was connected and not released.
    pub(crate) live: BTreeMap<EndpointId, Port>,
    pub(crate) released: BTreeSet<EndpointId>,
    pub(crate) now: Instant,
    seed: u64,
}

impl Sim {
    pub(crate) fn new() -> Self {
        Self::with_seed(1)
    }

    pub(crate) fn with_seed(seed: u64) -> Self {
        Self::with_counters(seed, Arc::default())
    }

    /// A balancer that shares its counters.
    pub(crate) fn with_counters(seed: u64, counters: Arc<CallCounters>) -> Self {
        Self {
            balancer: Balancer::new(seed, counters),
            picker: None,
            pickers: BTreeMap::new(),
            connects: Vec::new(),
            connected_for: Vec::new(),
            releases: Vec::new(),
            publishes: 0,
            reresolves: 0,
            outliers: Vec::new(),
            live: BTreeMap::new(),
            released: BTreeSet::new(),
            now: Instant::now(),
            seed: 0,
        }
    }

    /// A balancer that has the plan, with all of its endpoints ready.
    pub(crate) fn ready_with(plan: Plan) -> Self {
        let mut sim = Self::new();
        sim.plan(plan);
        let ports: Vec<_> = sim.live.values().copied().collect();
        sim.ready(&ports);
        sim.forget();
        sim
    }

    /// A balancer that has the plan, with all of its endpoints ready. It acts once on all reports,
    /// because a plan of many endpoints would otherwise take long.
    pub(crate) fn ready_with_in_one_batch(plan: Plan) -> Self {
        let mut sim = Self::new();
        sim.plan(plan);
        for (id, port) in sim.live.clone() {
            let state = ready_at(port);
            sim.handle(BalancerEvent::Endpoint { id, state });
        }
        sim.flush();
        sim.forget();
        sim
    }

    /// Hands over an event without acting on it.
    pub(crate) fn handle(&mut self, event: BalancerEvent<Port>) {
        self.balancer.handle(event, self.now);
    }

    /// Flushes, and does all that is asked.
    pub(crate) fn flush(&mut self) {
        self.balancer.flush(self.now);
        while let Some(command) = self.balancer.poll_command() {
            self.obey(command);
        }
    }

    /// Lets time pass, with every timer that fires meanwhile.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.balancer.next_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            self.flush();
        }
        self.now = end;
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn advance_secs(&mut self, seconds: u64) {
        self.advance(Duration::from_secs(seconds));
    }

    /// Stops using a cluster.
    pub(crate) fn remove(&mut self, cluster: &str) {
        self.handle(BalancerEvent::RemoveCluster(cluster.into()));
        self.flush();
    }

    pub(crate) fn plan(&mut self, plan: Plan) {
        self.handle(BalancerEvent::Plan(Arc::new(plan)));
        self.flush();
    }

    pub(crate) fn ready(&mut self, ports: &[Port]) {
        for &port in ports {
            self.report(port, ready_at(port));
        }
    }

    pub(crate) fn connecting(&mut self, port: Port) {
        self.report(port, EndpointState::Connecting);
    }

    pub(crate) fn idle(&mut self, port: Port) {
        self.report(port, EndpointState::Idle);
    }

    pub(crate) fn failing(&mut self, port: Port, reason: &str) {
        self.report(port, EndpointState::TransientFailure(reason.into()));
    }

    pub(crate) fn report(&mut self, port: Port, state: EndpointState<Port>) {
        let id = self.id(port);
        self.handle(BalancerEvent::Endpoint { id, state });
        self.flush();
    }

    /// Of several live endpoints at a port, the one that came last is READY.
    pub(crate) fn ready_newest(&mut self, port: Port) {
        let mut at_port = self.live.iter().filter(|entry| *entry.1 == port);
        let id = *at_port.next_back().expect("a live endpoint").0;
        let state = ready_at(port);
        self.handle(BalancerEvent::Endpoint { id, state });
        self.flush();
    }

    /// The live endpoint at a port.
    pub(crate) fn id(&self, port: Port) -> EndpointId {
        let mut found = self.live.iter().filter(|entry| *entry.1 == port);
        let id = *found
            .next()
            .unwrap_or_else(|| panic!("no live endpoint at {port}"))
            .0;
        assert!(found.next().is_none(), "two live endpoints at {port}");
        id
    }

    /// The call that a pick starts, with a random number that no other pick had.
    pub(crate) fn pick(&mut self) -> Picked {
        self.pick_from(CLUSTER)
    }

    pub(crate) fn pick_from(&mut self, cluster: &str) -> Picked {
        self.seed += 1;
        let picker = self.pickers.get(cluster).expect("no picker was published");
        match picker.pick(&CallContext::new(self.seed)) {
            Pick::Ready(call) => Picked::Ready(call),
            Pick::Drop(dropped) => Picked::Drop(dropped.to_string()),
            Pick::Queue => Picked::Queue,
            Pick::Wake(id) => Picked::Wake(id),
            Pick::Fail(failure) => Picked::Fail(failure.to_string()),
        }
    }

    /// The port of a pick that must succeed.
    pub(crate) fn pick_port(&mut self) -> Port {
        match self.pick() {
            Picked::Ready(call) => *call.transport(),
            other => panic!("expected a ready endpoint, got {other:?}"),
        }
    }

    /// The text of a pick that must fail.
    pub(crate) fn pick_failure(&mut self) -> String {
        match self.pick() {
            Picked::Fail(text) => text,
            other => panic!("expected a failure, got {other:?}"),
        }
    }

    /// The call of a pick that must succeed.
    pub(crate) fn call(&mut self) -> Call<Port> {
        match self.pick() {
            Picked::Ready(call) => call,
            other => panic!("expected a ready endpoint, got {other:?}"),
        }
    }

    /// The text of a pick that must be dropped.
    pub(crate) fn pick_drop(&mut self) -> String {
        match self.pick() {
            Picked::Drop(text) => text,
            other => panic!("expected a drop, got {other:?}"),
        }
    }

    pub(crate) fn is_queued(&mut self) -> bool {
        matches!(self.pick(), Picked::Queue)
    }

    /// How often each port is picked.
    pub(crate) fn count(&mut self, picks: usize) -> BTreeMap<Port, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..picks {
            *counts.entry(self.pick_port()).or_default() += 1;
        }
        counts
    }

    pub(crate) fn view(&self, port: Port) -> EndpointView {
        let mut views = self.balancer.endpoints(CLUSTER).into_iter();
        views
            .find(|view| view.addresses[0].port() == port)
            .expect("no such endpoint")
    }

    /// The live tree as text.
    pub(crate) fn tree(&self) -> String {
        self.tree_fields().to_string()
    }

    /// The live tree as fields.
    pub(crate) fn tree_fields(&self) -> Tree {
        self.balancer.tree(CLUSTER).expect("no such cluster")
    }

    /// Starts to record anew.
    pub(crate) fn forget(&mut self) {
        self.connects.clear();
        self.connected_for.clear();
        self.releases.clear();
        self.publishes = 0;
        self.reresolves = 0;
        self.outliers.clear();
    }

    fn obey(&mut self, command: Command<Port>) {
        match command {
            Command::Connect {
                id,
                cluster,
                addresses,
                ..
            } => {
                self.connected_for.push(cluster.to_string());
                self.released.remove(&id);
                self.live.insert(id, addresses[0].port());
                self.connects.push(addresses[0].port());
            }
            Command::Release(id) => {
                let port = self
                    .live
                    .remove(&id)
                    .expect("released twice, or never connected");
                self.released.insert(id);
                self.releases.push(port);
            }
            Command::Outlier(event) => self.outliers.push(*event),
            Command::Reresolve(_) => self.reresolves += 1,
            Command::Publish { cluster, picker } => {
                if cluster.as_str() == CLUSTER {
                    self.picker = Some(picker.clone());
                }
                self.pickers.insert(cluster, picker);
                self.publishes += 1;
            }
        }
    }
}

/// The outcome of a pick.
#[derive(Debug)]
pub(crate) enum Picked {
    Ready(Call<Port>),
    Queue,
    Wake(Demand),
    Drop(String),
    Fail(String),
}

/// A plan of localities `(zone, weight, ports)`.
pub(crate) fn plan(zones: &[(&str, u32, &[Port])]) -> Plan {
    tree_of(localities(zones))
}

/// A plan of one locality.
pub(crate) fn flat(ports: &[Port]) -> Plan {
    plan(&[("a", 1, ports)])
}

/// A copy of the plan, with a resolution note.
pub(crate) fn noted(plan: Plan, note: &str) -> Plan {
    Plan {
        note: Some(note.into()),
        ..plan
    }
}

pub(crate) fn endpoint(ports: &[Port]) -> Endpoint {
    let addresses: Vec<_> = ports.iter().map(|&port| address(port)).collect();
    Endpoint::new(addresses).expect("an address")
}

pub(crate) fn endpoints_at(ports: &[Port]) -> Arc<[Endpoint]> {
    ports.iter().map(|&port| address(port).into()).collect()
}

/// The report of a connection to a port.
pub(crate) fn ready_at(port: Port) -> EndpointState<Port> {
    EndpointState::Ready {
        transport: port,
        address: address(port),
    }
}

pub(crate) fn address(port: Port) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}
