//! Tests of trees of aggregate clusters (A37, A75). Each leaf cluster has its own policy, drops and
//! state, and calls move between the leaves without new connections.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::sync::Arc;

use crowfly_lb::{
    BalancerEvent, ClusterPlan, EndpointState, Node,
    timing::{FAILOVER_TIMEOUT, RETENTION},
};
use sim::{
    Picked, Port, Sim, noted,
    plans::{aggregate, cluster, localities, priorities, priority, ring_hash, tree_of, zone},
    ready_at,
};

/// S6-01, S6-11: every priority of the first leaf is tried before the second leaf, each of them
/// connected in the flush of the failure before it; calls return as soon as they can.
#[test]
fn priorities_of_the_first_leaf_come_before_the_second_leaf() {
    let mut sim = Sim::new();
    sim.plan(tree_of(two_leaves()));
    sim.ready(&[1]);
    sim.failing(1, "connection reset");
    assert_eq!(sim.connects, [1, 2]);
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
    sim.failing(2, "connection reset");
    assert_eq!(sim.connects, [1, 2, 3]);
    sim.ready(&[3]);
    assert_eq!(sim.pick_port(), 3);
    sim.failing(3, "connection reset");
    assert_eq!(sim.connects, [1, 2, 3, 4]);
    sim.ready(&[4]);
    assert_eq!(sim.pick_port(), 4);

    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
    assert_eq!(sim.releases, []);
}

/// S6-01: a leaf that takes its time holds up the next one for 10 seconds, as does a priority inside
/// of it: both timers started together.
#[test]
fn a_slow_leaf_is_passed_over_after_the_time_for_one() {
    let mut sim = Sim::new();
    sim.plan(tree_of(two_leaves()));
    sim.advance(FAILOVER_TIMEOUT);
    assert_eq!(
        sim.connects,
        [1, 2, 3],
        "the leaf and its first priority started at the same time"
    );
    sim.ready(&[3]);
    assert_eq!(sim.pick_port(), 3);
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
}

/// S6-04: a call that no leaf can take is told what is wrong with each of them.
#[test]
fn a_failure_names_every_leaf() {
    let mut sim = Sim::new();
    let failing = Node::Failing("DNS name db.example does not resolve".into());
    let leaves = [("eds", priorities(&[&[1]])), ("dns", failing)];
    sim.plan(noted(tree_of(aggregate(&leaves)), "stale data"));
    assert!(sim.is_queued());
    sim.failing(1, "connection refused");
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: \
         eds: no connection to any endpoint in us/a; last error: 127.0.0.1:1: connection refused; \
         dns: DNS name db.example does not resolve \
         (stale data)",
    );
}

/// S6-04: the resolver's note about a leaf is in the failure of that leaf.
#[test]
fn a_failure_has_the_notes_of_the_leaves() {
    let Node::Cluster(leaf) = cluster("eds", priorities(&[])) else {
        panic!("a cluster");
    };
    let leaf = Node::Cluster(Arc::new(ClusterPlan {
        note: Some("EDS resource eds does not exist".into()),
        ..(*leaf).clone()
    }));
    let mut sim = Sim::new();
    sim.plan(tree_of(priority(&[
        ("eds", leaf.clone()),
        ("dns", cluster("dns", zone(&[]))),
    ])));
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: \
         eds: priority policy has empty priority list (EDS resource eds does not exist); \
         dns: no endpoints in us/a",
    );
    sim.plan(tree_of(leaf));
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: priority policy has empty priority list (EDS resource eds does not exist)",
    );
}

/// S6-06: leaves that change places keep their connections, and no call fails or waits.
#[test]
fn reordered_leaves_move_the_calls_and_nothing_else() {
    let [first, second] = [("first", zone(&[1])), ("second", zone(&[2]))];
    let mut sim = Sim::new();
    sim.plan(tree_of(aggregate(&[first.clone(), second.clone()])));
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    sim.forget();
    for _ in 0..100 {
        sim.plan(tree_of(aggregate(&[second.clone(), first.clone()])));
        assert_eq!(sim.pick_port(), 2);
        sim.plan(tree_of(aggregate(&[first.clone(), second.clone()])));
        assert_eq!(sim.pick_port(), 1);
    }
    assert_eq!((sim.connects.len(), sim.releases.len()), (0, 0));
}

/// S6-06: a leaf that comes first before it was ever needed is given its time; calls wait for it,
/// and fail over to the one that has connections if it fails.
#[test]
fn a_leaf_that_was_not_needed_yet_is_connected_when_it_comes_first() {
    let [first, second] = [("first", zone(&[1])), ("second", zone(&[2]))];
    let mut sim = Sim::new();
    sim.plan(tree_of(aggregate(&[first.clone(), second.clone()])));
    sim.ready(&[1]);
    sim.plan(tree_of(aggregate(&[second, first])));
    assert_eq!(sim.connects, [1, 2]);
    sim.failing(2, "connection refused");
    assert_eq!(sim.pick_port(), 1);
}

/// S6-07: a cluster that becomes an aggregate, and back, serves from what it has until the other
/// is READY.
#[test]
fn a_leaf_cluster_becomes_an_aggregate_and_back() {
    let leaf = || tree_of(cluster("payments", priorities(&[&[1]])));
    let mut sim = Sim::ready_with(leaf());
    sim.plan(tree_of(aggregate(&[("new", zone(&[2]))])));
    assert_eq!((sim.pick_port(), &sim.connects[..]), (1, &[2][..]));
    sim.ready(&[2]);
    assert_eq!((sim.pick_port(), &sim.releases[..]), (2, &[1][..]));
    sim.forget();

    sim.plan(leaf());
    assert_eq!((sim.pick_port(), &sim.connects[..]), (2, &[1][..]));
    sim.plan(tree_of(aggregate(&[("new", zone(&[2]))])));
    assert_eq!(sim.pick_port(), 2, "it changed its mind");
    sim.ready_newest(2);
    sim.plan(leaf());
    sim.failing(1, "connection refused");
    sim.pick_failure();
    assert_eq!(sim.live.len(), 1, "what was replaced is gone");
}

/// S6-08: each leaf has its own policy.
#[test]
fn each_leaf_has_its_own_policy() {
    let mut sim = Sim::new();
    let leaves = [("first", zone(&[1, 2])), ("second", ring_hash(&[3, 4]))];
    sim.plan(tree_of(aggregate(&leaves)));
    sim.ready(&[1, 2]);
    assert_eq!(sim.count(10).len(), 2);
    let tree = sim.tree();
    assert!(tree.contains("round_robin"), "{tree}");
    sim.failing(1, "connection reset");
    sim.failing(2, "connection reset");
    let tree = sim.tree();
    assert!(tree.contains("ring_hash IDLE"), "{tree}");
    assert_eq!(sim.connects, [1, 2], "ring_hash waits for a call");
    assert!(matches!(sim.pick(), Picked::Wake(_)));
}

/// S6-12: a ring_hash leaf none of whose endpoints can be reached fails over, though no call ever
/// asks for most of them.
#[test]
fn a_ring_hash_leaf_that_fails_is_fallen_back_from() {
    let mut sim = Sim::new();
    let leaves = [("first", ring_hash(&[1, 2, 3, 4])), ("second", zone(&[9]))];
    sim.plan(tree_of(aggregate(&leaves)));
    let Picked::Wake(id) = sim.pick() else {
        panic!("a call wakes it");
    };
    sim.handle(BalancerEvent::Demand(id));
    sim.flush();
    for attempt in 0.. {
        assert!(attempt < 4, "it hangs");
        let Some(&port) = sim.connects.get(attempt) else {
            panic!("nothing connects after {attempt} failures");
        };
        if port == 9 {
            break;
        }
        sim.failing(port, "connection refused");
    }
    sim.ready(&[9]);
    assert_eq!(sim.pick_port(), 9);
}

/// S6-10: leaves with localities of the same name share no state.
#[test]
fn localities_of_one_name_in_two_leaves_are_two() {
    let mut sim = Sim::new();
    let zones = |port: Port| localities(&[("a", 1, &[port])]);
    sim.plan(tree_of(aggregate(&[
        ("first", zones(1)),
        ("second", zones(2)),
    ])));
    sim.failing(1, "connection refused");
    assert!(sim.is_queued(), "us/a of the second has not failed");
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
    sim.plan(tree_of(aggregate(&[
        ("first", localities(&[("b", 1, &[3])])),
        ("second", zones(2)),
    ])));
    assert_eq!(
        sim.pick_port(),
        2,
        "us/a left the first leaf only, and us/b is new"
    );
}

/// S6-13: calls are served by the second leaf until the first is READY, whatever the connections of
/// the first do at the start.
#[test]
fn churn_in_the_first_leaf_does_not_disturb_the_second() {
    let mut sim = Sim::new();
    sim.plan(tree_of(aggregate(&[
        ("first", zone(&[1, 2])),
        ("second", zone(&[3])),
    ])));
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.ready(&[3]);
    for round in 0..50 {
        let port = 1 + round % 2;
        sim.idle(port);
        sim.connecting(port);
        assert_eq!(sim.pick_port(), 3);
        sim.advance_secs(u64::from(round));
        sim.failing(port, "connection refused");
        assert_eq!(sim.pick_port(), 3);
    }
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
}

/// S6-18: a leaf whose parent changes keeps its connections; so does one that leaves the aggregate
/// for less than 15 minutes.
#[test]
fn a_leaf_that_stays_keeps_its_connections() {
    let leaf = |name, port| (name, priorities(&[&[port]]));
    let mut sim = Sim::ready_with(tree_of(aggregate(&[leaf("kept", 1), leaf("other", 2)])));
    let kept = sim.id(1);
    sim.plan(tree_of(aggregate(&[leaf("kept", 1), leaf("new", 3)])));
    assert_eq!(sim.pick_port(), 1);
    sim.plan(tree_of(aggregate(&[leaf("new", 3)])));
    assert!(sim.is_queued());
    sim.ready(&[3]);
    sim.advance(RETENTION / 2);
    sim.plan(tree_of(aggregate(&[leaf("kept", 1), leaf("new", 3)])));
    assert_eq!(sim.pick_port(), 1);
    assert_eq!((sim.id(1), &sim.releases[..]), (kept, &[][..]));
}

/// S7-04: other endpoints by another name of the endpoints resource take over when they are
/// READY.
#[test]
fn another_name_of_the_endpoints_switches_smoothly() {
    let named = |name: Option<&str>, port| {
        let Node::Cluster(leaf) = cluster("payments", priorities(&[&[port]])) else {
            panic!("a cluster");
        };
        tree_of(Node::Cluster(Arc::new(ClusterPlan {
            eds_service_name: name.map(Into::into),
            ..(*leaf).clone()
        })))
    };
    let mut sim = Sim::ready_with(named(None, 1));
    sim.plan(named(Some("payments-eds"), 2));
    assert_eq!(sim.pick_port(), 1);
    sim.ready(&[2]);
    assert_eq!((sim.pick_port(), &sim.releases[..]), (2, &[1][..]));
}

/// S7-05: an empty update after a good one is followed at once: calls fail, or go to the next leaf.
#[test]
fn an_empty_update_is_followed() {
    let second = ("second", zone(&[2]));
    let mut sim = Sim::ready_with(tree_of(aggregate(&[("first", zone(&[1])), second.clone()])));
    sim.plan(tree_of(aggregate(&[("first", localities(&[])), second])));
    assert_eq!(sim.connects, [2]);
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);

    let mut sim = Sim::ready_with(tree_of(cluster("payments", priorities(&[&[1]]))));
    sim.plan(tree_of(cluster("payments", priority(&[]))));
    sim.pick_failure();
    assert_eq!(sim.releases, [1]);
}

/// S7-06: a locality that is emptied while its priority is not in use, and late reports of its
/// endpoints, change nothing.
#[test]
fn a_locality_emptied_while_its_priority_is_not_in_use_is_quiet() {
    let mut sim = Sim::new();
    sim.plan(tree_of(priorities(&[&[1], &[2]])));
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    let late = sim.id(2);
    sim.plan(tree_of(priorities(&[&[1], &[]])));
    assert_eq!(sim.releases, [2]);
    for state in [EndpointState::Idle, ready_at(2)] {
        sim.handle(BalancerEvent::Endpoint { id: late, state });
        sim.flush();
    }
    assert_eq!(sim.pick_port(), 1);
    sim.failing(1, "connection reset");
    assert!(sim.pick_failure().contains("no endpoints in us/a"));
}

/// S7-07: a hundred localities get their exact shares, and a change of one touches its endpoints
/// only.
#[test]
fn a_hundred_localities() {
    let names: Vec<_> = (0..100).map(|n| format!("zone-{n:02}")).collect();
    let ports: Vec<[Port; 2]> = (0..100).map(|n| [1000 + 2 * n, 1001 + 2 * n]).collect();
    let zones = |changed: &[Port]| {
        let zones = names.iter().zip(&ports).zip(1..);
        let mut zones: Vec<_> = zones
            .map(|((name, ports), weight)| (name.as_str(), weight, &ports[..]))
            .collect();
        zones[50].2 = changed;
        tree_of(cluster(
            "payments",
            priority(&[("child0", localities(&zones))]),
        ))
    };
    let mut sim = Sim::ready_with(zones(&ports[50]));
    let shares = sim.picker.as_ref().unwrap().shares();
    for (share, weight) in shares.iter().zip(1..=100) {
        assert!((share.probability - f64::from(weight) / 5050.0).abs() < 1e-12);
        assert_eq!(share.endpoints.len(), 2);
    }
    let before = sim.balancer.visits();
    sim.plan(zones(&[1100]));
    assert_eq!(sim.releases, [1101]);
    let visits = sim.balancer.visits() - before;
    assert!(
        visits <= 10,
        "{visits} visits for one locality of two endpoints"
    );
}

/// Two leaf clusters with two priorities each.
fn two_leaves() -> Node {
    aggregate(&[
        ("first", priorities(&[&[1], &[2]])),
        ("second", priorities(&[&[3], &[4]])),
    ])
}
