//! Listeners, clusters and endpoints in any order, with answers that come late. The outcome must be
//! the one of a server that tells everything at once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crowfly_names::LocalityId;
use crowfly_node::model::{Health, Place, Protocol, ServiceName};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_node::xds::{
    Chain, ChainProtocol, ClusterShare, EndpointsFrom, NodeCluster, NodeEndpoint, NodeEndpoints,
    NodeListener, Pods, ResourceJoiner, Share, TrafficPolicy,
};
use crowfly_source::{Event, Status};
use golden::table;
use proptest::collection::vec;
use proptest::prelude::*;

/// A server: the resources that it has.
#[derive(Clone, Debug, Default)]
struct World {
    listeners: BTreeMap<Arc<str>, NodeListener>,
    clusters: BTreeMap<Arc<str>, Arc<NodeCluster>>,
    endpoints: BTreeMap<Arc<str>, Arc<NodeEndpoints>>,
}

/// An agent: a joiner, and the table that its events lead to.
struct Agent {
    joiner: ResourceJoiner,
    services: Services,
    asked: BTreeSet<Arc<str>>,
    /// Endpoints whose state the agent does not know.
    unanswered: BTreeSet<Arc<str>>,
    events: usize,
    problems: BTreeSet<String>,
}

impl Agent {
    fn new() -> Self {
        Self {
            joiner: ResourceJoiner::default(),
            services: Services::new(vec!["xds".into()], Place::default()),
            asked: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            events: 0,
            problems: BTreeSet::new(),
        }
    }

    /// Works on what was told, and returns what the joiner said.
    fn poll(&mut self) -> Vec<ServiceEvent> {
        let joined = self.joiner.poll();
        for name in joined.watch {
            assert!(self.asked.insert(Arc::clone(&name)), "asked twice: {name}");
            self.unanswered.insert(name);
        }
        for name in joined.unwatch {
            assert!(self.asked.remove(&name), "not asked: {name}");
            self.unanswered.remove(&name);
        }
        self.problems.extend(joined.problems);
        self.events += joined.events.len();
        self.services.handle(0, joined.events.clone());
        joined.events
    }

    fn answer(&mut self, name: &Arc<str>, world: &World) {
        if self.asked.contains(name) {
            self.unanswered.remove(name);
            let endpoints = world.endpoints.get(name).cloned();
            let endpoints = endpoints.ok_or_else(|| "the server has none".into());
            self.joiner.endpoints(name, endpoints);
        }
    }

    /// Answers until nothing more is asked for.
    fn settle(&mut self, world: &World) {
        self.poll();
        while let Some(name) = self.unanswered.first().cloned() {
            self.answer(&name, world);
            self.poll();
        }
    }

    /// An agent that is told everything at once.
    fn of(world: &World) -> Self {
        let mut agent = Self::new();
        for (name, cluster) in &world.clusters {
            agent.joiner.cluster(name, Some(Arc::clone(cluster)));
        }
        for (name, listener) in &world.listeners {
            let listener = Arc::new(listener.clone());
            agent.joiner.listener(name, Some(listener));
        }
        agent.joiner.clusters_listed();
        agent.joiner.listeners_listed();
        agent.settle(world);
        agent
    }

    fn table(&self) -> String {
        table(&self.services)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Listener(Arc<str>, Option<NodeListener>),
    Cluster(Arc<str>, Option<Arc<NodeCluster>>),
    Endpoints(Arc<str>, Option<Arc<NodeEndpoints>>),
    /// Answers the question of this number, if there are so many.
    Answer(usize),
    Poll,
    ListenersListed,
    ClustersListed,
    Cut,
    Reached,
}

impl Step {
    fn run(self, world: &mut World, agent: &mut Agent) {
        match self {
            Self::Listener(name, listener) => {
                agent.joiner.listener(&name, listener.clone().map(Arc::new));
                match listener {
                    Some(listener) => world.listeners.insert(name, listener),
                    None => world.listeners.remove(&name),
                };
            }
            Self::Cluster(name, cluster) => {
                agent.joiner.cluster(&name, cluster.clone());
                match cluster {
                    Some(cluster) => world.clusters.insert(name, cluster),
                    None => world.clusters.remove(&name),
                };
            }
            Self::Endpoints(name, endpoints) => {
                match endpoints {
                    Some(endpoints) => world.endpoints.insert(Arc::clone(&name), endpoints),
                    None => world.endpoints.remove(&name),
                };
                // A server sends at once what it was asked for before.
                if !agent.unanswered.contains(&name) {
                    agent.answer(&name, world);
                }
            }
            Self::Answer(number) => {
                let name = agent.unanswered.iter().nth(number).cloned();
                if let Some(name) = name {
                    agent.answer(&name, world);
                }
            }
            Self::Poll => {
                agent.poll();
            }
            Self::ListenersListed => agent.joiner.listeners_listed(),
            Self::ClustersListed => agent.joiner.clusters_listed(),
            Self::Cut => {
                let events = agent.joiner.reach(Some("connection reset".into()));
                agent.services.handle(0, events);
            }
            Self::Reached => {
                let events = agent.joiner.reach(None);
                agent.services.handle(0, events);
            }
        }
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn name() -> impl Strategy<Value = Arc<str>> {
    (0..NAMES.len()).prop_map(|nth| NAMES[nth].into())
}

fn chain() -> impl Strategy<Value = Chain> {
    let address = (1_u8..4).prop_map(|last| IpAddr::V4(Ipv4Addr::new(10, 96, 0, last)));
    let share = (name(), 1_u32..4).prop_map(|(cluster, weight)| ClusterShare { cluster, weight });
    let clusters = vec(share, 1..3).prop_map(|mut clusters| {
        clusters.sort();
        clusters.dedup_by(|a, b| a.cluster == b.cluster);
        clusters
    });
    let is_udp = proptest::bool::weighted(0.2);
    (
        vec(address, 1..3),
        80_u16..83,
        clusters,
        is_udp,
        any::<bool>(),
    )
        .prop_map(|(mut addresses, port, clusters, is_udp, affinity)| {
            addresses.sort();
            addresses.dedup();
            Chain {
                addresses,
                port,
                protocol: if is_udp {
                    ChainProtocol::Udp
                } else {
                    ChainProtocol::OfCluster
                },
                clusters,
                affinity,
                affinity_timeout: None,
            }
        })
}

fn listener() -> impl Strategy<Value = NodeListener> {
    vec(chain(), 0..4).prop_map(|chains| NodeListener {
        chains,
        unsupported: Box::default(),
    })
}

fn endpoints() -> impl Strategy<Value = Arc<NodeEndpoints>> {
    let endpoint =
        (1_u8..6, 1_u64..4, 1_u64..4).prop_map(|(last, numerator, denominator)| NodeEndpoint {
            addresses: vec![SocketAddr::from(([10, 244, 0, last], 8080))],
            health: Health::Healthy,
            node: None,
            locality: LocalityId::default(),
            priority: 0,
            share: Share {
                numerator,
                denominator,
            },
        });
    vec(endpoint, 0..4).prop_map(|endpoints| Arc::new(NodeEndpoints::new(&endpoints)))
}

fn cluster() -> impl Strategy<Value = Arc<NodeCluster>> {
    let from = prop_oneof![
        3 => name().prop_map(EndpointsFrom::Eds),
        1 => endpoints().prop_map(EndpointsFrom::Inline),
    ];
    let protocol = prop_oneof![
        Just(None),
        Just(Some(Protocol::Tcp)),
        Just(Some(Protocol::Udp)),
    ];
    let port_name = (0_usize..2).prop_map(|nth| ["", "http"][nth]);
    (name(), from, protocol, port_name).prop_map(|(service, endpoints, protocol, port_name)| {
        Arc::new(NodeCluster {
            service: ServiceName::new("default", &service),
            protocol,
            port_name: port_name.into(),
            policy: TrafficPolicy::default(),
            endpoints,
            reports_load: false,
            unsupported: Box::default(),
        })
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (name(), proptest::option::weighted(0.8, listener()))
            .prop_map(|(name, listener)| Step::Listener(name, listener)),
        4 => (name(), proptest::option::weighted(0.8, cluster()))
            .prop_map(|(name, cluster)| Step::Cluster(name, cluster)),
        4 => (name(), proptest::option::weighted(0.8, endpoints()))
            .prop_map(|(name, endpoints)| Step::Endpoints(name, endpoints)),
        4 => (0_usize..3).prop_map(Step::Answer),
        6 => Just(Step::Poll),
        1 => Just(Step::ListenersListed),
        1 => Just(Step::ClustersListed),
        1 => Just(Step::Cut),
        1 => Just(Step::Reached),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    /// N-62, N-66: after any order and any delays, the end is that of an agent that is told
    /// everything at once. Until all is known, nothing is told.
    #[test]
    fn any_order_ends_as_if_all_came_at_once(steps in vec(step(), 0..60)) {
        let (mut world, mut agent) = (World::default(), Agent::new());
        for step in steps {
            step.run(&mut world, &mut agent);
            let status = agent.services.sources().next().unwrap().1.clone();
            prop_assert!(agent.services.routes().is_empty() || agent.services.has_synced());
            prop_assert_ne!(status, Status::Listing, "a listing is told whole");
        }
        Step::ListenersListed.run(&mut world, &mut agent);
        Step::ClustersListed.run(&mut world, &mut agent);
        agent.settle(&world);
        let fresh = Agent::of(&world);
        prop_assert_eq!(agent.table(), fresh.table());
        prop_assert_eq!(&agent.asked, &fresh.asked);
        prop_assert!(fresh.problems.is_subset(&agent.problems));
        // Every frontend of a listener is there.
        let frontends = world.listeners.values().flat_map(|listener| &listener.chains);
        for chain in frontends {
            for address in &chain.addresses {
                let mut routes = agent.services.routes().keys();
                prop_assert!(routes.any(|it| (it.address, it.port) == (*address, chain.port)));
            }
        }
        // Nothing is left when the server has nothing any more.
        for name in world.listeners.clone().into_keys() {
            Step::Listener(name, None).run(&mut world, &mut agent);
        }
        agent.settle(&world);
        prop_assert_eq!(agent.table(), "");
        prop_assert!(agent.asked.is_empty());
    }
}

fn on(cluster: &str) -> NodeListener {
    let share = ClusterShare {
        cluster: cluster.into(),
        weight: 1,
    };
    NodeListener {
        chains: vec![Chain {
            addresses: vec![[10, 96, 0, 1].into()],
            port: 80,
            protocol: ChainProtocol::OfCluster,
            clusters: vec![share],
            affinity: false,
            affinity_timeout: None,
        }],
        unsupported: Box::default(),
    }
}

fn of(service: &str, eds: &str) -> Arc<NodeCluster> {
    Arc::new(NodeCluster {
        service: ServiceName::new("default", service),
        protocol: None,
        port_name: "".into(),
        policy: TrafficPolicy::default(),
        endpoints: EndpointsFrom::Eds(eds.into()),
        reports_load: false,
        unsupported: Box::default(),
    })
}

fn at(last: u8) -> Arc<NodeEndpoints> {
    all_at([SocketAddr::from(([10, 244, 0, last], 80))])
}

fn all_at(addresses: impl IntoIterator<Item = SocketAddr>) -> Arc<NodeEndpoints> {
    let endpoints = addresses.into_iter().map(|address| NodeEndpoint {
        addresses: vec![address],
        health: Health::Healthy,
        node: None,
        locality: LocalityId::default(),
        priority: 0,
        share: Share {
            numerator: 1,
            denominator: 1,
        },
    });
    Arc::new(NodeEndpoints::new(&endpoints.collect::<Vec<_>>()))
}

fn served() -> (World, Agent) {
    let mut world = World::default();
    world.listeners.insert("web".into(), on("one"));
    world.clusters.insert("one".into(), of("web", "one"));
    world.endpoints.insert("one".into(), at(1));
    let agent = Agent::of(&world);
    (world, agent)
}

const ONE: &str = "10.96.0.1:80/TCP default/web\n  -> 10.244.0.1:80 weight 1\n";
const TWO: &str = "10.96.0.1:80/TCP default/web\n  -> 10.244.0.2:80 weight 1\n";

/// N-51: the ranges of this node's pods may be told at any time. Endpoints inside are on this node from then on.
#[test]
fn pods_of_this_node_are_told_late() {
    let (_, mut agent) = served();
    let pods = |range: &str| Pods {
        node: Some("here".into()),
        cidrs: vec![range.parse().unwrap()],
    };
    for (range, expected) in [
        ("10.244.0.0/24", Some("here")),
        ("10.244.1.0/24", None),
        ("10.244.0.1/32", Some("here")),
    ] {
        agent.joiner.pods(pods(range));
        let events = agent.poll();
        let [Event::Upsert(_, service)] = events.as_slice() else {
            panic!("{range}: {events:?}");
        };
        assert_eq!(service.backends[0].node.as_deref(), expected, "{range}");
        agent.joiner.pods(pods(range));
        assert_eq!(agent.poll(), [], "nothing is new");
    }
}

/// N-62: a listener that moves to a cluster whose endpoints are on their way goes on with the old ones.
#[test]
fn a_frontend_waits_for_the_endpoints_of_its_next_cluster() {
    let (mut world, mut agent) = served();
    assert_eq!(agent.table(), ONE);
    Step::Cluster("two".into(), Some(of("web", "two"))).run(&mut world, &mut agent);
    Step::Listener("web".into(), Some(on("two"))).run(&mut world, &mut agent);
    world.endpoints.insert("two".into(), at(2));
    assert_eq!(agent.poll(), []);
    assert_eq!(agent.table(), ONE, "they are asked for, and did not arrive");
    agent.settle(&world);
    assert_eq!(agent.table(), TWO);
}

/// N-62: a source that was cut off lists again, and nothing changes by that.
#[test]
fn a_failure_keeps_the_services_and_a_listing_ends_it() {
    let (_, mut agent) = served();
    let cut = agent.joiner.reach(Some("connection reset".into()));
    assert_eq!(cut, [Event::Failed("connection reset".into())]);
    assert_eq!(agent.services.handle(0, cut), []);
    assert_eq!(agent.joiner.reach(Some("connection reset".into())), []);
    let again = agent.joiner.reach(None);
    assert_eq!(
        (again.first(), again.last()),
        (Some(&Event::Init), Some(&Event::InitDone))
    );
    assert_eq!(agent.services.handle(0, again), [], "no frontend changes");
    assert_eq!(*agent.services.sources().next().unwrap().1, Status::Synced);
    assert_eq!(agent.table(), ONE);
}

/// CFP-30235: a change costs what it changes, also if one listener has all frontends.
#[test]
fn one_change_costs_one_event() {
    let mut world = World::default();
    let mut all = on("c0");
    all.chains.clear();
    for n in 0..1000_u16 {
        let name: Arc<str> = format!("c{n}").into();
        let mut chain = on(&name).chains.remove(0);
        let [high, low] = n.to_be_bytes();
        chain.addresses = vec![[10, 96, high, low].into()];
        all.chains.push(chain);
        world.clusters.insert(Arc::clone(&name), of(&name, &name));
        world.endpoints.insert(name, at(1));
    }
    world.listeners.insert("all".into(), all.clone());
    let mut agent = Agent::of(&world);
    assert_eq!(agent.services.routes().len(), 1000);
    agent.events = 0;

    Step::Endpoints("c7".into(), Some(at(2))).run(&mut world, &mut agent);
    assert_eq!(agent.poll().len(), 1, "endpoints of one service");
    Step::Cluster("c8".into(), Some(of("renamed", "c8"))).run(&mut world, &mut agent);
    assert_eq!(agent.poll().len(), 2, "one name goes, another one comes");
    all.chains[9].port = 81;
    Step::Listener("all".into(), Some(all)).run(&mut world, &mut agent);
    assert_eq!(
        agent.poll().len(),
        1,
        "one address of a thousand in the listener"
    );
    assert_eq!(agent.table(), Agent::of(&world).table());
}

/// N-78: clusters of their own lead 2,000 ports to 2,000 endpoints. The service is as it was, and others are told.
#[test]
fn a_service_with_too_many_endpoints_is_as_it_was() {
    let (mut world, mut agent) = served();
    let clusters: Vec<Arc<str>> = (0..2000).map(|nth| format!("c{nth}").into()).collect();
    let mut listener = on("one");
    let chain = listener.chains[0].clone();
    for (port, cluster) in (1000..).zip(&clusters) {
        let share = ClusterShare {
            cluster: Arc::clone(cluster),
            weight: 1,
        };
        listener.chains.push(Chain {
            port,
            clusters: vec![share],
            ..chain.clone()
        });
        Step::Cluster(Arc::clone(cluster), Some(of("web", "all"))).run(&mut world, &mut agent);
    }
    let mut other = on("other");
    other.chains[0].addresses = vec![[10, 96, 0, 2].into()];
    Step::Cluster("other".into(), Some(of("other", "other"))).run(&mut world, &mut agent);
    Step::Listener("other".into(), Some(other)).run(&mut world, &mut agent);
    Step::Listener("web".into(), Some(listener)).run(&mut world, &mut agent);
    world.endpoints.insert("other".into(), at(2));
    let addresses = (0..2000_u16).map(|nth| {
        let [high, low] = nth.to_be_bytes();
        SocketAddr::from(([10, 244, high, low], 80))
    });
    world.endpoints.insert("all".into(), all_at(addresses));
    agent.settle(&world);
    let other = TWO.replace("10.96.0.1", "10.96.0.2");
    let other = other.replace("default/web", "default/other");
    assert_eq!(agent.table(), format!("{ONE}{other}"));
    let said = "service default/web: its ports have too many endpoints, and it is as it was";
    assert_eq!(agent.problems, BTreeSet::from([said.to_owned()]));

    // The same ports with one cluster for all of them have no copies of its endpoints.
    let mut listener = on("c0");
    let chain = listener.chains[0].clone();
    listener.chains = (1..30)
        .map(|port| Chain {
            port,
            ..chain.clone()
        })
        .collect();
    Step::Listener("web".into(), Some(listener)).run(&mut world, &mut agent);
    agent.settle(&world);
    assert_eq!(agent.services.routes().len(), 30);
}
