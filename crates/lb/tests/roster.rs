//! Tests that an endpoint keeps its id, connection and counters wherever in its leaf cluster it is
//! (A75). A change of priorities or localities must not cost connections.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::sync::Arc;

use crowfly_lb::{
    BalancerEvent, CallOutcome, ChoiceCount, Connectivity, Endpoint, EndpointState, Health, Leaf,
    LocalityId, Node, Policy, RosterView, timing::RETENTION,
};
use sim::{
    CLUSTER, Port, Sim, address, endpoint, endpoints_at,
    plans::{cluster, localities, priorities, priority, ring_hash, tree_of, zone},
    ready_at,
};

/// gRFC A75: an endpoint that moves to a lower priority, which is in use or comes into use by the same
/// update, keeps its id, its connection and its counters.
#[test]
fn an_endpoint_that_moves_to_another_priority_keeps_its_connection_and_counters() {
    // The lower priority comes into use because the higher one is left without endpoints.
    let mut sim = Sim::ready_with(in_cluster(priorities(&[&[1], &[9]])));
    let (id, _) = (sim.id(1), sim.count(3));
    sim.plan(in_cluster(priorities(&[&[], &[1, 9]])));
    assert_eq!(sim.id(1), id);
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[9][..], &[][..]));
    assert_eq!(sim.count(4), [(1, 4)].into());
    assert_eq!(sim.view(1).picks, 7);

    // Both priorities are in use.
    let mut sim = Sim::ready_with(in_cluster(priorities(&[&[1], &[9]])));
    sim.failing(1, "connection reset");
    sim.ready(&[9, 1]);
    sim.forget();
    let ids = (sim.id(1), sim.id(9));
    sim.plan(in_cluster(priorities(&[&[9], &[1]])));
    assert_eq!((sim.id(1), sim.id(9)), ids);
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(sim.pick_port(), 9);
}

/// gRFC A75: whatever the policies of its old and its new place, an endpoint keeps its connection. Only
/// `pick_first` has a connection of its own.
#[test]
fn an_endpoint_keeps_its_connection_under_every_policy() {
    let policies = [
        Policy::RoundRobin,
        Policy::LeastRequest(ChoiceCount::default()),
        Policy::RingHash {
            size: crowfly_lb::RingSize::default(),
            request_hash_header: None,
        },
    ];
    let leaf = |policy: &Policy, ports: &[Port]| {
        Node::Leaf(Leaf {
            policy: policy.clone(),
            endpoints: endpoints_at(ports),
        })
    };
    for before in &policies {
        for after in &policies {
            let mut sim = Sim::new();
            sim.plan(in_cluster(priority(&[("child0", leaf(before, &[1]))])));
            sim.balancer.exit_idle(&CLUSTER.into(), sim.now);
            sim.flush();
            sim.ready(&[1]);
            sim.forget();
            let id = sim.id(1);
            sim.plan(in_cluster(priority(&[("child1", leaf(after, &[1]))])));
            assert_eq!(sim.id(1), id, "{before:?} {after:?}");
            assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
            assert_eq!(sim.pick_port(), 1);
            assert_eq!(sim.balancer.held(), (1, 1));
        }
    }
}

/// gRFC A62: `pick_first` has one connection for all endpoints of its leaf. Those that the endpoints had of their own
/// are released once it is in use, and are made again when another policy follows.
#[test]
fn connections_of_endpoints_go_when_only_pick_first_holds_them() {
    let leaf = |policy, ports: &[Port]| {
        Node::Leaf(Leaf {
            policy,
            endpoints: endpoints_at(ports),
        })
    };
    let all = |ports: &[Port]| leaf(Policy::PickFirst { shuffle: false }, ports);
    let each = |ports: &[Port]| leaf(Policy::RoundRobin, ports);
    let children: [fn(Node) -> Node; 2] = [
        |leaf| priority(&[("child0", leaf)]),
        // It is another leaf, and the first one goes before it is made.
        |leaf| match &leaf {
            Node::Leaf(inner) if inner.policy == Policy::RoundRobin => {
                priority(&[("child0", leaf)])
            }
            _ => priority(&[("child1", leaf)]),
        },
    ];
    for root in [tree_of, in_cluster] {
        for child in children {
            let mut sim = Sim::new();
            sim.plan(root(child(each(&[1, 2, 3]))));
            sim.ready(&[1, 2]);
            sim.failing(3, "refused");
            sim.plan(root(child(all(&[1, 2, 3]))));
            sim.ready_newest(1);
            sim.releases.sort_unstable();
            assert_eq!(sim.releases, [1, 2, 3]);
            assert_eq!(sim.live.len(), 1, "the list");
            assert_eq!(sim.pick_port(), 1);

            sim.forget();
            sim.plan(root(child(each(&[1, 2, 3]))));
            assert_eq!(sim.connects, [1, 2, 3]);
            for (id, port) in sim.live.clone() {
                let state = ready_at(port);
                sim.handle(BalancerEvent::Endpoint { id, state });
            }
            sim.flush();
            assert_eq!(sim.releases, [1], "the list");
            assert_eq!(sim.count(3), [(1, 1), (2, 1), (3, 1)].into());
        }
    }
}

/// gRFC A75: an endpoint that moves to a priority that is not needed is released, because nothing uses
/// its connection. The cluster still knows it: it has the same id and counters when it is needed.
#[test]
fn an_endpoint_in_a_priority_that_is_not_needed_is_known_and_not_connected() {
    let mut sim = Sim::ready_with(in_cluster(priorities(&[&[1, 2]])));
    let (id, _) = (sim.id(1), sim.count(10));
    sim.plan(in_cluster(priorities(&[&[2], &[1]])));
    assert_eq!(sim.releases, [1]);
    let known = known(&sim, 1);
    assert_eq!((known.id, known.picks), (id, 5));
    assert_eq!(
        (known.state, known.localities),
        (Connectivity::Idle, vec![])
    );
    // A report that crossed the release changes nothing.
    let state = ready_at(1);
    sim.handle(BalancerEvent::Endpoint { id, state });
    sim.flush();
    assert_eq!(self::known(&sim, 1).state, Connectivity::Idle);

    sim.failing(2, "connection reset");
    assert_eq!(sim.connects, [1]);
    assert_eq!(sim.id(1), id);
    sim.ready(&[1]);
    assert_eq!(sim.count(1), [(1, 1)].into());
    assert_eq!(self::known(&sim, 1).picks, 6);
}

/// gRFC A50, A75: ended calls are counted to their endpoint by outcome, over its connections and places. A
/// call of which nothing was sent counts as neither.
#[test]
fn ended_calls_are_counted_to_their_endpoint_by_outcome() {
    let mut sim = Sim::ready_with(in_cluster(priorities(&[&[1], &[9]])));
    let outlasts_the_connection = sim.call();
    sim.call().finish(CallOutcome::OK);
    sim.call().finish(CallOutcome::Status(14));
    sim.call().finish(CallOutcome::NeverSent);
    sim.idle(1);
    sim.ready(&[1]);
    sim.call().finish(CallOutcome::DeadlineExceeded);
    sim.plan(in_cluster(priorities(&[&[], &[1, 9]])));
    sim.call().finish(CallOutcome::OK);
    outlasts_the_connection.finish(CallOutcome::OK);

    let known = known(&sim, 1);
    assert_eq!((known.succeeded, known.failed), (3, 2));
    assert_eq!((known.picks, known.in_flight), (6, 0));
}

/// An endpoint that the plan of its cluster does not have any more is forgotten; at the same address
/// there is another one later.
#[test]
fn an_endpoint_that_left_its_cluster_is_forgotten() {
    let mut sim = Sim::ready_with(in_cluster(priorities(&[&[1, 2]])));
    let id = sim.id(1);
    sim.plan(in_cluster(priorities(&[&[2], &[1]])));
    sim.plan(in_cluster(priorities(&[&[2], &[3]])));
    assert_eq!(ports(&sim), [2]);
    sim.plan(in_cluster(priorities(&[&[2, 1]])));
    assert_ne!(sim.id(1), id);
}

/// gRFC A75: the calls of an endpoint that moved name its new locality. Those that began before keep
/// the old one, and all are counted to the endpoint.
#[test]
fn calls_name_the_new_locality() {
    let mut sim = Sim::ready_with(in_cluster(localities(&[("a", 1, &[1])])));
    let before = sim.call();
    sim.plan(in_cluster(localities(&[("b", 1, &[1])])));
    let after = sim.call();
    assert_eq!(before.locality(), &us("a"));
    assert_eq!(after.locality(), &us("b"));
    assert_eq!(before.endpoint(), after.endpoint());
    let view = sim.view(1);
    assert_eq!((view.picks, view.in_flight), (2, 2));
    drop(before);
    assert_eq!(sim.view(1).in_flight, 1);

    // It comes back on the same connection, and loses the other place.
    sim.plan(in_cluster(localities(&[("a", 1, &[1])])));
    assert_eq!(sim.call().locality(), &us("a"));
    sim.advance(RETENTION);
    assert_eq!(known(&sim, 1).localities, [us("a")]);
    drop(after);
    assert_eq!((sim.view(1).picks, sim.view(1).in_flight), (3, 0));
}

/// gRFC A75: a policy that sees the endpoints of all localities learns where they are now, too.
#[test]
fn calls_name_the_new_locality_in_a_leaf_of_all_localities() {
    let at = |zone| {
        in_cluster(Node::round_robin(vec![
            endpoint_in(zone, &[1]),
            endpoint_in(zone, &[2]),
        ]))
    };
    let mut sim = Sim::ready_with(at("a"));
    let ids = (sim.id(1), sim.id(2));
    assert_eq!(sim.call().locality(), &us("a"));
    sim.plan(at("b"));
    assert_eq!(sim.call().locality(), &us("b"));
    assert_eq!((sim.id(1), sim.id(2)), ids);
    assert_eq!(sim.connects, []);
    assert_eq!(known(&sim, 1).localities, [us("b")]);
}

/// Two localities may list one address set: it is one endpoint with one connection, each call names the
/// locality that was chosen, and what happens to the endpoint happens in both.
#[test]
fn an_endpoint_may_be_in_two_localities() {
    let both = || in_cluster(localities(&[("a", 1, &[1]), ("b", 1, &[1])]));
    let mut sim = Sim::new();
    sim.plan(both());
    assert_eq!(sim.connects, [1]);
    sim.ready(&[1]);
    let calls: Vec<_> = (0..100).map(|_| sim.call()).collect();
    for zone in ["a", "b"] {
        let there = calls.iter().filter(|call| call.locality() == &us(zone));
        assert!((30..=70).contains(&there.count()), "calls in {zone}");
    }
    assert_eq!(known(&sim, 1).localities, [us("a"), us("b")]);
    assert_eq!(known(&sim, 1).in_flight, 100);
    assert_eq!(sim.balancer.endpoints(CLUSTER).len(), 1, "it is shown once");

    sim.failing(1, "connection reset");
    sim.pick_failure();
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
    sim.plan(in_cluster(localities(&[("b", 1, &[1])])));
    sim.advance(RETENTION);
    assert_eq!(known(&sim, 1).localities, [us("b")]);
    assert_eq!(sim.releases, []);
}

/// An endpoint in two places is reported to both leaves: one of them may wait for more reports, the
/// other may not.
#[test]
fn a_report_waits_only_if_it_can_in_every_place() {
    let many: Vec<Port> = (1..=100).collect();
    let mut sim = Sim::new();
    sim.plan(in_cluster(localities(&[("a", 1, &many), ("b", 1, &[7])])));
    sim.ready(&[1]);
    let report = |sim: &mut Sim, port| {
        let (id, state) = (sim.id(port), ready_at(port));
        sim.handle(BalancerEvent::Endpoint { id, state });
        sim.balancer.flush_by()
    };
    let now = sim.now;
    assert!(report(&mut sim, 2) > Some(now), "one more of many");
    assert_eq!(report(&mut sim, 7), Some(now), "the first of locality b");
}

/// A leaf that connects an endpoint changes it for the others that hold it: a `ring_hash` leaf that
/// waits for calls is not IDLE any more.
#[test]
fn an_endpoint_that_one_leaf_connects_is_connecting_in_all() {
    let plan = |first: &[Port]| {
        let lower = ("child1", ring_hash(&[1]));
        in_cluster(priority(&[("child0", zone(first)), lower]))
    };
    let mut sim = Sim::new();
    sim.plan(plan(&[5]));
    sim.failing(5, "connection refused");
    assert_eq!(sim.balancer.state(CLUSTER), Some(Connectivity::Idle));
    sim.forget();
    // The higher priority gets the endpoint that the lower one waits with.
    sim.plan(plan(&[1]));
    assert_eq!(sim.connects, [1]);
    assert_eq!(sim.balancer.state(CLUSTER), Some(Connectivity::Connecting));
    assert!(sim.is_queued());
    assert!(sim.balancer.is_settled(CLUSTER, sim.now));
}

/// gRFC A55 and A75: a draining endpoint is in the roster and not in a leaf: it takes no calls and has no
/// connection, and it is the same endpoint as before and after.
#[test]
fn a_draining_endpoint_is_known_and_takes_no_calls() {
    let plan = |ports: &[Port], draining: &[Port]| draining_plan(priorities(&[ports]), draining);
    let mut sim = Sim::ready_with(plan(&[1, 2], &[]));
    let id = sim.id(1);
    assert_eq!(known(&sim, 1).health, Health::Unknown);
    let open: Vec<_> = (0..4).map(|_| sim.call()).collect();

    sim.plan(plan(&[2], &[1]));
    assert_eq!(sim.releases, [1]);
    assert_eq!(sim.count(10), [(2, 10)].into());
    let draining = known(&sim, 1);
    assert_eq!((draining.id, draining.health), (id, Health::Draining));
    assert_eq!((draining.picks, draining.in_flight), (2, 2));
    drop(open);
    assert_eq!(known(&sim, 1).in_flight, 0);

    // It stays through updates of others, and is healthy again.
    sim.plan(plan(&[2, 3], &[1]));
    assert_eq!(known(&sim, 1).id, id);
    sim.plan(plan(&[2, 1], &[]));
    assert_eq!(sim.id(1), id);
    assert_eq!(known(&sim, 1).health, Health::Unknown);
    sim.ready(&[1]);
    assert_eq!(sim.count(10), [(1, 5), (2, 5)].into());
    assert_eq!(known(&sim, 1).picks, 7);

    sim.plan(plan(&[2], &[1]));
    sim.plan(plan(&[2], &[]));
    assert_eq!(ports(&sim), [2], "it is gone");
}

/// gRFC A55: an endpoint that was draining from the start is known as well, without a connection.
#[test]
fn an_endpoint_may_be_draining_from_the_start() {
    let mut sim = Sim::new();
    sim.plan(draining_plan(zone(&[1]), &[2, 2]));
    assert_eq!(sim.connects, [1]);
    assert_eq!(ports(&sim), [1, 2]);
    assert_eq!(known(&sim, 2).health, Health::Draining);
    assert_eq!(sim.balancer.held(), (2, 1));
    sim.remove(CLUSTER);
    assert_eq!(sim.balancer.held(), (0, 0));
}

/// gRFC A61: the address that won decides which endpoint of a `pick_first` list a call is counted to,
/// and where that is.
#[test]
fn pick_first_counts_a_call_to_the_endpoint_that_has_the_address() {
    let at = endpoint_in;
    let first = |endpoints: Vec<Endpoint>| {
        in_cluster(Node::Leaf(Leaf {
            policy: Policy::PickFirst { shuffle: false },
            endpoints: endpoints.into(),
        }))
    };
    let mut sim = Sim::new();
    sim.plan(first(vec![at("a", &[1]), at("b", &[2, 3])]));
    assert_eq!(sim.connects, [1], "one list of addresses");
    connected_at(&mut sim, 1, 3);
    let call = sim.call();
    assert_eq!((call.address(), call.locality()), (address(3), &us("b")));
    assert_eq!(call.addresses(), [address(2), address(3)]);
    assert_eq!(call.endpoint(), known(&sim, 2).id);
    assert_eq!((known(&sim, 1).picks, known(&sim, 2).picks), (0, 1));
    assert_eq!(known(&sim, 2).in_flight, 1);

    // The address stays connected, and belongs to another endpoint now.
    sim.plan(first(vec![at("a", &[1]), at("c", &[3])]));
    let next = sim.call();
    assert_eq!((next.address(), next.locality()), (address(3), &us("c")));
    assert_eq!((known(&sim, 1).picks, known(&sim, 3).picks), (0, 1));
    assert_eq!(call.locality(), &us("b"), "it began before");
    assert_eq!(sim.releases, []);
}

/// gRFC A61: an endpoint that loses one of its addresses is another one to outlier detection, and is
/// found by the addresses that stay.
#[test]
fn an_address_may_leave_its_endpoint_while_a_call_uses_it() {
    let of = |ports: &[Port]| in_cluster(Node::round_robin(vec![endpoint(ports)]));
    let mut sim = Sim::ready_with(of(&[1, 2]));
    let call = sim.call();
    sim.plan(of(&[1]));
    assert_eq!(sim.connects, [1]);
    assert_eq!(call.addresses(), [address(1), address(2)]);
    let both: Vec<_> = roster(&sim).iter().map(|v| v.addresses.len()).collect();
    assert_eq!(both, [2, 1], "the old one serves until the new one can");
    sim.ready_newest(1);
    let left: Vec<_> = roster(&sim).iter().map(|v| v.addresses.len()).collect();
    assert_eq!(left, [1]);
    drop(call);
}

/// Addresses are a set (A61): in another order they are the same endpoint, in any locality.
#[test]
fn the_order_of_addresses_does_not_matter() {
    let of = |ports: &[Port]| Node::round_robin(vec![endpoint(ports)]);
    let in_priority = |name: &str, node| in_cluster(priority(&[(name, node)]));
    let mut sim = Sim::ready_with(in_priority("child0", of(&[1, 2])));
    let id = sim.id(1);
    sim.plan(in_priority("child1", of(&[2, 1])));
    assert_eq!(sim.balancer.endpoints(CLUSTER)[0].id, id);
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
}

/// Clusters have rosters of their own: an address in two leaf clusters is two endpoints.
#[test]
fn an_address_in_two_clusters_is_two_endpoints() {
    let leaves = [("x", priorities(&[&[1]])), ("y", priorities(&[&[1]]))];
    let mut sim = Sim::new();
    sim.plan(tree_of(sim::plans::aggregate(&leaves)));
    let id = sim.id(1);
    let state = EndpointState::TransientFailure("refused".into());
    sim.handle(BalancerEvent::Endpoint { id, state });
    sim.flush();
    let shown = roster(&sim);
    let clusters: Vec<_> = shown.iter().map(|view| view.cluster.as_str()).collect();
    assert_eq!(clusters, ["x", "y"]);
    assert_eq!(
        sim.connected_for,
        ["x", "y"],
        "the driver knows whose they are"
    );
    assert_ne!(shown[0].id, shown[1].id);
}

fn in_cluster(node: Node) -> crowfly_lb::Plan {
    tree_of(cluster("payments", node))
}

/// A leaf cluster with draining endpoints.
fn draining_plan(node: Node, draining: &[Port]) -> crowfly_lb::Plan {
    let Node::Cluster(plan) = cluster("payments", node) else {
        panic!("a leaf cluster");
    };
    let mut plan = Arc::unwrap_or_clone(plan);
    plan.draining = endpoints_at(draining);
    tree_of(Node::Cluster(Arc::new(plan)))
}

/// The list of addresses that begins with one port is connected at another.
fn connected_at(sim: &mut Sim, first: Port, port: Port) {
    let (id, state) = (sim.id(first), ready_at(port));
    sim.handle(BalancerEvent::Endpoint { id, state });
    sim.flush();
}

fn roster(sim: &Sim) -> Vec<RosterView> {
    sim.balancer.roster(CLUSTER)
}

/// The roster's view of the endpoint whose main address has this port.
fn known(sim: &Sim, port: Port) -> RosterView {
    let mut found = roster(sim).into_iter();
    let found = found.find(|view| view.addresses[0].port() == port);
    found.expect("an endpoint of the roster")
}

fn ports(sim: &Sim) -> Vec<Port> {
    let views = roster(sim);
    let mut ports: Vec<_> = views.iter().map(|v| v.addresses[0].port()).collect();
    ports.sort_unstable();
    ports
}

/// An endpoint that says where it is.
fn endpoint_in(zone: &str, ports: &[Port]) -> Endpoint {
    let mut endpoint = endpoint(ports);
    endpoint.locality = Some(us(zone));
    endpoint
}

fn us(zone: &str) -> LocalityId {
    LocalityId::new("us", zone, "")
}

/// gRFC A55: sessions may be limited to endpoints of some health, so the roster tells UNKNOWN from HEALTHY.
/// A change of health alone moves no connection.
#[test]
fn the_roster_knows_the_health_of_each_endpoint() {
    let plan = |second: Health| {
        let mut endpoints = [endpoint(&[1]), endpoint(&[2])];
        endpoints[1].health = second;
        in_cluster(priority(&[(
            "child0",
            Node::round_robin(endpoints.to_vec()),
        )]))
    };
    let mut sim = Sim::ready_with(plan(Health::Unknown));
    let id = sim.id(2);
    assert_eq!(known(&sim, 2).health, Health::Unknown);
    sim.forget();
    sim.plan(plan(Health::Healthy));
    assert_eq!(known(&sim, 2).health, Health::Healthy);
    assert_eq!(known(&sim, 1).health, Health::Unknown);
    assert_eq!((sim.id(2), sim.connects.len()), (id, 0));
    sim.plan(plan(Health::Unknown));
    assert_eq!(known(&sim, 2).health, Health::Unknown);
}
