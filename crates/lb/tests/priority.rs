//! Tests of `priority`, which uses the first child that can take calls (A56). Time is virtual,
//! because the rules have timers of 10 seconds and 15 minutes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{sync::Arc, time::Duration};

use crowfly_lb::{
    BalancerEvent, EndpointState, Node, Plan, Priority, PriorityChild,
    timing::{FAILOVER_TIMEOUT, RETENTION},
};
use sim::{
    Picked, Port, Sim, flat,
    plans::{priorities, priority, priority_kept_for, ring_hash, tree_of, zone},
    ready_at,
};

const SECOND: Duration = Duration::from_secs(1);

/// S8-01: while the first priority is READY, the others do not exist.
#[test]
fn a_ready_priority_leaves_the_others_alone() {
    let mut sim = of(&[&[1], &[2]]);
    assert_eq!(sim.connects, [1]);
    sim.ready(&[1]);
    sim.advance(RETENTION);
    assert_eq!(sim.connects, [1]);
    assert_eq!(sim.pick_port(), 1);
    assert_eq!(sim.balancer.held(), (1, 1));
}

/// S8-02: calls go to the second priority when the first fails, and back when it is READY again;
/// the connections of the second stay.
#[test]
fn calls_fail_over_and_back() {
    let mut sim = of(&[&[1], &[2]]);
    sim.ready(&[1]);
    sim.failing(1, "connection reset");
    assert_eq!(sim.connects, [1, 2], "in the same flush");
    assert!(sim.is_queued(), "the second may become READY");
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
    sim.forget();

    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
    assert_eq!((sim.releases.len(), sim.publishes), (0, 1));
}

/// S8-02: a failure of one endpoint of several is no failure of the priority, and the next one
/// is connected in the same flush as the last of them.
#[test]
fn the_last_failure_connects_the_next_priority_at_once() {
    let mut sim = of(&[&[1, 2], &[3, 4]]);
    sim.ready(&[1, 2]);
    sim.forget();
    sim.failing(1, "connection reset");
    assert_eq!(sim.connects, []);
    assert_eq!(sim.pick_port(), 2);
    sim.failing(2, "connection reset");
    assert_eq!(sim.connects, [3, 4]);
}

/// S8-03: a priority that is CONNECTING for 10 seconds is no longer waited for; when it is READY
/// after all, it takes the calls.
#[test]
fn a_priority_that_takes_too_long_is_passed_over() {
    let mut sim = of(&[&[1], &[2]]);
    sim.advance(FAILOVER_TIMEOUT - SECOND);
    assert_eq!(sim.connects, [1]);
    sim.advance(SECOND);
    assert_eq!(sim.connects, [1, 2]);
    assert!(sim.is_queued());
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// S8-03: the end of the timer is no failure: calls wait for whichever connects first, and fail
/// only when both have failed.
#[test]
fn a_timeout_is_not_a_failure() {
    let mut sim = of(&[&[1], &[2]]);
    sim.advance(FAILOVER_TIMEOUT);
    sim.failing(2, "connection refused");
    assert!(sim.is_queued(), "the first is CONNECTING");
    sim.failing(1, "timed out");
    let text = sim.pick_failure();
    assert!(text.contains("127.0.0.1:1: timed out"), "{text}");
    assert!(text.contains("127.0.0.1:2: connection refused"), "{text}");
}

/// S8-04: saying CONNECTING again does not extend the time.
#[test]
fn connecting_again_does_not_extend_the_timer() {
    let mut sim = of(&[&[1], &[2]]);
    for _ in 1..10 {
        sim.advance(SECOND);
        sim.connecting(1);
        sim.plan(tree_of(priorities(&[&[1], &[2]])));
    }
    assert_eq!(sim.connects, [1]);
    sim.advance(SECOND);
    assert_eq!(sim.connects, [1, 2]);
}

/// S8-04: a priority that failed and tries again gets no time: the next one is used meanwhile.
#[test]
fn a_priority_that_failed_is_not_waited_for() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.idle(1);
    sim.connecting(1);
    assert_eq!(sim.pick_port(), 2);
    sim.plan(tree_of(priorities(&[&[3], &[2]])));
    assert_eq!(sim.pick_port(), 2, "other endpoints are no news of success");
}

/// S8-05: a priority that loses its connection keeps the calls while it reconnects in time.
#[test]
fn a_priority_that_reconnects_in_time_keeps_the_calls() {
    let mut sim = of(&[&[1], &[2]]);
    sim.ready(&[1]);
    sim.advance_secs(60);
    sim.idle(1);
    assert!(sim.is_queued());
    sim.advance(FAILOVER_TIMEOUT - SECOND);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
    sim.advance(FAILOVER_TIMEOUT);
    assert!(!sim.connects.contains(&2));

    sim.idle(1);
    sim.advance(FAILOVER_TIMEOUT);
    assert!(sim.connects.contains(&2), "this time it took too long");
}

/// S8-06: a priority that is IDLE is chosen: it connects when a call comes, and is then given its
/// time like one that lost its connection.
#[test]
fn an_idle_priority_is_chosen() {
    let mut sim = Sim::new();
    sim.plan(tree_of(priority(&[
        ("child0", ring_hash(&[1])),
        ("child1", zone(&[2])),
    ])));
    sim.advance(RETENTION);
    assert_eq!(sim.connects, []);
    let Picked::Wake(id) = sim.pick() else {
        panic!("a call wakes it");
    };
    sim.handle(BalancerEvent::Demand(id));
    sim.flush();
    assert_eq!(sim.connects, [1]);
    sim.advance(FAILOVER_TIMEOUT - SECOND);
    assert_eq!(sim.connects, [1]);
    sim.advance(SECOND);
    assert_eq!(sim.connects, [1, 2]);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// S8-07: a priority that is added below others that are all down is used.
#[test]
fn a_lower_priority_that_is_added_is_used() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.pick_failure();
    sim.plan(tree_of(priorities(&[&[1], &[2], &[3]])));
    assert_eq!(sim.connects, [1, 2, 3]);
    assert!(sim.is_queued());
    sim.ready(&[3]);
    assert_eq!(sim.pick_port(), 3);
}

/// S8-08: without priorities calls fail and say so; with new ones they go on.
#[test]
fn no_priorities_fail_with_a_text() {
    let mut sim = of(&[&[1]]);
    sim.ready(&[1]);
    sim.plan(tree_of(priority(&[])));
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: priority policy has empty priority list"
    );
    assert_eq!(sim.releases, [1]);
    sim.plan(tree_of(priorities(&[&[1]])));
    assert!(sim.is_queued());
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// S8-09: when the READY priority is removed, calls wait for the one above it that is still
/// CONNECTING.
#[test]
fn a_removed_priority_leaves_the_calls_to_one_that_is_connecting() {
    let mut sim = of(&[&[1], &[2]]);
    sim.advance(FAILOVER_TIMEOUT);
    sim.ready(&[2]);
    sim.plan(tree_of(priorities(&[&[1]])));
    assert_eq!(sim.releases, [2]);
    assert!(sim.is_queued());
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// S8-10: children that change places keep their connections, in both directions.
#[test]
fn a_child_that_moves_keeps_its_connections() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    let ids = [sim.id(1), sim.id(2)];
    sim.forget();

    sim.plan(tree_of(priority(&[
        ("child1", zone(&[2])),
        ("child0", zone(&[1])),
    ])));
    assert_eq!(sim.pick_port(), 2);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 2, "it is the first now");
    sim.plan(tree_of(priorities(&[&[1], &[2]])));
    assert_eq!(sim.pick_port(), 1);
    assert_eq!((sim.connects.len(), sim.releases.len()), (0, 0));
    assert_eq!([sim.id(1), sim.id(2)], ids);
}

/// S8-11: when the kind of a child changes, the old one takes the calls until the new one is
/// READY.
#[test]
fn a_child_of_another_kind_takes_over_when_it_is_ready() {
    let mut sim = of(&[&[1], &[9]]);
    sim.ready(&[1]);
    sim.plan(tree_of(priority(&[
        ("child0", priorities(&[&[2]])),
        ("child1", zone(&[9])),
    ])));
    assert_eq!(sim.connects, [1, 2]);
    assert_eq!(sim.pick_port(), 1);
    sim.ready(&[2]);
    assert_eq!(sim.releases, [1]);
    assert_eq!(sim.pick_port(), 2);
    assert!(!sim.connects.contains(&9), "there was no need of it");
}

/// S8-11: the old kind is not kept when it has no connection, nor when the new one fails.
#[test]
fn a_child_of_another_kind_takes_over_from_one_that_is_lost() {
    let next = || priority(&[("child0", priorities(&[&[2]])), ("child1", zone(&[9]))]);
    let mut sim = of(&[&[1], &[9]]);
    sim.ready(&[1]);
    sim.plan(tree_of(next()));
    sim.failing(1, "connection reset");
    assert_eq!(sim.releases, [1]);
    assert!(sim.is_queued(), "2 is CONNECTING");
    assert!(!sim.connects.contains(&9));

    let mut sim = of(&[&[1], &[9]]);
    sim.ready(&[1]);
    sim.plan(tree_of(next()));
    sim.failing(2, "connection refused");
    assert_eq!(sim.releases, [1]);
    assert_eq!(sim.connects, [1, 2, 9]);
}

/// S8-12: a child that a higher one took over from is kept for 15 minutes, and used again as it
/// is if it is needed meanwhile.
#[test]
fn a_child_that_is_not_needed_is_kept_and_used_again() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    sim.forget();

    sim.advance(RETENTION - SECOND);
    sim.failing(1, "connection reset");
    assert_eq!(sim.pick_port(), 2, "without a new connection");
    assert_eq!(sim.connects, []);
    sim.advance(RETENTION);
    assert_eq!(sim.pick_port(), 2, "it is needed: nothing ends it");

    sim.ready(&[1]);
    sim.advance(RETENTION - SECOND);
    assert_eq!(sim.releases, []);
    sim.advance(SECOND);
    assert_eq!(sim.releases, [2]);
    assert_eq!(sim.balancer.held(), (2, 1), "the plan still has endpoint 2");
    sim.failing(1, "connection reset");
    assert_eq!(sim.connects, [2]);
}

/// S8-12: reports of the higher child, and of the one that is kept, do not prolong its life.
#[test]
fn nothing_but_need_prolongs_the_life_of_a_child() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    for _ in 1..15 {
        sim.advance_secs(60);
        sim.ready(&[1, 2]);
    }
    assert_eq!(sim.releases, []);
    sim.advance_secs(60);
    assert_eq!(sim.releases, [2]);
}

/// S8-12, A56: the children below the chosen one are deactivated, and the chosen one is not: no timer
/// runs for it, and nothing ends it.
#[test]
fn only_children_below_the_chosen_one_are_deactivated() {
    let mut sim = of(&[&[1], &[2], &[3], &[4]]);
    sim.ready(&[1]);
    assert_eq!(sim.balancer.next_timeout(), None, "child0 is in use");
    for port in [1, 2, 3] {
        sim.failing(port, "connection refused");
    }
    sim.ready(&[4]);
    sim.ready(&[3]);
    sim.advance(SECOND);
    sim.ready(&[2]);
    sim.forget();
    sim.advance(RETENTION - SECOND);
    assert_eq!(sim.releases, [4], "child3 has not been needed for longest");
    sim.advance(SECOND);
    assert_eq!(sim.releases, [4, 3]);
    assert_eq!(sim.balancer.next_timeout(), None, "child1 is in use");
    assert_eq!(sim.pick_port(), 2);
}

/// S8-12, A56: failures make every child down to the chosen one needed again: their timers are stopped.
#[test]
fn all_children_down_to_the_chosen_one_are_needed_again() {
    let mut sim = of(&[&[1], &[2], &[3]]);
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.ready(&[3, 2, 1]);
    assert!(sim.balancer.next_timeout().is_some(), "two are kept");
    sim.failing(1, "connection reset");
    assert!(sim.balancer.next_timeout().is_some(), "one is kept");
    sim.failing(2, "connection reset");
    assert_eq!(sim.balancer.next_timeout(), None, "all are needed");
    assert_eq!(sim.pick_port(), 3);
}

/// S8-12: a child that leaves the plan goes at once, if the plan keeps none (A115).
#[test]
fn a_removed_child_goes_at_once() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.plan(tree_of(priorities(&[&[1]])));
    assert_eq!(sim.releases, [2]);
    assert_eq!(sim.balancer.held(), (1, 1));
    sim.pick_failure();
}

/// S8-12: a child that leaves the plan is kept for as long as the plan says: it takes no calls
/// meanwhile, and is used again as it is when it returns (A56; names of leaf clusters return).
#[test]
fn a_removed_child_is_kept_and_used_again() {
    let both = || {
        let children = [("first", zone(&[1])), ("second", zone(&[2]))];
        tree_of(priority_kept_for(RETENTION, &children))
    };
    let first = || tree_of(priority_kept_for(RETENTION, &[("first", zone(&[1]))]));
    let mut sim = Sim::new();
    sim.plan(both());
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.forget();

    sim.plan(first());
    sim.pick_failure();
    assert_eq!(sim.releases, []);
    sim.advance(RETENTION - SECOND);
    sim.plan(both());
    assert_eq!(sim.pick_port(), 2);
    assert_eq!((sim.connects.len(), sim.releases.len()), (0, 0));

    sim.plan(first());
    sim.advance(RETENTION);
    assert_eq!(sim.releases, [2]);
    sim.plan(both());
    assert_eq!(sim.connects, [2]);
    assert!(sim.is_queued());
}

/// S8-12: a child that returns but is not needed is not kept any longer for that.
#[test]
fn a_child_that_returns_unneeded_goes_when_its_time_is_up() {
    let children = [("first", zone(&[1])), ("second", zone(&[2]))];
    let both = tree_of(priority_kept_for(RETENTION, &children));
    let mut sim = Sim::new();
    sim.plan(both.clone());
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    sim.plan(tree_of(priority_kept_for(RETENTION, &children[..1])));
    sim.advance(RETENTION / 2);
    sim.plan(both);
    assert_eq!(sim.pick_port(), 1);
    sim.advance(RETENTION / 2);
    assert_eq!(sim.releases, [2]);
}

/// S8-13: a batch of updates makes one picker, whatever it does to the children.
#[test]
fn one_picker_per_flush() {
    let mut sim = of(&[&[1], &[2], &[3]]);
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.ready(&[3]);
    sim.forget();

    let (one, two) = (sim.id(1), sim.id(2));
    sim.handle(BalancerEvent::Endpoint {
        id: one,
        state: ready_at(1),
    });
    sim.handle(BalancerEvent::Endpoint {
        id: two,
        state: ready_at(2),
    });
    sim.handle(BalancerEvent::Plan(
        tree_of(priority(&[
            ("child1", zone(&[2])),
            ("child0", zone(&[1])),
            ("child2", zone(&[3, 4])),
        ]))
        .into(),
    ));
    sim.flush();
    assert_eq!(sim.publishes, 1);
    assert_eq!(sim.pick_port(), 2);
}

/// S8-15: a report of a child that is gone or not needed changes nothing.
#[test]
fn late_reports_change_nothing() {
    let mut sim = of(&[&[1], &[2]]);
    sim.failing(1, "connection refused");
    sim.ready(&[2]);
    sim.ready(&[1]);
    sim.forget();
    sim.failing(2, "connection reset");
    sim.ready(&[2]);
    assert_eq!((sim.pick_port(), sim.publishes), (1, 0));

    let late = sim.id(2);
    sim.plan(tree_of(priorities(&[&[1]])));
    for state in [
        ready_at(2),
        EndpointState::TransientFailure("late".into()),
        EndpointState::Idle,
    ] {
        sim.handle(BalancerEvent::Endpoint { id: late, state });
        sim.flush();
    }
    assert_eq!(
        (sim.pick_port(), sim.publishes, &sim.connects[..]),
        (1, 0, &[][..])
    );
}

/// S8-16: a lost connection is a reason to look names up again, unless its child says that it is
/// none.
#[test]
fn names_are_looked_up_again_per_child() {
    let child = |name: &str, port, ignore_reresolution| PriorityChild {
        name: name.into(),
        node: zone(&[port]),
        ignore_reresolution,
    };
    let mut sim = Sim::new();
    sim.plan(tree_of(Node::Priority(Arc::new(Priority {
        children: vec![child("eds", 1, true), child("dns", 2, false)],
        keep_removed: RETENTION,
    }))));
    sim.ready(&[1]);
    sim.idle(1);
    sim.failing(1, "connection refused");
    assert_eq!(sim.reresolves, 0);
    sim.failing(2, "connection refused");
    assert_eq!(sim.reresolves, 1);
    sim.ready(&[2]);
    sim.idle(2);
    assert_eq!(sim.reresolves, 2);
}

/// S8-16: a child above that ignores it does so for all that is below it.
#[test]
fn a_child_that_ignores_reresolution_does_so_for_all_below() {
    let below = Node::Priority(Arc::new(Priority {
        children: vec![PriorityChild {
            name: "dns".into(),
            node: zone(&[1]),
            ignore_reresolution: false,
        }],
        keep_removed: RETENTION,
    }));
    let mut sim = Sim::new();
    sim.plan(tree_of(priority(&[("eds", below)])));
    sim.failing(1, "connection refused");
    assert_eq!(sim.reresolves, 0);
}

/// A tree whose kind of root changes is replaced as gracefully as one of its nodes.
#[test]
fn a_root_of_another_kind_takes_over_when_it_is_ready() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(tree_of(priorities(&[&[2], &[3]])));
    assert_eq!(sim.connects, [2]);
    assert_eq!((sim.pick_port(), sim.publishes), (1, 0));
    sim.failing(2, "connection refused");
    assert_eq!(sim.connects, [2, 3]);
    assert_eq!(sim.pick_port(), 1, "3 is CONNECTING");
    sim.ready(&[3]);
    assert_eq!(sim.pick_port(), 3);
    assert_eq!(sim.releases, [1]);
}

/// A balancer that has priorities at these ports.
fn of(ports: &[&[Port]]) -> Sim {
    let mut sim = Sim::new();
    let plan: Plan = tree_of(priorities(ports));
    sim.plan(plan);
    sim
}
