//! Tests that a pick and the end of its call allocate nothing, because both happen for every call
//! of the program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{
    hint::black_box,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crowfly_lb::{
    BalancerEvent, CallContext, CallOutcome, ChoiceCount, ClusterPlan, CustomPolicy, DropCause,
    Endpoint, EndpointState, HashHeader, Leaf, LoadPlan, LoadStore, Locality, LocalityId, Node,
    Pick, Policy, ReadySet, RingSize, Selection, Selector, hash_values,
};
use sim::{
    CLUSTER, Port, Sim, address, endpoints_at,
    plans::{aggregate, cluster, gate, priority, tree_of},
    ready_at,
};

/// In a whole tree: an aggregate of two leaf clusters, each with two priorities, whose endpoints are
/// in three localities or all alike; the second priority of the first cluster is in use.
#[test]
fn a_pick_and_the_end_of_its_call_allocate_nothing() {
    for policy in policies() {
        for spread in [by_locality, all_alike] {
            let lower = || priority(&[("child0", spread(&policy, 90))]);
            let none = all_alike(&policy, 0);
            let both = priority(&[("child0", none), ("child1", spread(&policy, 90))]);
            let sim = ready(aggregate(&[("x", both), ("y", lower())]));
            let sent = allocations_of(&sim, 1000, |pick| matches!(pick, Pick::Ready(_)));
            assert_eq!(sent, 0, "{policy:?}");
        }
    }
}

/// A pick of a session allocates nothing: not if it finds its backend, nor if that is gone, nor if it waits.
#[test]
fn a_pick_of_a_session_allocates_nothing() {
    for policy in policies() {
        let lower = all_alike(&policy, 1);
        let both = priority(&[("child0", by_locality(&policy, 90)), ("child1", lower)]);
        let mut sim = ready(cluster(CLUSTER, both));
        let addresses = [address(7)];
        let first = CallContext::new(1).with_session(&addresses, sim.now());
        let Pick::Wake(demand) = sim.picker.as_ref().unwrap().pick(&first) else {
            panic!("the first call of all sessions asks for them");
        };
        sim.handle(BalancerEvent::Demand(demand));
        sim.flush();
        let Pick::Ready(call) = sim
            .picker
            .as_ref()
            .unwrap()
            .pick(&CallContext::new(1).with_hash(1))
        else {
            panic!("every endpoint is ready");
        };
        let known = *call.transport();
        assert_eq!(
            allocations_of_session(&sim, &[known]),
            (0, 1000),
            "{policy:?}"
        );
        let (gone, _) = allocations_of_session(&sim, &[60_000]);
        assert_eq!(gone, 0, "{policy:?}");
        sim.idle(known);
        let (waiting, _) = allocations_of_session(&sim, &[known]);
        assert_eq!(waiting, 0, "{policy:?}");
    }
}

/// Counting the load of a cluster allocates nothing, neither for calls nor for drops.
#[test]
fn a_pick_whose_load_is_counted_allocates_nothing() {
    let store = Arc::new(LoadStore::new(|| {}));
    let counted = |drops: &[(&str, u32)]| {
        let Node::Cluster(plan) = gate("x", drops, 1024, by_locality(&Policy::RoundRobin, 90))
        else {
            panic!("a cluster");
        };
        let load = LoadPlan {
            store: store.clone(),
            metrics: Arc::default(),
        };
        ready(Node::Cluster(Arc::new(ClusterPlan {
            load: Some(load),
            ..(*plan).clone()
        })))
    };
    let sent = counted(&[]);
    let picks = allocations_of(&sent, 1000, |pick| matches!(pick, Pick::Ready(_)));
    assert_eq!(picks, 0);
    let all = counted(&[("lb", 1_000_000)]);
    let drops = allocations_of(&all, 1000, |pick| matches!(pick, Pick::Drop(_)));
    assert_eq!(drops, 0);
    let load = store.take().remove(0);
    let issued: u64 = load.localities.iter().map(|row| row.issued).sum();
    assert!(issued >= 1000 && load.drops[0].1 >= 1000, "{load:?}");
}

#[test]
fn a_pick_that_is_dropped_allocates_nothing() {
    let endpoints = || by_locality(&Policy::RoundRobin, 90);
    let all = [("throttle", 10), ("lb", 1_000_000)];
    let sim = ready(gate("x", &all, 1024, endpoints()));
    let by_category = |pick: &Pick<Port>| matches!(pick, Pick::Drop(dropped) if matches!(dropped.cause, DropCause::Category(_)));
    assert_eq!(allocations_of(&sim, 1000, by_category), 0);

    let mut sim = ready(gate("x", &[("lb", 0)], 1, endpoints()));
    let open = sim.call();
    let by_limit = |pick: &Pick<Port>| matches!(pick, Pick::Drop(dropped) if dropped.cause == DropCause::Limit { open: 1 });
    assert_eq!(allocations_of(&sim, 1000, by_limit), 0);
    drop(open);
    let sent = allocations_of(&sim, 1000, |pick| matches!(pick, Pick::Ready(_)));
    assert_eq!(sent, 0);
}

#[test]
fn a_pick_that_waits_or_fails_allocates_nothing() {
    for policy in policies() {
        let leaves = |count| aggregate(&[("x", all_alike(&policy, count))]);
        let mut sim = Sim::new();
        sim.plan(tree_of(leaves(90)));
        // Of all calls that want an endpoint that is IDLE, the first is told to say so.
        if let Policy::RingHash { .. } = policy {
            let woken = allocations_of(&sim, 1, |pick| matches!(pick, Pick::Wake(_)));
            assert_eq!(woken, 0, "{policy:?}");
            demand_all(&mut sim);
        }
        let waits = |pick: &Pick<Port>| matches!(pick, Pick::Queue);
        assert_eq!(allocations_of(&sim, 1000, waits), 0, "{policy:?}");

        sim.plan(tree_of(leaves(0)));
        let fails = |pick: &Pick<Port>| matches!(pick, Pick::Fail(_));
        assert_eq!(allocations_of(&sim, 1000, fails), 0, "{policy:?}");
    }
}

/// The connection of `pick_first` was lost; one endpoint of `ring_hash` is READY, and a call without
/// a hash goes there, and makes another one connect (A76).
#[test]
fn a_pick_that_wakes_allocates_nothing() {
    let mut sim = ready(cluster("x", all_alike(&PICK_FIRST, 3)));
    let only = sim.balancer.endpoints(CLUSTER)[0].id;
    sim.handle(BalancerEvent::Endpoint {
        id: only,
        state: EndpointState::Idle,
    });
    sim.flush();
    let woken = allocations_of(&sim, 1, |pick| matches!(pick, Pick::Wake(_)));
    assert_eq!(woken, 0);

    let mut sim = Sim::new();
    sim.plan(tree_of(cluster(
        "x",
        all_alike(&ring_hash(Some("user")), 2),
    )));
    let first = sim.balancer.endpoints(CLUSTER)[0].id;
    sim.handle(BalancerEvent::Demand(first.into()));
    sim.flush();
    sim.ready(&[1]);
    let picker = sim.picker.as_ref().unwrap();
    let mut woke = 0;
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            let Pick::Ready(call) = picker.pick(&CallContext::new(seed)) else {
                panic!("one endpoint is READY");
            };
            woke += u32::from(call.wakes().is_some());
        }
    });
    assert_eq!((info.count_total, woke), (0, 1));
}

/// The measure itself sees an allocation: otherwise the tests above could not fail.
#[test]
fn the_measure_sees_allocations() {
    let info = allocation_counter::measure(|| drop(black_box(Box::new(1))));
    assert_eq!(info.count_total, 1);
}

const PICK_FIRST: Policy = Policy::PickFirst { shuffle: true };

fn policies() -> [Policy; 6] {
    [
        Policy::Custom(Arc::new(LastReady::default())),
        Policy::LeastRequest(ChoiceCount::default()),
        PICK_FIRST,
        ring_hash(None),
        ring_hash(Some("user")),
        Policy::RoundRobin,
    ]
}

fn ring_hash(header: Option<&str>) -> Policy {
    Policy::RingHash {
        size: RingSize::default(),
        request_hash_header: header.map(Into::into),
    }
}

/// So many endpoints.
fn all_alike(policy: &Policy, count: Port) -> Node {
    let ports: Vec<_> = (1..=count).collect();
    Node::Leaf(Leaf {
        policy: policy.clone(),
        endpoints: endpoints_at(&ports),
    })
}

/// So many endpoints in three localities.
fn by_locality(policy: &Policy, count: Port) -> Node {
    let zones = [("a", 7, 0), ("b", 2, 1), ("c", 1, 2)];
    let localities = zones.map(|(zone, weight, rest)| {
        let ports: Vec<_> = (1..=count).filter(|port| port % 3 == rest).collect();
        Locality {
            id: LocalityId::new("us", zone, ""),
            weight: NonZeroU32::new(weight).unwrap(),
            child: Node::Leaf(Leaf {
                policy: policy.clone(),
                endpoints: endpoints_at(&ports),
            }),
        }
    });
    Node::Localities(Arc::new(localities))
}

/// A balancer of a tree in which every endpoint that is in use is READY.
fn ready(root: Node) -> Sim {
    let mut sim = Sim::new();
    sim.plan(tree_of(root));
    demand_all(&mut sim);
    for view in sim.balancer.endpoints(CLUSTER) {
        let state = ready_at(view.addresses[0].port());
        sim.handle(BalancerEvent::Endpoint { id: view.id, state });
    }
    sim.flush();
    sim
}

fn demand_all(sim: &mut Sim) {
    for view in sim.balancer.endpoints(CLUSTER) {
        sim.handle(BalancerEvent::Demand(view.id.into()));
    }
    sim.flush();
}

/// How often so many picks, all of which come to what is expected, and the ends of their calls
/// allocate.
fn allocations_of(sim: &Sim, picks: u64, expected: impl Fn(&Pick<Port>) -> bool) -> u64 {
    let picker = sim.picker.as_ref().unwrap();
    let mut as_expected = 0;
    let info = allocation_counter::measure(|| {
        for seed in 0..picks {
            let user = User(CallContext::new(seed).random());
            let cx = CallContext::new(seed).with_hash(user.0).with_headers(&user);
            let pick = picker.pick(&cx);
            as_expected += u64::from(expected(&pick));
            if let Pick::Ready(call) = pick {
                call.finish(CallOutcome::Status(0));
            }
        }
    });
    assert_eq!(as_expected, picks);
    info.count_total
}

/// Sends picks of a session that sticks to these ports. Returns the number of allocations, and of the picks that
/// went to the first of the ports.
fn allocations_of_session(sim: &Sim, ports: &[Port]) -> (u64, u64) {
    let picker = sim.picker.as_ref().unwrap();
    let addresses: Vec<_> = ports.iter().map(|port| address(*port)).collect();
    let mut stuck = 0;
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            let cx = CallContext::new(seed).with_hash(seed);
            if let Pick::Ready(call) = picker.pick(&cx.with_session(&addresses, sim.now())) {
                stuck += u64::from(*call.transport() == ports[0]);
                black_box(call.session_addresses().count());
            }
        }
    });
    (info.count_total, stuck)
}

/// A call with a header that can be hashed.
#[derive(Debug)]
struct User(u64);

impl HashHeader for User {
    fn hash_header(&self, name: &str) -> Option<u64> {
        assert_eq!(name, "user");
        hash_values([&self.0.to_be_bytes()[..]])
    }
}

/// Sends calls to the last endpoint that is READY, and counts those that end.
#[derive(Debug, Default)]
struct LastReady(AtomicU64);

impl CustomPolicy for LastReady {
    fn name(&self) -> &str {
        "last_ready"
    }

    fn build(&self, _endpoints: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(Self::default())
    }
}

impl Selector for LastReady {
    fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let last = ready.iter().last();
        last.map_or(Selection::Queue, Selection::Send)
    }

    fn finished(&self, _endpoint: usize, _outcome: CallOutcome) {
        self.0.fetch_add(1, Relaxed);
    }
}
