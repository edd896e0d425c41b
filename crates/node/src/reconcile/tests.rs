//! A full map costs little, however many frontends it has no room for.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::{MOST_FAILURES, Reconciler};
use crate::maps::memory::MemoryMaps;
use crate::model::Protocol;
use crate::select::{Frontend, Route, Target, Without};

fn frontend(number: u16) -> Frontend {
    let [high, low] = number.to_be_bytes();
    Frontend {
        address: [10, 96, high, low].into(),
        port: 80,
        protocol: Protocol::Tcp,
    }
}

fn route(frontend: u16, backends: u16) -> Arc<Route> {
    let [high, low] = frontend.to_be_bytes();
    let targets = (0..backends).map(|port| Target {
        address: ([10, high, low, 1], 8000 + port).into(),
        weight: NonZeroU32::MIN,
    });
    Arc::new(Route {
        targets: targets.collect(),
        affinity: None,
        without: Without::Refused,
    })
}

/// Maps with room for 10 entries each, and these frontends with one backend each.
fn full(frontends: u16) -> Reconciler<MemoryMaps> {
    let maps = MemoryMaps {
        capacity: 10,
        ..MemoryMaps::default()
    };
    let mut reconciler = Reconciler::adopt(maps).unwrap();
    for number in 0..frontends {
        reconciler.want(frontend(number), Some(route(number, 1)));
    }
    reconciler
}

/// N-78: a change of one frontend does not try again those that the maps have no room for, unless it is of one of them.
/// A failure is new once, and again if its reason is another one.
#[test]
fn a_change_tries_no_other_frontend_again() {
    let mut maps = full(30);
    let outcome = maps.change();
    assert_eq!((outcome.switched, outcome.failed.len()), (10, 20));
    assert_eq!(outcome.newly_failed, outcome.failed);

    maps.want(frontend(0), Some(route(0, 0)));
    let outcome = maps.change();
    assert_eq!((outcome.switched, outcome.failed.len()), (1, 0));
    maps.want(frontend(29), Some(route(28, 1)));
    let outcome = maps.change();
    assert_eq!((outcome.failed.len(), outcome.newly_failed.len()), (1, 0));

    // A retry tries all of them, and has nothing new to say.
    let outcome = maps.reconcile();
    assert_eq!((outcome.failed.len(), outcome.newly_failed.len()), (20, 0));
    assert_eq!(maps.failed().len(), 20);
    let reason = maps.failed()[&frontend(28)].to_string();
    assert_eq!(reason, "the map `backends` is full");
    maps.sweep();
    maps.sweep();
    // There is a free backend and a free slot by now, but no free entry of a frontend.
    let outcome = maps.reconcile();
    assert_eq!((outcome.switched, outcome.newly_failed.len()), (0, 20));
    let reason = maps.failed()[&frontend(28)].to_string();
    assert_eq!(reason, "the map `svc` is full");

    // A frontend that is wanted no more is tried no more.
    for number in 10..29 {
        maps.want(frontend(number), None);
    }
    assert_eq!(maps.change().failed, []);
    assert_eq!(maps.reconcile().failed.len(), 1);
    maps.want(frontend(1), None);
    maps.change();
    let outcome = maps.reconcile();
    assert_eq!((outcome.switched, outcome.failed.len()), (1, 0));
    assert!(maps.failed().is_empty());
}

/// N-78: a retry ends after a number of failures, and the next one goes on behind it, so that each frontend gets its turn.
#[test]
fn a_retry_is_short_and_the_next_one_goes_on() {
    let most = u16::try_from(MOST_FAILURES).unwrap();
    let mut maps = full(10 + 2 * most + 5);
    assert_eq!(maps.change().failed.len(), usize::from(2 * most + 5));
    let mut tried = Vec::new();
    for _ in 0..3 {
        let failed = maps.reconcile().failed;
        assert_eq!(failed.len(), MOST_FAILURES);
        tried.extend(failed.into_iter().map(|(frontend, _)| frontend));
    }
    let all: Vec<Frontend> = (10..).map(frontend).take(2 * MOST_FAILURES + 5).collect();
    assert_eq!(tried[..all.len()], all);
    assert_eq!(tried[all.len()..], all[..tried.len() - all.len()]);
}

/// N-78: the numbers of a change that failed are free at once.
#[test]
fn a_failed_change_keeps_no_numbers() {
    let mut maps = full(30);
    maps.change();
    let numbers = |maps: &Reconciler<MemoryMaps>| {
        [
            maps.services.len(),
            maps.generations.len(),
            maps.backends.ids.len(),
        ]
    };
    assert_eq!(numbers(&maps), [10, 10, 10]);
    maps.want(frontend(0), Some(route(0, 5)));
    maps.change();
    for _ in 0..10 {
        maps.reconcile();
    }
    assert_eq!(numbers(&maps), [10, 10, 10]);
}
