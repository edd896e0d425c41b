//! Tests of round_robin: turns, lists that replace one another, and states. The lists follow the
//! rules of all policies that connect each endpoint for itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc};

use crowfly_lb::{Locality, LocalityId, Node, Plan};
use sim::{CLUSTER, Picked, Sim, endpoint, flat, noted, ready_at};

/// S10-01: every endpoint gets the same number of calls, one after the other.
#[test]
fn endpoints_take_turns() {
    let mut sim = Sim::ready_with(flat(&[1, 2, 3, 4, 5]));
    let order: Vec<_> = (0..5).map(|_| sim.pick_port()).collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 5);
    for _ in 0..20 {
        let again: Vec<_> = (0..5).map(|_| sim.pick_port()).collect();
        assert_eq!(again, order);
    }
}

/// S10-01: the first endpoint that is picked is random, by the seed only: clients that start
/// together do not all call the same backend.
#[test]
fn the_start_is_random_and_decided_by_the_seed() {
    let first = |seed| {
        let mut sim = Sim::with_seed(seed);
        sim.plan(flat(&[1, 2, 3, 4]));
        sim.ready(&[1, 2, 3, 4]);
        sim.pick_port()
    };
    let firsts: BTreeSet<_> = (0..64).map(first).collect();
    assert_eq!(firsts.len(), 4);
    assert_eq!(first(7), first(7));
}

/// S10-01: a change of state does not restart the turns.
#[test]
fn a_recompile_does_not_restart_the_turns() {
    let mut sim = Sim::ready_with(flat(&[1, 2, 3]));
    let order: Vec<_> = (0..3).map(|_| sim.pick_port()).collect();
    for turn in 0..30 {
        sim.ready(&[2]);
        assert_eq!(
            sim.publishes,
            turn + 1,
            "a new connection makes a new picker"
        );
        assert_eq!(sim.pick_port(), order[turn % 3]);
    }
}

/// S10-01: while one endpoint comes and goes, the place in the list gives no other an advantage.
#[test]
fn changes_do_not_favour_the_first_endpoints() {
    let mut sim = Sim::ready_with(flat(&[1, 2, 3, 4, 5]));
    let mut rng = fastrand::Rng::with_seed(5);
    let mut counts = [0_u32; 5];
    for change in 0..2_000 {
        if change % 2 == 0 {
            sim.connecting(5);
        } else {
            sim.ready(&[5]);
        }
        for _ in 0..rng.u32(1..4) {
            counts[usize::from(sim.pick_port()) - 1] += 1;
        }
    }
    // About 900 each of 4,000; a start at index 0 after each change would give 1 half of all.
    assert!(
        counts[..4].iter().all(|count| (800..1_000).contains(count)),
        "{counts:?}"
    );
}

/// S10-01: a list in which nothing is usable yet waits while the old one serves.
#[test]
fn a_new_list_is_pending_until_it_has_a_ready_endpoint_and_all_reported() {
    let mut sim = Sim::ready_with(flat(&[1, 2]));
    sim.plan(flat(&[3, 4]));
    assert_eq!(sim.count(10).into_keys().collect::<Vec<_>>(), [1, 2]);

    sim.ready(&[3]);
    assert_eq!(
        sim.count(10).into_keys().collect::<Vec<_>>(),
        [1, 2],
        "4 has not reported"
    );
    assert_eq!(sim.releases, []);
    sim.connecting(4);
    assert_eq!(sim.count(10).into_keys().collect::<Vec<_>>(), [3]);
    assert_eq!(sim.releases, [1, 2]);
}

/// S10-01: the pending list takes over at once when the one in use has no READY endpoint left.
#[test]
fn a_new_list_replaces_one_that_serves_nothing() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(flat(&[2]));
    sim.failing(1, "connection reset");
    assert_eq!(sim.releases, [1]);
    assert!(sim.is_queued(), "2 is still connecting");
}

/// S10-01: a new list that cannot be reached at all replaces the old one: the control plane has
/// said that the old backends are not to be used.
#[test]
fn a_new_list_replaces_the_old_when_all_of_it_has_failed() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(flat(&[2, 3]));
    sim.failing(2, "connection refused");
    assert_eq!(sim.pick_port(), 1);
    sim.failing(3, "no route to host");
    assert_eq!(sim.releases, [1]);
    assert!(
        sim.pick_failure()
            .ends_with("last error: 127.0.0.1:3: no route to host")
    );
}

/// S10-01: a list of endpoints that all have reported replaces the old one at once.
#[test]
fn a_shorter_list_takes_effect_at_once() {
    let mut sim = Sim::ready_with(flat(&[1, 2, 3]));
    sim.plan(flat(&[3, 1]));
    assert_eq!(sim.releases, [2]);
    assert_eq!(sim.count(10).into_keys().collect::<Vec<_>>(), [1, 3]);
}

/// S10-01: a list that was never used leaves with its endpoints, but for those that are in the next.
#[test]
fn a_pending_list_is_replaced_by_the_next() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(flat(&[2, 3]));
    sim.forget();
    sim.plan(flat(&[3, 4]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[4][..], &[2][..]));
    assert_eq!(sim.pick_port(), 1);
    sim.forget();
    sim.plan(flat(&[1]));
    assert_eq!(
        (&sim.connects[..], &sim.releases[..]),
        (&[][..], &[3, 4][..])
    );
    assert_eq!(sim.pick_port(), 1);
}

/// S10-02: an empty list fails at once, also when the old one is READY; it heals.
#[test]
fn an_empty_list_fails_and_heals() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(noted(flat(&[]), "every endpoint is unhealthy"));
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: no endpoints in us/a (every endpoint is unhealthy)"
    );
    assert_eq!(sim.releases, [1]);
    sim.plan(flat(&[2]));
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
}

/// S10-02: a first list that is empty fails too, rather than wait for ever.
#[test]
fn a_first_list_that_is_empty_fails() {
    let mut sim = Sim::new();
    sim.plan(flat(&[]));
    assert_eq!(sim.pick_failure(), "cluster payments: no endpoints in us/a");
}

/// S10-02: when all endpoints fail, the text has the last error and the note.
#[test]
fn a_failure_tells_the_last_error_and_the_note() {
    let mut sim = Sim::new();
    sim.plan(flat(&[1, 2]));
    sim.failing(2, "connection refused");
    sim.failing(1, "timed out");
    let text = "cluster payments: no connection to any endpoint in us/a; last error: 127.0.0.1:";
    assert_eq!(sim.pick_failure(), format!("{text}1: timed out"));
    sim.failing(2, "no route to host");
    assert_eq!(sim.pick_failure(), format!("{text}2: no route to host"));
    sim.plan(noted(flat(&[1, 2]), "xDS server unreachable"));
    assert_eq!(
        sim.pick_failure(),
        format!("{text}2: no route to host (xDS server unreachable)")
    );
}

/// TRANSIENT_FAILURE is sticky until READY (A61): attempts to reconnect do not make calls wait.
#[test]
fn a_failed_endpoint_fails_until_it_is_ready() {
    let mut sim = Sim::new();
    sim.plan(flat(&[1]));
    assert!(sim.is_queued());
    sim.failing(1, "connection refused");
    sim.connecting(1);
    assert!(sim.pick_failure().contains("connection refused"));
    sim.idle(1);
    assert!(sim.pick_failure().contains("connection refused"));
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
    sim.connecting(1);
    assert!(sim.is_queued(), "after READY it counts as connecting again");
}

/// S10-01: an IDLE endpoint is asked to connect again and counts as connecting (A61).
#[test]
fn an_idle_endpoint_is_connected_again() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.idle(1);
    assert_eq!(sim.connects, [1]);
    assert!(sim.is_queued());
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// Calls go to a new connection of the same endpoint as soon as it is reported.
#[test]
fn a_new_connection_replaces_the_old_one() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.report(1, ready_at(99));
    assert_eq!(sim.pick_port(), 99);
}

/// S7-08: an endpoint with several addresses takes one turn, and so does one that is listed twice.
#[test]
fn an_endpoint_counts_once() {
    let of = |endpoints: Vec<_>| Plan {
        cluster: CLUSTER.into(),
        root: Node::Localities(Arc::from([Locality {
            id: LocalityId::new("us", "a", ""),
            weight: NonZeroU32::MIN,
            child: Node::round_robin(endpoints),
        }])),
        note: None,
    };
    let mut sim = Sim::new();
    sim.plan(of(vec![
        endpoint(&[1, 101]),
        endpoint(&[2]),
        endpoint(&[101, 1]),
    ]));
    assert_eq!(sim.connects, [1, 2]);
    sim.ready(&[1, 2]);
    assert_eq!(sim.count(10).into_values().collect::<Vec<_>>(), [5, 5]);

    sim.forget();
    sim.plan(of(vec![endpoint(&[101, 1]), endpoint(&[2])]));
    assert_eq!(
        (sim.connects.len(), sim.releases.len()),
        (0, 0),
        "an order is no identity"
    );
    sim.idle(1);
    assert_eq!(
        sim.connects,
        [101],
        "the next attempt follows the new order"
    );
}

/// A call is open on its endpoint until its token is dropped, also after the endpoint was left.
#[test]
fn a_call_is_in_flight_until_it_is_dropped() {
    let mut sim = Sim::ready_with(flat(&[1]));
    let calls: Vec<_> = (0..3).map(|_| sim.pick()).collect();
    assert_eq!((sim.view(1).picks, sim.view(1).in_flight), (3, 3));
    sim.report(1, ready_at(1));
    assert_eq!(sim.view(1).in_flight, 3, "counters outlive a connection");
    drop(calls);
    assert_eq!((sim.view(1).picks, sim.view(1).in_flight), (3, 0));

    let Picked::Ready(call) = sim.pick() else {
        panic!("not ready")
    };
    sim.plan(flat(&[]));
    assert_eq!(call.locality().to_string(), "us/a");
    assert_eq!((*call.transport(), call.addresses()[0].port()), (1, 1));
}
