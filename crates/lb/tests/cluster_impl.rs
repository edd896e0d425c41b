//! Tests of xds_cluster_impl: drops, and the limit of open calls (A27, A32, A37). Both apply to a
//! whole leaf cluster, above its priorities and localities.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{collections::BTreeMap, sync::Arc};

use crowfly_lb::{
    CallContext, CallCounters, ClusterPlan, DropCategory, DropCause, Node, Pick, timing::RETENTION,
};
use sim::{
    CLUSTER, Picked, Sim,
    plans::{NO_LIMIT, aggregate, cluster, gate, named_tree_of, priorities, tree_of, zone},
};

const ALL: u32 = DropCategory::ALL;

/// S9-01: each category drops its share of the calls that the ones before it let pass.
#[test]
fn categories_drop_their_shares_one_after_the_other() {
    let drops = [("throttle", ALL / 10), ("lb", ALL / 2)];
    let sim = Sim::ready_with(tree_of(gate("payments", &drops, NO_LIMIT, zone(&[1]))));
    let counts = outcomes(&sim, 100_000);
    // Four standard deviations of 100,000 draws.
    assert!(counts["throttle"].abs_diff(10_000) < 380, "{counts:?}");
    assert!(counts["lb"].abs_diff(45_000) < 630, "{counts:?}");
    assert!(counts["sent"].abs_diff(45_000) < 630, "{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), 100_000);

    let shares = sim.picker.as_ref().unwrap().shares();
    assert!((shares[0].probability - 0.45).abs() < 1e-9, "{shares:?}");
}

/// S9-01, A27: a category of so many per million drops exactly so many of a million numbers, the lowest.
/// So the one that drops none lets every call pass.
#[test]
fn a_category_drops_exactly_its_share() {
    for seed in 0..20 {
        let drawn = (CallContext::new(seed).random() % u64::from(ALL)) as u32;
        let dropped = |per_million| {
            let drops = [("throttle", per_million)];
            let sim = Sim::ready_with(tree_of(gate("payments", &drops, NO_LIMIT, zone(&[1]))));
            let picker = sim.picker.as_ref().unwrap();
            matches!(picker.pick(&CallContext::new(seed)), Pick::Drop(_))
        };
        assert!(!dropped(drawn), "the numbers below {drawn} are dropped");
        assert!(dropped(drawn + 1), "the numbers up to {drawn} are dropped");
    }
}

/// S9-01: which calls are dropped says nothing about where the others go.
#[test]
fn drops_do_not_skew_the_choice_below() {
    let zones = sim::plans::localities(&[("a", 1, &[1]), ("b", 1, &[2])]);
    let drops = [("throttle", ALL / 2)];
    let sim = Sim::ready_with(tree_of(gate("payments", &drops, NO_LIMIT, zones)));
    let mut counts = BTreeMap::<_, usize>::new();
    for seed in 0..100_000 {
        if let Pick::Ready(call) = sim.picker.as_ref().unwrap().pick(&CallContext::new(seed)) {
            *counts.entry(*call.transport()).or_default() += 1;
        }
    }
    assert!(counts[&1].abs_diff(25_000) < 550, "{counts:?}");
    assert!(counts[&2].abs_diff(25_000) < 550, "{counts:?}");
}

/// S9-02: a cluster that drops everything does so before any endpoint is connected, and while
/// none can be; its text names the category.
#[test]
fn a_cluster_that_drops_everything_needs_no_endpoint() {
    let mut sim = Sim::new();
    let drops = [("throttle", 0), ("lb", ALL)];
    sim.plan(tree_of(gate("payments", &drops, NO_LIMIT, zone(&[1]))));
    assert_eq!(
        sim.pick_drop(),
        "cluster payments: dropped by category lb",
        "1 is CONNECTING"
    );
    sim.failing(1, "connection refused");
    sim.pick_drop();
    sim.plan(tree_of(gate("payments", &drops, NO_LIMIT, priorities(&[]))));
    sim.pick_drop();
}

/// S9-02: to a priority above, a cluster that drops everything is READY: what it drops is not
/// taken on by the next one.
#[test]
fn what_a_cluster_drops_is_not_failed_over() {
    let mut sim = Sim::new();
    let first = gate("first", &[("lb", ALL)], NO_LIMIT, zone(&[1]));
    let node = sim::plans::priority(&[("first", first), ("second", cluster("second", zone(&[2])))]);
    sim.plan(tree_of(node));
    sim.failing(1, "connection refused");
    assert_eq!(sim.pick_drop(), "cluster first: dropped by category lb");
    assert_eq!(sim.connects, [1]);
}

/// S9-03: drops and limits that change take effect with no change of endpoints, without a new
/// connection; the same ones again are no change.
#[test]
fn a_change_of_drops_or_limit_is_published() {
    let plan = |drops: &[_], limit| tree_of(gate("payments", drops, limit, zone(&[1])));
    let mut sim = Sim::ready_with(plan(&[], 1));
    sim.plan(plan(&[("lb", ALL)], 1));
    assert_eq!(sim.publishes, 1);
    sim.pick_drop();
    sim.plan(plan(&[("throttle", ALL)], 1));
    assert!(sim.pick_drop().ends_with("throttle"));
    sim.plan(plan(&[], 1));
    assert_eq!((sim.pick_port(), sim.publishes), (1, 3));
    sim.plan(plan(&[], 1));
    assert_eq!(sim.publishes, 3);

    let open = sim.call();
    sim.pick_drop();
    sim.plan(plan(&[], 2));
    assert_eq!((sim.pick_port(), sim.publishes), (1, 4));
    drop(open);
    assert_eq!((sim.connects.len(), sim.releases.len()), (0, 0));
}

/// S9-04: one call more than the limit is dropped, and says why; a call that ends makes room.
#[test]
fn calls_over_the_limit_are_dropped() {
    let mut sim = Sim::ready_with(tree_of(gate("payments", &[], 3, zone(&[1, 2]))));
    let mut open: Vec<_> = (0..3).map(|_| sim.call()).collect();
    assert_eq!(
        sim.pick_drop(),
        "cluster payments: circuit breaker: open calls 3, limit 3"
    );
    open.pop();
    open.push(sim.call());
    sim.pick_drop();
    assert!(sim.tree().contains("3 in flight"), "{}", sim.tree());
    open.clear();
    assert!(!sim.tree().contains("in flight"), "{}", sim.tree());
}

/// S9-04: a limit of none drops every call, and a limit that shrinks ends none.
#[test]
fn a_limit_may_shrink_below_what_is_open() {
    let plan = |limit| tree_of(gate("payments", &[], limit, zone(&[1])));
    let mut sim = Sim::ready_with(plan(2));
    let open = [sim.call(), sim.call()];
    sim.plan(plan(0));
    sim.pick_drop();
    drop(open);
    sim.pick_drop();
}

/// S9-04: calls that wait for a connection or fail are not open: they take no slot.
#[test]
fn calls_that_do_not_start_take_no_slot() {
    let counters = Arc::new(CallCounters::new());
    let mut sim = Sim::with_counters(1, counters.clone());
    sim.plan(tree_of(gate("payments", &[], 1, zone(&[1]))));
    assert!(sim.is_queued() && sim.is_queued());
    sim.failing(1, "connection refused");
    sim.pick_failure();
    assert_eq!(counters.open(&"payments".into(), None), 0);
    sim.ready(&[1]);
    let _open = sim.call();
    assert_eq!(counters.open(&"payments".into(), None), 1);
}

/// S9-05: two channels share the limit of a cluster; clusters of one name with other endpoints do
/// not.
#[test]
fn channels_share_the_limit_of_a_cluster() {
    let counters = Arc::new(CallCounters::new());
    let mut sims = [1, 2].map(|seed| Sim::with_counters(seed, counters.clone()));
    for sim in &mut sims {
        sim.plan(tree_of(gate("payments", &[], 2, zone(&[1]))));
        sim.ready(&[1]);
    }
    let [left, right] = &mut sims;
    let first = left.call();
    let _second = right.call();
    left.pick_drop();
    right.pick_drop();
    drop(first);
    let _third = right.call();
    left.pick_drop();
    assert_eq!(counters.len(), 1);

    let Node::Cluster(renamed) = gate("payments", &[], 2, zone(&[1])) else {
        panic!("a cluster");
    };
    let renamed = ClusterPlan {
        eds_service_name: Some("other-eds".into()),
        ..(*renamed).clone()
    };
    right.plan(tree_of(Node::Cluster(Arc::new(renamed))));
    right.ready_newest(1);
    assert_eq!(right.pick_port(), 1, "counted apart");
    assert_eq!(counters.len(), 2);
}

/// S9-05: two aggregates that lead to the same leaf share its limit, inside a channel too.
#[test]
fn aggregates_share_the_limit_of_a_leaf() {
    let counters = Arc::new(CallCounters::new());
    let mut sim = Sim::with_counters(1, counters.clone());
    let shared = |port| {
        let shared = gate("shared", &[], 1, zone(&[port]));
        sim::plans::priority(&[("shared", shared)])
    };
    sim.plan(tree_of(shared(1)));
    sim.plan(named_tree_of("other", shared(2)));
    sim.ready(&[1, 2]);
    assert_eq!(counters.len(), 1);

    let open = sim.call();
    assert!(matches!(sim.pick_from("other"), Picked::Drop(_)));
    drop(open);
    let open = sim.pick_from("other");
    assert!(matches!(open, Picked::Ready(_)));
    sim.pick_drop();
}

/// S9-06: a call that was picked for but never starts gives its slot back, also when its
/// endpoint, its cluster or its balancer is gone by then.
#[test]
fn a_call_that_never_starts_gives_its_slot_back() {
    let counters = Arc::new(CallCounters::new());
    let open = |name: &str| counters.open(&name.into(), None);
    let mut sim = Sim::with_counters(1, counters.clone());
    sim.plan(tree_of(gate("payments", &[], NO_LIMIT, zone(&[1, 2]))));
    sim.ready(&[1, 2]);
    let mut calls: Vec<_> = (0..4).map(|_| sim.call()).collect();
    assert_eq!(open("payments"), 4);
    calls.pop();
    assert_eq!(open("payments"), 3);

    sim.failing(1, "connection reset");
    calls.pop();
    assert_eq!(open("payments"), 2);
    sim.remove(CLUSTER);
    calls.pop();
    assert_eq!(open("payments"), 1);
    drop(sim);
    assert_eq!(open("payments"), 1);
    calls.pop();
    assert_eq!((open("payments"), counters.len()), (0, 0));
}

/// S9-05: the counter of a cluster goes with the last who counts with it.
#[test]
fn counters_go_when_they_are_not_used() {
    let counters = Arc::new(CallCounters::new());
    let mut sim = Sim::with_counters(1, counters.clone());
    let (one, two) = (("one", zone(&[1])), ("two", zone(&[2])));
    sim.plan(tree_of(aggregate(&[one.clone(), two.clone()])));
    assert_eq!(counters.len(), 1, "the second is not needed yet");
    sim.failing(1, "connection refused");
    assert_eq!(counters.len(), 2);
    sim.plan(tree_of(aggregate(&[two])));
    assert_eq!(counters.len(), 2, "the first is kept");
    sim.advance(RETENTION);
    assert_eq!(counters.len(), 1);
    sim.remove(CLUSTER);
    sim.picker = None;
    sim.pickers.clear();
    assert!(counters.is_empty());
}

/// The number of picks that each category drops, and of those that are sent.
fn outcomes(sim: &Sim, picks: u64) -> BTreeMap<String, usize> {
    let picker = sim.picker.as_ref().unwrap();
    let mut counts = BTreeMap::new();
    for seed in 0..picks {
        let outcome = match picker.pick(&CallContext::new(seed)) {
            Pick::Ready(_) => "sent".to_owned(),
            Pick::Drop(dropped) => match dropped.cause {
                DropCause::Category(category) => category.to_string(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}
