//! Tests of `least_request`, which sends a call to the least busy of a few endpoints drawn at
//! random. The draw is checked by shares, because a wrong one does not show in single calls.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::collections::BTreeMap;

use crowfly_lb::{ChoiceCount, Policy};
use leaf::leaf;
use sim::{Picked, Sim, endpoints_at};

fn least_request(choices: u32) -> Policy {
    Policy::LeastRequest(ChoiceCount::new(choices).unwrap())
}

#[test]
fn less_than_two_choices_are_none_and_more_than_ten_are_ten() {
    assert_eq!(ChoiceCount::new(0), None);
    assert_eq!(ChoiceCount::new(1), None);
    assert_eq!(ChoiceCount::new(2), Some(ChoiceCount::default()));
    assert_eq!(ChoiceCount::new(11), ChoiceCount::new(10));
    assert_eq!(ChoiceCount::new(u32::MAX).unwrap().get(), 10);
}

/// With ten choices of two, the busier one is taken when all ten are it: once in 1024 picks.
#[test]
fn calls_go_to_the_endpoint_with_fewer_open_calls() {
    let mut sim = Sim::ready_with(leaf(least_request(10), endpoints_at(&[1, 2])));
    let mut open = BTreeMap::new();
    let mut calls = Vec::new();
    for _ in 0..1000 {
        let Picked::Ready(call) = sim.pick() else {
            panic!("both are ready");
        };
        *open.entry(*call.transport()).or_insert(0_i32) += 1;
        calls.push(call);
        let imbalance = open.get(&1).unwrap_or(&0) - open.get(&2).unwrap_or(&0);
        assert!(imbalance.abs() <= 2, "{open:?}");
    }

    // One of them gets rid of its calls: it takes the next ones until it is as busy.
    calls.retain(|call| *call.transport() == 1);
    let mut quick = 0;
    for _ in 0..300 {
        if let Picked::Ready(call) = sim.pick() {
            quick += i32::from(*call.transport() == 2);
            calls.push(call);
        }
    }
    assert!(quick >= 297, "{quick} of 300");
}

/// An idle list is picked from evenly: equally busy endpoints do not favour the first of the list.
#[test]
fn without_open_calls_each_endpoint_gets_its_part() {
    let mut sim = Sim::ready_with(leaf(least_request(2), endpoints_at(&[1, 2, 3, 4])));
    for (port, picks) in sim.count(4000) {
        assert!((850..1150).contains(&picks), "{picks} picks of {port}");
    }
}

/// Endpoints are connected eagerly; only those that are READY are chosen from, and a list that is
/// not usable yet waits, as with round_robin.
#[test]
fn lists_and_states_are_those_of_round_robin() {
    let mut sim = Sim::new();
    sim.plan(leaf(least_request(2), endpoints_at(&[1, 2])));
    assert_eq!(sim.connects, [1, 2]);
    assert!(sim.is_queued());

    sim.ready(&[1]);
    assert_eq!(sim.count(20), BTreeMap::from([(1, 20)]));
    sim.failing(2, "refused");

    sim.plan(leaf(least_request(2), endpoints_at(&[3])));
    assert_eq!(sim.count(20), BTreeMap::from([(1, 20)]));
    sim.ready(&[3]);
    assert_eq!(sim.count(20), BTreeMap::from([(3, 20)]));

    sim.failing(3, "gone");
    assert!(sim.pick_failure().contains("127.0.0.1:3: gone"));
}

/// Another number of choices is no reason to connect anew.
#[test]
fn the_number_of_choices_can_change() {
    let mut sim = Sim::ready_with(leaf(least_request(2), endpoints_at(&[1, 2])));
    sim.plan(leaf(least_request(3), endpoints_at(&[1, 2])));
    assert_eq!((sim.connects.len(), sim.publishes), (0, 1));
    assert_eq!(sim.count(100).len(), 2);
}

#[test]
fn a_pick_allocates_nothing() {
    let ports: Vec<_> = (1..=100).collect();
    let mut sim = Sim::ready_with(leaf(least_request(5), endpoints_at(&ports)));
    assert_eq!(leaf::allocations_of_picks(&mut sim), 0);
}
