//! A driver whose servers are alive or dead. It connects or fails at once when it is asked to, so
//! that a script has no timing of attempts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, BalancerEvent, ChoiceCount, ClusterPlan, Command, Demand, Endpoint, EndpointId,
    EndpointState, HealthSet, Leaf, Node, OverrideHost, Picker, Plan, Policy, Priority,
    PriorityChild, RingSize,
};

use super::{BACKENDS, Choice, PlanSpec, Spot};

const CLUSTER: &str = "payments";

pub(crate) struct Driver {
    pub(crate) balancer: Balancer<SocketAddr>,
    pub(crate) picker: Option<Arc<Picker<SocketAddr>>>,
    /// The number of pickers so far.
    pub(crate) published: usize,
    pub(crate) now: Instant,
    pub(crate) alive: [bool; BACKENDS],
    pub(crate) endpoints: BTreeMap<EndpointId, Connection>,
    /// The backends whose own endpoint was released since this was last asked.
    pub(crate) released: BTreeSet<usize>,
}

/// An endpoint that the balancer wants.
#[derive(Debug)]
pub(crate) struct Connection {
    addresses: Arc<[SocketAddr]>,
    /// True if it has the addresses of all endpoints of a leaf.
    pub(crate) is_list: bool,
    pub(crate) run: Run,
    /// True from a failure to the next connection, because an endpoint counts as failing for so long (A61).
    pub(crate) is_failing: bool,
}

impl Connection {
    pub(crate) fn is_of(&self, number: usize) -> bool {
        self.addresses
            .iter()
            .any(|address| backend(*address) == number)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Run {
    Asked,
    Failed,
    Idle,
    Ready(SocketAddr),
}

impl Driver {
    pub(crate) fn new() -> Self {
        Self {
            balancer: Balancer::new(7, Arc::default()),
            picker: None,
            published: 0,
            now: Instant::now(),
            alive: [true; BACKENDS],
            endpoints: BTreeMap::new(),
            released: BTreeSet::new(),
        }
    }

    pub(crate) fn plan(&mut self, spec: &PlanSpec) {
        let event = BalancerEvent::Plan(Arc::new(plan(spec)));
        self.balancer.handle(event, self.now);
        self.flush();
    }

    pub(crate) fn demand(&mut self, demand: Demand) {
        self.balancer
            .handle(BalancerEvent::Demand(demand), self.now);
        self.flush();
    }

    pub(crate) fn flush(&mut self) {
        self.flush_once();
        let is_due = |driver: &Self| {
            let timeout = driver.balancer.next_timeout();
            driver.balancer.flush_by().is_some() || timeout.is_some_and(|at| at <= driver.now)
        };
        while is_due(self) {
            self.flush_once();
        }
    }

    fn flush_once(&mut self) {
        self.balancer.flush(self.now);
        while let Some(command) = self.balancer.poll_command() {
            match command {
                Command::Connect {
                    id,
                    addresses,
                    is_pick_first,
                    ..
                } => self.connect(id, addresses, is_pick_first),
                Command::Publish { picker, .. } => {
                    self.picker = Some(picker);
                    self.published += 1;
                }
                Command::Release(id) => {
                    let gone = self.endpoints.remove(&id).expect("it was connected");
                    if !gone.is_list {
                        self.released.insert(backend(gone.addresses[0]));
                    }
                }
                _ => {}
            }
        }
    }

    /// A connection to an address that is no longer wanted is given up, which the balancer hears.
    fn connect(&mut self, id: EndpointId, addresses: Arc<[SocketAddr]>, is_list: bool) {
        let known = self.endpoints.get(&id);
        let run = match known.map(|known| known.run) {
            Some(Run::Ready(address)) if addresses.contains(&address) => Run::Ready(address),
            Some(Run::Ready(_)) => {
                let state = EndpointState::Connecting;
                self.balancer
                    .handle(BalancerEvent::Endpoint { id, state }, self.now);
                Run::Asked
            }
            _ => Run::Asked,
        };
        let connection = Connection {
            addresses,
            is_list,
            run,
            is_failing: known.is_some_and(|known| known.is_failing),
        };
        self.endpoints.insert(id, connection);
    }

    /// Connects one endpoint that the balancer asked for, or fails to. Returns false if there is none.
    pub(crate) fn connect_one(&mut self) -> bool {
        let asked = self.endpoints.iter_mut();
        let asked = asked.filter(|(_, connection)| connection.run == Run::Asked);
        let Some((&id, connection)) = asked.into_iter().next() else {
            return false;
        };
        let mut addresses = connection.addresses.iter().copied();
        let reached = addresses.find(|address| self.alive[backend(*address)]);
        connection.run = reached.map_or(Run::Failed, Run::Ready);
        connection.is_failing = reached.is_none();
        let state = match reached {
            Some(address) => EndpointState::Ready {
                transport: address,
                address,
            },
            None => EndpointState::TransientFailure("refused".into()),
        };
        self.report(id, state);
        true
    }

    /// Connects all that the balancer asks for.
    pub(crate) fn settle(&mut self) {
        while self.connect_one() {}
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.alive[number] = false;
        let lost = |run: &Run| matches!(run, Run::Ready(address) if backend(*address) == number);
        let all = self.endpoints.iter_mut();
        let lost = all.filter(|(_, connection)| lost(&connection.run));
        let ids: Vec<_> = lost
            .map(|(id, connection)| {
                connection.run = Run::Idle;
                *id
            })
            .collect();
        for id in ids {
            self.report(id, EndpointState::Idle);
        }
    }

    /// Lets time pass. Endpoints that failed may be tried again after it.
    pub(crate) fn advance(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.balancer.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.flush();
        }
        self.now = end;
        let failed = self.endpoints.iter_mut();
        let failed = failed.filter(|(_, connection)| connection.run == Run::Failed);
        let ids: Vec<_> = failed
            .map(|(id, connection)| {
                connection.run = Run::Idle;
                *id
            })
            .collect();
        for id in ids {
            self.report(id, EndpointState::Idle);
        }
    }

    fn report(&mut self, id: EndpointId, state: EndpointState<SocketAddr>) {
        self.balancer
            .handle(BalancerEvent::Endpoint { id, state }, self.now);
        self.flush();
    }
}

/// The backend at an address.
pub(crate) fn backend(address: SocketAddr) -> usize {
    usize::from(address.port() / 10)
}

/// The addresses of a backend.
pub(crate) fn addresses(number: usize) -> Vec<SocketAddr> {
    let port = number as u16 * 10;
    let all = [port, port + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    all[..=number % 2].to_vec()
}

fn plan(spec: &PlanSpec) -> Plan {
    let endpoint = |number: usize, Spot(_, health): Spot| {
        let mut endpoint = Endpoint::new(addresses(number)).unwrap();
        endpoint.health = health;
        endpoint
    };
    let listed = |keep: &dyn Fn(Spot) -> bool| {
        let spots = spec.backends.iter().enumerate();
        let spots = spots.filter_map(|(number, spot)| Some((number, (*spot)?)));
        let kept = spots.filter(|(_, spot)| keep(*spot));
        kept.map(|(number, spot)| endpoint(number, spot))
            .collect::<Vec<_>>()
    };
    let is_draining = |Spot(_, health): Spot| health == crowfly_lb::Health::Draining;
    let child = |priority| PriorityChild {
        name: format!("child{priority}").into(),
        ignore_reresolution: true,
        node: Node::Leaf(Leaf {
            policy: policy(spec.policy),
            endpoints: listed(&|spot| spot.0 == priority && !is_draining(spot)).into(),
        }),
    };
    Plan {
        cluster: CLUSTER.into(),
        note: None,
        root: Node::Cluster(Arc::new(ClusterPlan {
            name: CLUSTER.into(),
            eds_service_name: None,
            drops: Arc::from([]),
            max_concurrent_requests: 1024,
            load: None,
            outlier_detection: None,
            note: None,
            draining: listed(&is_draining).into(),
            override_host: OverrideHost {
                health: spec.allowed.iter().copied().collect::<HealthSet>(),
                idle_timeout: Duration::from_secs(spec.idle_timeout),
            },
            child: Node::Priority(Arc::new(Priority {
                children: (0..3).map(child).collect(),
                keep_removed: Duration::ZERO,
            })),
        })),
    }
}

fn policy(choice: Choice) -> Policy {
    match choice {
        Choice::LeastRequest => Policy::LeastRequest(ChoiceCount::default()),
        Choice::PickFirst => Policy::PickFirst { shuffle: false },
        Choice::RingHash => Policy::RingHash {
            size: RingSize::new(16, 64, RingSize::CAP),
            request_hash_header: None,
        },
        Choice::RoundRobin => Policy::RoundRobin,
    }
}
