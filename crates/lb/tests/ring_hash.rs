//! Tests of `ring_hash` (A42, A76): calls with equal hashes go to one endpoint. Its endpoints
//! connect only when a call wants them, so its states have rules of their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};

use crowfly_lb::{
    BalancerEvent, CallContext, Connectivity, Demand, Endpoint, EndpointState, HashHeader,
    Locality, LocalityId, Node, Pick, Plan, Policy, RingSize, hash_values,
};
use leaf::leaf;
use sim::{
    Port, Sim, address, endpoints_at,
    plans::{priority, tree_of, zone},
    ready_at,
};

fn ring_hash() -> Policy {
    Policy::RingHash {
        size: RingSize::default(),
        request_hash_header: None,
    }
}

/// A ring on which 3 and 4 endpoints have the same number of entries each, 3: then the entries of
/// one do not depend on how many others there are.
fn small_ring() -> Policy {
    Policy::RingHash {
        size: RingSize::new(9, 100, RingSize::CAP),
        request_hash_header: None,
    }
}

fn by_header() -> Policy {
    Policy::RingHash {
        size: RingSize::default(),
        request_hash_header: Some("session".into()),
    }
}

/// A hash for each of many calls.
fn hash(call: u64) -> u64 {
    hash_values([&call.to_le_bytes()[..]]).unwrap()
}

fn pick(sim: &Sim, hash: u64) -> Pick<Port> {
    let picker = sim.picker.as_ref().unwrap();
    picker.pick(&CallContext::new(hash).with_hash(hash))
}

fn port(pick: &Pick<Port>) -> Port {
    match pick {
        Pick::Ready(call) => *call.transport(),
        other => panic!("expected a ready endpoint, got {other:?}"),
    }
}

/// The port that each of 2000 hashes leads to, when all endpoints are ready.
fn hosts(sim: &Sim) -> Vec<Port> {
    let hashes = (0..2000).map(hash);
    hashes.map(|hash| port(&pick(sim, hash))).collect()
}

/// A sim with the plan in which every endpoint was asked for and is ready.
fn all_ready(endpoints: Vec<Endpoint>) -> Sim {
    all_ready_with(leaf(ring_hash(), endpoints))
}

fn all_ready_with(plan: Plan) -> Sim {
    let mut sim = Sim::new();
    sim.plan(plan);
    demand_all(&mut sim);
    sim.forget();
    sim
}

fn demand_all(sim: &mut Sim) {
    for view in sim.balancer.endpoints(sim::CLUSTER) {
        if view.state == Connectivity::Idle {
            sim.handle(BalancerEvent::Demand(view.id.into()));
            sim.flush();
            sim.ready(&[view.addresses[0].port()]);
        }
    }
}

fn at(ports: &[Port]) -> Vec<Endpoint> {
    endpoints_at(ports).to_vec()
}

/// The state of the leaf, from the first line of its tree.
fn state(sim: &Sim) -> String {
    let tree = sim.tree();
    let line = tree.lines().next().unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn demand(sim: &mut Sim, port: Port) {
    let views = sim.balancer.endpoints(sim::CLUSTER);
    let mut views = views.iter().filter(|view| view.addresses[0].port() == port);
    sim.handle(BalancerEvent::Demand(views.next().unwrap().id.into()));
    sim.flush();
}

/// S10-08: one hash leads to one endpoint, whatever its siblings do.
#[test]
fn a_hash_leads_to_one_endpoint() {
    let sim = all_ready(at(&[1, 2, 3, 4]));
    let first = hosts(&sim);
    assert_eq!(first, hosts(&sim));
    // Every endpoint has its part.
    for port in 1..=4 {
        let calls = first.iter().filter(|host| **host == port).count();
        assert!((350..650).contains(&calls), "{calls} calls to {port}");
    }
    // And every client agrees, however the list is ordered.
    assert_eq!(first, hosts(&all_ready(at(&[3, 1, 4, 2]))));
}

/// S10-08: an endpoint that leaves takes its share with it, and nobody else's moves.
#[test]
fn only_the_share_of_an_endpoint_that_left_moves() {
    let mut sim = all_ready_with(leaf(small_ring(), at(&[1, 2, 3, 4])));
    let before = hosts(&sim);
    assert!(before.contains(&3));
    sim.plan(leaf(small_ring(), at(&[1, 2, 4])));
    assert_eq!((&*sim.connects, &*sim.releases), (&[][..], &[3][..]));
    for (before, after) in before.into_iter().zip(hosts(&sim)) {
        assert!(after == before || before == 3, "{before} -> {after}");
    }
}

/// A76: an endpoint with a hash key keeps its place when its address changes.
#[test]
fn a_hash_key_outlives_an_address() {
    let keyed = |ports: [Port; 3]| {
        let keyed = ports.into_iter().zip(["db-0", "db-1", "db-2"]);
        let keyed = keyed.map(|(port, key)| {
            let mut endpoint = Endpoint::from(address(port));
            endpoint.hash_key = Some(key.into());
            endpoint
        });
        keyed.collect::<Vec<_>>()
    };
    let before = hosts(&all_ready(keyed([1, 2, 3])));
    let after = hosts(&all_ready(keyed([11, 12, 13])));
    let moved: Vec<_> = before.iter().map(|port| port + 10).collect();
    assert_eq!(after, moved);
}

/// Weights count, also those of an endpoint that is listed twice; the table says so exactly.
#[test]
fn shares_follow_the_weights() {
    let mut heavy = Endpoint::from(address(1));
    heavy.weight = NonZeroU64::new(2).unwrap();
    let sim = all_ready(vec![heavy, address(2).into(), address(1).into()]);
    let counts = hosts(&sim)
        .into_iter()
        .fold(BTreeMap::new(), |mut counts, port| {
            *counts.entry(port).or_insert(0_u32) += 1;
            counts
        });
    let shares = sim.picker.as_ref().unwrap().shares();
    let total: f64 = shares.iter().map(|share| share.probability).sum();
    assert!((total - 1.0).abs() < 1e-9);
    for share in shares {
        let port = sim.live[&share.endpoints[0]];
        let counted = f64::from(counts[&port]) / 2000.0;
        assert!((counted - share.probability).abs() < 0.05);
        let expected = if port == 1 { 0.75 } else { 0.25 };
        assert!((share.probability - expected).abs() < 0.05);
    }
}

/// A113: only the ratio of weights counts. Shares of 2^31 make the same ring as small weights.
#[test]
fn shares_make_the_same_ring_as_weights() {
    let weighted = |unit: u64| {
        let endpoints = [(1, 2), (2, 1), (3, 5)].map(|(port, weight)| {
            let mut endpoint = Endpoint::from(address(port));
            endpoint.weight = NonZeroU64::new(weight * unit).unwrap();
            endpoint
        });
        hosts(&all_ready(endpoints.to_vec()))
    };
    let small = weighted(1);
    assert_eq!(weighted(1 << 28), small);
    let heaviest = small.iter().filter(|port| **port == 3).count();
    let share = heaviest as f64 / small.len() as f64;
    assert!((share - 0.625).abs() < 0.05, "{share}");
}

/// Endpoints are not connected before a call wants them, and one call is enough to ask.
#[test]
fn an_endpoint_is_idle_until_a_call_wants_it() {
    let mut sim = Sim::new();
    sim.plan(leaf(ring_hash(), at(&[1, 2, 3])));
    assert!(sim.connects.is_empty());
    assert_eq!(state(&sim), "IDLE");
    let Pick::Wake(id) = pick(&sim, 7) else {
        panic!("the endpoint is idle");
    };
    assert!(matches!(pick(&sim, 7), Pick::Queue), "told once");
    sim.handle(BalancerEvent::Demand(id));
    sim.flush();
    assert_eq!(sim.connects.len(), 1);
    assert!(matches!(pick(&sim, 7), Pick::Queue), "it is connecting");
    let wanted = sim.connects[0];
    sim.ready(&[wanted]);
    assert_eq!(port(&pick(&sim, 7)), wanted);

    // Lost, it is idle again: calls wait for it, though nothing connects it unasked.
    sim.forget();
    sim.idle(wanted);
    assert!(sim.connects.is_empty());
    assert!(matches!(pick(&sim, 7), Pick::Wake(_)));
}

/// S10-09: an endpoint that cannot be reached is passed over on the way round the ring. Its calls
/// go where they would if it were not there.
#[test]
fn a_failing_endpoint_is_passed_over() {
    let mut sim = all_ready_with(leaf(small_ring(), at(&[1, 2, 3, 4])));
    let without = hosts(&all_ready_with(leaf(small_ring(), at(&[1, 2, 4]))));
    sim.failing(3, "refused");
    assert_eq!(hosts(&sim), without);
    assert_eq!(state(&sim), "READY");
}

/// S10-09: when none can be reached calls fail with the reason; a call that waits for ready gets
/// the next picker, and with it the endpoint that came back.
#[test]
fn calls_fail_when_all_endpoints_do() {
    let mut sim = all_ready(at(&[1, 2]));
    sim.failing(1, "refused");
    sim.failing(2, "timed out");
    let Pick::Fail(failure) = pick(&sim, 7) else {
        panic!("nothing can be reached");
    };
    assert!(
        failure.to_string().contains("127.0.0.1:2: timed out"),
        "{failure}"
    );
    sim.forget();
    sim.ready(&[2]);
    assert_eq!(sim.publishes, 1);
    assert_eq!(port(&pick(&sim, 7)), 2);
}

/// S10-10: the six rules of A42, each with the endpoints that it is about.
#[test]
fn the_state_follows_the_table() {
    type Report = (Port, EndpointState<Port>);
    let failing = |port| (port, EndpointState::TransientFailure("refused".into()));
    let connecting = |port| (port, EndpointState::Connecting);
    let ready = |port| (port, ready_at(port));
    let rows: [(&[Port], Vec<Report>, &str); 12] = [
        (&[1, 2, 3], vec![failing(1), failing(2), ready(3)], "READY"),
        (
            &[1, 2, 3],
            vec![failing(1), failing(2)],
            "TRANSIENT_FAILURE",
        ),
        (
            &[1, 2, 3],
            vec![failing(1), failing(2), connecting(3)],
            "TRANSIENT_FAILURE",
        ),
        (&[1, 2, 3], vec![connecting(1)], "CONNECTING"),
        (&[1, 2, 3], vec![failing(1)], "CONNECTING"),
        (&[1, 2], vec![failing(1)], "CONNECTING"),
        (&[1, 2], vec![failing(1), ready(2)], "READY"),
        (&[1, 2], vec![failing(1), failing(2)], "TRANSIENT_FAILURE"),
        (
            &[1, 2, 3, 4],
            vec![failing(1), failing(2), failing(3)],
            "TRANSIENT_FAILURE",
        ),
        (&[1, 2, 3], vec![], "IDLE"),
        (&[1], vec![failing(1)], "TRANSIENT_FAILURE"),
        (&[], vec![], "TRANSIENT_FAILURE"),
    ];
    for (ports, reports, expected) in rows {
        let mut sim = Sim::new();
        sim.plan(leaf(ring_hash(), at(ports)));
        for (port, report) in reports.clone() {
            if !sim.live.values().any(|live| *live == port) {
                demand(&mut sim, port);
            }
            sim.report(port, report);
        }
        assert_eq!(state(&sim), expected, "{reports:?}");
    }
}

/// A42: a ring that fails though an endpoint may still connect tells its last failure, beside those of
/// the other priorities (A56).
#[test]
fn a_failing_ring_that_still_connects_tells_why() {
    let ring = leaf(ring_hash(), at(&[1, 2, 3])).root;
    let mut sim = Sim::new();
    sim.plan(tree_of(priority(&[
        ("child0", ring),
        ("child1", zone(&[9])),
    ])));
    demand(&mut sim, 1);
    sim.failing(1, "refused");
    sim.failing(2, "timed out");
    assert_eq!(sim.connects, [1, 2, 3, 9], "3 is connecting");
    sim.failing(9, "reset");
    let text = sim.pick_failure();
    assert!(text.contains("127.0.0.1:2: timed out"), "{text}");
    assert!(text.contains("127.0.0.1:9: reset"), "{text}");
}

/// A failing ring connects one endpoint after the other without any call: as a priority that is not
/// in use it would get none.
#[test]
fn a_failing_ring_tries_its_endpoints_without_calls() {
    let mut sim = Sim::new();
    sim.plan(leaf(ring_hash(), at(&[1, 2, 3, 4])));
    demand(&mut sim, 2);
    assert_eq!(sim.connects, [2]);
    sim.failing(2, "refused");
    assert_eq!(sim.connects, [2, 1]);
    sim.failing(1, "refused");
    assert_eq!(sim.connects, [2, 1, 3]);
    // One at a time.
    sim.failing(2, "refused");
    assert_eq!(sim.connects, [2, 1, 3]);
    sim.ready(&[3]);
    assert_eq!(sim.connects, [2, 1, 3]);
    assert_eq!(state(&sim), "READY");
}

/// S10-03: a locality that failed and has idle endpoints again connects, although it counts as
/// failing: no call could ask for it.
#[test]
fn a_locality_that_failed_connects_when_it_can() {
    let zones = |second: &[Port]| {
        let zone = |zone, ports: &[Port]| Locality {
            id: LocalityId::new("us", zone, ""),
            weight: NonZeroU32::MIN,
            child: leaf(ring_hash(), at(ports)).root,
        };
        Plan {
            root: Node::Localities(Arc::from([zone("a", &[1]), zone("b", second)])),
            ..leaf(ring_hash(), at(&[]))
        }
    };
    let mut sim = Sim::new();
    sim.plan(zones(&[2]));
    assert_eq!(sim.connects, [1, 2], "who is not READY is never chosen");
    sim.ready(&[1, 2]);
    sim.plan(zones(&[]));
    assert_eq!(sim.count(20), BTreeMap::from([(1, 20)]));
    sim.forget();
    sim.plan(zones(&[2]));
    assert_eq!(sim.connects, [2]);
    sim.ready(&[2]);
    assert_eq!(sim.count(200).len(), 2);
}

/// Endpoints that a small ring has no room for are no way to serve a call, and not waited for.
#[test]
fn endpoints_without_a_place_do_not_count() {
    let policy = Policy::RingHash {
        size: RingSize::new(1, 2, RingSize::CAP),
        request_hash_header: None,
    };
    let mut sim = Sim::new();
    sim.plan(leaf(policy, at(&[1, 2, 3, 4])));
    let placed: Vec<Port> = sim
        .balancer
        .endpoints(sim::CLUSTER)
        .iter()
        .map(|e| e.addresses[0].port())
        .collect();
    assert_eq!(placed.len(), 2);
    for &port in &placed {
        if sim.view(port).state == Connectivity::Idle {
            demand(&mut sim, port);
        }
        sim.failing(port, "refused");
    }
    assert!(matches!(pick(&sim, 7), Pick::Fail(_)));
}

/// A call may wait for just the endpoint that has become READY: its picker does not wait for others.
#[test]
fn a_ready_endpoint_is_published_at_once() {
    let mut sim = Sim::new();
    sim.plan(leaf(ring_hash(), at(&[1, 2, 3, 4, 5, 6, 7, 8, 9])));
    for port in [1, 2] {
        demand(&mut sim, port);
        let id = sim.id(port);
        let state = ready_at(port);
        sim.handle(BalancerEvent::Endpoint { id, state });
        assert_eq!(sim.balancer.flush_by(), Some(sim.now()), "{port}");
        sim.flush();
    }
}

/// A look at a failure is no pick: it wakes nobody.
#[test]
fn a_look_at_a_failure_uses_up_no_wish() {
    let mut sim = Sim::new();
    sim.plan(leaf(ring_hash(), at(&[1])));
    assert!(sim.picker.as_ref().unwrap().failure().is_none());
    assert!(matches!(pick(&sim, 7), Pick::Wake(_)));
}

/// A channel that is to connect without a call connects what calls would go to.
#[test]
fn an_idle_ring_connects_on_request() {
    let mut sim = Sim::new();
    sim.plan(leaf(ring_hash(), at(&[1, 2])));
    assert!(sim.connects.is_empty());
    let now = sim.now();
    sim.balancer.exit_idle(&sim::CLUSTER.into(), now);
    sim.flush();
    assert_eq!(sim.connects.len(), 1);
    assert_eq!(state(&sim), "CONNECTING");
}

/// A state change shares the ring; the picker differs nevertheless.
#[test]
fn a_change_of_state_is_published_once() {
    let mut sim = all_ready(at(&[1, 2, 3]));
    sim.failing(3, "refused");
    sim.connecting(3);
    assert_eq!(
        sim.publishes, 1,
        "a failing endpoint that is dialled again is no news"
    );
}

/// The headers of a call.
#[derive(Debug)]
struct Headers(Option<&'static str>);

impl HashHeader for Headers {
    fn hash_header(&self, name: &str) -> Option<u64> {
        assert_eq!(name, "session");
        hash_values(self.0.map(str::as_bytes))
    }
}

fn pick_with(sim: &Sim, seed: u64, header: Option<&'static str>) -> Pick<Port> {
    let headers = Headers(header);
    let cx = CallContext::new(seed).with_hash(seed);
    let picker = sim.picker.as_ref().unwrap();
    picker.pick(&cx.with_headers(&headers))
}

/// A76, S10-08: with a header to hash, that decides, and not what the call brings.
#[test]
fn the_same_header_leads_to_the_same_endpoint() {
    let mut sim = Sim::new();
    sim.plan(leaf(by_header(), at(&[1, 2, 3, 4])));
    demand_all(&mut sim);
    let alice = port(&pick_with(&sim, 0, Some("alice")));
    for seed in 1..100 {
        assert_eq!(port(&pick_with(&sim, seed, Some("alice"))), alice);
    }
    let anywhere = (0..100).map(|seed| port(&pick_with(&sim, seed, None)));
    assert_eq!(anywhere.collect::<BTreeSet<_>>().len(), 4);
}

/// A76: a call without the header takes what is READY, and makes at most one endpoint connect, if
/// none is.
#[test]
fn a_call_without_a_hash_takes_what_is_ready() {
    let mut sim = Sim::new();
    sim.plan(leaf(by_header(), at(&[1, 2, 3, 4])));
    let Pick::Wake(Demand::Endpoint(id)) = pick_with(&sim, 1, None) else {
        panic!("all are idle");
    };
    sim.handle(BalancerEvent::Demand(id.into()));
    sim.flush();
    for seed in 0..20 {
        assert!(
            matches!(pick_with(&sim, seed, None), Pick::Queue),
            "one is connecting"
        );
    }
    let first = sim.live[&id];
    sim.ready(&[first]);
    let mut woken = BTreeSet::new();
    for seed in 0..200 {
        let Pick::Ready(call) = pick_with(&sim, seed, None) else {
            panic!("one is ready");
        };
        assert_eq!(*call.transport(), first);
        woken.extend(call.wakes());
    }
    assert_eq!(woken.len(), 3, "each of the others is asked for once");

    sim.handle(BalancerEvent::Demand((*woken.first().unwrap()).into()));
    sim.flush();
    for seed in 0..200 {
        let Pick::Ready(call) = pick_with(&sim, seed, None) else {
            panic!("one is ready");
        };
        assert_eq!(call.wakes(), None, "one is connecting");
    }
}

#[test]
fn a_pick_allocates_nothing() {
    let ports: Vec<_> = (1..=50).collect();
    let mut sim = all_ready(at(&ports));
    assert_eq!(leaf::allocations_of_picks(&mut sim), 0);
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            port(&pick(&sim, hash(seed)));
        }
    });
    assert_eq!(info.count_total, 0);

    let mut sim = Sim::new();
    sim.plan(leaf(by_header(), at(&ports)));
    demand_all(&mut sim);
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            port(&pick_with(&sim, seed, Some("alice")));
            port(&pick_with(&sim, seed, None));
        }
    });
    assert_eq!(info.count_total, 0);
}
