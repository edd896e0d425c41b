//! The maps follow the table through faults and restarts, and no frontend is ever seen
//! half-changed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crowfly_node::maps::faulty::FaultyMaps;
use crowfly_node::maps::memory::{MemoryMaps, Shares};
use crowfly_node::maps::{Counters, Operation, Pair};
use crowfly_node::model::Protocol;
use crowfly_node::reconcile::{Outcome, Reconciler};
use crowfly_node::select::{Frontend, Route, Target, Without};
use proptest::prelude::*;

/// N-23, N-24: backends and a whole generation of slots come before the switch; the old generation goes
/// later, because programs may be reading it.
#[test]
fn a_change_is_written_before_it_is_seen() {
    let mut maps = Reconciler::adopt(recorded()).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1)], None)));
    maps.reconcile();
    assert_eq!(
        take(&mut maps),
        ["put backend 1", "put slot 1.1.0", "switch"]
    );

    maps.want(frontend(1), Some(route(&[(1, 1), (2, 3)], Some(60))));
    maps.reconcile();
    let expected = [
        "put backend 2",
        "put slot 1.2.0",
        "put slot 1.2.1",
        "put member 1.1",
        "put member 1.2",
        "switch",
    ];
    assert_eq!(take(&mut maps), expected);
    maps.sweep();
    assert_eq!(
        take(&mut maps),
        [""; 0],
        "programs may be reading the old slots"
    );
    maps.sweep();
    assert_eq!(take(&mut maps), ["delete slot 1.1.0"]);

    // A member that leaves does so at once; its backend later.
    maps.want(frontend(1), Some(route(&[(2, 3)], Some(60))));
    maps.reconcile();
    assert_eq!(
        take(&mut maps),
        ["put slot 1.3.0", "switch", "delete member 1.1"]
    );
    maps.sweep();
    maps.sweep();
    let swept: BTreeSet<_> = take(&mut maps).into_iter().collect();
    let expected = ["delete slot 1.2.0", "delete slot 1.2.1", "delete backend 1"];
    assert_eq!(swept, expected.map(str::to_owned).into());

    // Another timeout alone needs no new slots.
    maps.want(frontend(1), Some(route(&[(2, 3)], Some(30))));
    maps.reconcile();
    assert_eq!(take(&mut maps), ["switch"]);
    assert!(!maps.has_garbage());
}

/// N-25: a service that goes leaves nothing behind.
#[test]
fn a_deleted_service_leaves_empty_maps() {
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1), (2, 1)], Some(60))));
    maps.reconcile();
    maps.want(frontend(1), None);
    assert_eq!(maps.reconcile().removed, 1);
    maps.sweep();
    maps.sweep();
    let maps = maps.into_maps();
    assert!(maps.services.is_empty() && maps.slots.is_empty());
    assert!(maps.backends.is_empty() && maps.members.is_empty());
}

/// N-76: a restart takes over what is there: the same table changes nothing, and numbers stay.
#[test]
fn a_restart_adopts_the_maps() {
    let routes = [
        route(&[(1, 9), (2, 1), (3, 4)], None),
        route(&[(2, 1)], Some(60)),
        route(&[], None),
    ];
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    for (index, route) in (1..).zip(&routes) {
        maps.want(frontend(index), Some(Arc::clone(route)));
    }
    assert_eq!(maps.reconcile().switched, 3);
    let mut maps = Reconciler::adopt(maps.into_maps()).unwrap();
    assert!(!maps.has_garbage());
    for (index, route) in (1..).zip(&routes) {
        maps.want(frontend(index), Some(Arc::clone(route)));
    }
    assert_eq!(maps.reconcile(), Outcome::default());

    // Deleted meanwhile, and one that is new: no number comes back.
    maps.want(frontend(2), None);
    maps.want(frontend(4), Some(route(&[(2, 1)], None)));
    maps.reconcile();
    let services = &maps.maps().services;
    assert_eq!(services[&frontend(4)].service.0, 4);
}

/// N-76: what a killed agent left half-written is not used, and is removed.
#[test]
fn a_restart_cleans_up_behind_a_killed_agent() {
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1)], None)));
    maps.reconcile();
    let kept = maps.maps().clone();
    // Killed before the switch: the new slots and backends are there.
    let mut is_dead = false;
    let mut fails = Reconciler::adopt(FaultyMaps {
        maps: kept,
        fails: move |operation: &Operation| {
            is_dead |= matches!(operation, Operation::PutService(..));
            is_dead
        },
        watch: |_: &Operation, _: &MemoryMaps| {},
    })
    .unwrap();
    fails.want(frontend(1), Some(route(&[(2, 1), (3, 1)], Some(60))));
    assert_eq!(fails.reconcile().failed.len(), 1);
    let left = fails.into_maps().maps;
    assert_eq!((left.slots.len(), left.backends.len()), (3, 3));

    let mut maps = Reconciler::adopt(left).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1)], None)));
    assert_eq!(maps.reconcile(), Outcome::default());
    maps.sweep();
    maps.sweep();
    let maps = maps.into_maps();
    assert_eq!((maps.slots.len(), maps.backends.len()), (1, 1));
    assert!(maps.members.is_empty());
}

/// N-76: slots that are not a whole generation are not used again, although they are those that are wanted.
#[test]
fn half_a_generation_is_written_anew() {
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1), (2, 1)], None)));
    maps.reconcile();
    let mut left = maps.into_maps();
    left.slots.retain(|key, _| key.index == 1);
    let mut maps = Reconciler::adopt(left).unwrap();
    maps.want(frontend(1), Some(route(&[(2, 1)], None)));
    assert_eq!(maps.reconcile().switched, 1);
    let shares = maps.maps().shares(&frontend(1)).unwrap().unwrap();
    let backends: Vec<_> = shares.shares.into_keys().collect();
    assert_eq!(backends, ["10.244.0.2:8080".parse().unwrap()]);
}

/// N-76: the slots that are left of a generation in force are used until its source is heard, and then they go.
#[test]
fn half_a_generation_stays_until_it_is_written_anew() {
    for wanted in [route(&[(2, 1)], None), route(&[], None)] {
        let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
        maps.want(frontend(1), Some(route(&[(1, 1), (2, 1)], None)));
        maps.reconcile();
        let mut left = maps.into_maps();
        left.slots.retain(|key, _| key.index == 1);
        let mut maps = Reconciler::adopt(left.clone()).unwrap();
        for _ in 0..2 {
            maps.sweep();
        }
        assert_eq!(maps.maps().slots, left.slots);
        let backend = left.slots.values().next().unwrap().second;
        assert!(maps.maps().backends.contains_key(&backend));

        maps.want(frontend(1), Some(Arc::clone(&wanted)));
        assert_eq!(maps.reconcile().switched, 1);
        for _ in 0..2 {
            maps.sweep();
        }
        let backends = wanted.targets.len();
        let maps = maps.into_maps();
        assert_eq!(
            (maps.slots.len(), maps.backends.len()),
            (backends, backends)
        );
    }
}

/// N-78: a full map fails the service that needs room, and no other; it is tried again.
#[test]
fn a_full_map_fails_one_service_alone() {
    let maps = MemoryMaps {
        capacity: 3,
        ..MemoryMaps::default()
    };
    let mut maps = Reconciler::adopt(maps).unwrap();
    let small = route(&[(1, 1)], None);
    let large = route(&[(1, 1), (2, 1), (3, 1)], None);
    maps.want(frontend(1), Some(Arc::clone(&small)));
    maps.want(frontend(2), Some(large));
    maps.want(frontend(3), Some(small));
    let outcome = maps.reconcile();
    assert_eq!(outcome.switched, 2);
    let [(failed, error)] = outcome.failed.as_slice() else {
        panic!("{outcome:?}");
    };
    assert_eq!(*failed, frontend(2));
    assert_eq!(error.to_string(), "the map `slots` is full");
    assert!(maps.failed().contains_key(&frontend(2)));
    assert!(!maps.is_programmed(&frontend(2)));

    // Room: the next try succeeds.
    maps.want(frontend(1), None);
    maps.want(frontend(3), None);
    maps.reconcile();
    maps.sweep();
    maps.sweep();
    let outcome = maps.reconcile();
    assert_eq!((outcome.switched, outcome.failed.len()), (1, 0));
    assert!(maps.failed().is_empty());
}

/// N-71: counters that connections still refer to stay, and so do their numbers.
#[test]
fn counters_outlive_their_service_while_connections_are_open() {
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    maps.want(frontend(1), Some(route(&[(1, 1)], None)));
    maps.reconcile();
    let pair = Pair {
        service: maps.maps().services[&frontend(1)].service,
        backend: *maps.maps().backends.keys().next().unwrap(),
    };
    let mut counters = Counters {
        opened: 2,
        established: 2,
        failed: 0,
        closed: 1,
    };
    maps.maps_mut().counters.insert(pair, counters);
    maps.want(frontend(1), None);
    maps.reconcile();
    maps.sweep();
    maps.sweep();
    maps.prune_counters(|_, _| true).unwrap();
    assert_eq!(maps.maps().counters[&pair], counters);
    counters.closed = 2;
    maps.maps_mut().counters.insert(pair, counters);
    maps.prune_counters(|_, _| true).unwrap();
    assert_eq!(maps.maps().counters[&pair], counters, "not at first sight");
    maps.prune_counters(|_, _| false).unwrap();
    assert_eq!(maps.maps().counters[&pair], counters, "not reported yet");
    let kept = maps.prune_counters(|_, _| true).unwrap();
    assert!(maps.maps().counters.is_empty());
    assert!(kept.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// N-76, N-78: after any sequence of tables, faults, sweeps and restarts the maps equal the
    /// last table. After every single operation each frontend is whole: as it was, or as it is
    /// wanted.
    #[test]
    fn the_maps_equal_the_last_table(steps in prop::collection::vec(step(), 1..25)) {
        let expectations = Rc::new(RefCell::new(Expectations::default()));
        let mut maps = Reconciler::adopt(watched(MemoryMaps::default(), &expectations)).unwrap();
        for step in steps {
            for (frontend, route) in step.changes {
                expectations.borrow_mut().wanted.insert(frontend, route.clone());
                maps.want(frontend, route);
            }
            expectations.borrow_mut().faults = step.faults.into();
            let outcome = maps.reconcile();
            expectations.borrow_mut().reconciled(&outcome);
            for _ in 0..step.sweeps {
                maps.sweep();
            }
            if step.restart {
                expectations.borrow_mut().faults.clear();
                maps = Reconciler::adopt(watched(maps.into_maps().maps, &expectations)).unwrap();
                let wanted = expectations.borrow().wanted.clone();
                for (frontend, route) in wanted {
                    maps.want(frontend, route);
                }
            }
        }
        expectations.borrow_mut().faults.clear();
        for _ in 0..4 {
            let outcome = maps.reconcile();
            prop_assert!(outcome.failed.is_empty());
            expectations.borrow_mut().reconciled(&outcome);
            maps.sweep();
        }
        prop_assert!(!maps.has_garbage());
        let maps = maps.into_maps().maps;
        expectations.borrow().is_all_there(&maps);
    }
}

#[derive(Clone, Debug)]
struct Step {
    changes: Vec<(Frontend, Option<Arc<Route>>)>,
    /// The next operations, with true for each that fails.
    faults: Vec<bool>,
    sweeps: usize,
    restart: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let targets = prop::collection::btree_map(1..6_u8, 1..5_u32, 0..5);
    let affinity = prop::option::of(1..3_u64);
    let a_route = (targets, affinity).prop_map(|(targets, affinity)| {
        let targets: Vec<_> = targets.into_iter().collect();
        route(&targets, affinity)
    });
    let change = (
        (1..5_u8).prop_map(frontend),
        prop::option::weighted(0.8, a_route),
    );
    (
        prop::collection::vec(change, 0..4),
        prop::collection::vec(prop::bool::weighted(0.2), 0..12),
        0..3_usize,
        prop::bool::weighted(0.15),
    )
        .prop_map(|(changes, faults, sweeps, restart)| Step {
            changes,
            faults,
            sweeps,
            restart,
        })
}

type Table = BTreeMap<Frontend, Option<Arc<Route>>>;

#[derive(Default)]
struct Expectations {
    in_force: Table,
    wanted: Table,
    faults: VecDeque<bool>,
}

impl Expectations {
    fn reconciled(&mut self, outcome: &Outcome) {
        for (frontend, route) in &self.wanted {
            if outcome.failed.iter().all(|(failed, _)| failed != frontend) {
                self.in_force.insert(*frontend, route.clone());
            }
        }
    }

    /// Each frontend is whole, and as it was or as it is wanted.
    fn check(&self, maps: &MemoryMaps) {
        let frontends = self.wanted.keys().chain(maps.services.keys());
        for frontend in frontends {
            let seen = maps
                .shares(frontend)
                .unwrap_or_else(|hole| panic!("{hole}"));
            let is = |table: &Table| {
                let route = table.get(frontend).cloned().flatten();
                looks_like(seen.as_ref(), route.as_deref())
            };
            assert!(
                is(&self.in_force) || is(&self.wanted),
                "{frontend}: {seen:?}"
            );
        }
    }

    fn is_all_there(&self, maps: &MemoryMaps) {
        let routes = || self.wanted.values().flatten();
        assert_eq!(maps.services.len(), routes().count());
        let slots = routes().map(|route| route.targets.len());
        assert_eq!(maps.slots.len(), slots.sum::<usize>());
        let backends = routes().flat_map(|route| &route.targets);
        let backends: BTreeSet<_> = backends.map(|target| target.address).collect();
        assert_eq!(
            maps.backends.values().copied().collect::<BTreeSet<_>>(),
            backends
        );
        assert_eq!(maps.backends.len(), backends.len());
        let sticky = routes().filter(|route| route.affinity.is_some());
        let members = sticky.map(|route| route.targets.len());
        assert_eq!(maps.members.len(), members.sum::<usize>());
        for (frontend, route) in &self.wanted {
            let seen = maps.shares(frontend).unwrap();
            assert!(looks_like(seen.as_ref(), route.as_deref()), "{frontend}");
        }
    }
}

/// True if connections see this route. Shares may be off by one part in 2^32 for each slot.
fn looks_like(seen: Option<&Shares>, route: Option<&Route>) -> bool {
    let (Some(seen), Some(route)) = (seen, route) else {
        return seen.is_none() && route.is_none();
    };
    let affinity = route.affinity.map_or(0, |timeout| timeout.as_secs());
    if u64::from(seen.entry.affinity) != affinity || seen.entry.without != route.without {
        return false;
    }
    let count = route.targets.len() as u64;
    let total: u64 = route
        .targets
        .iter()
        .map(|it| u64::from(it.weight.get()))
        .sum();
    let expected = route.targets.iter().map(|target| {
        let share = ((u64::from(target.weight.get()) * count) << 32) / total;
        (target.address, share)
    });
    let expected: BTreeMap<_, _> = expected.collect();
    expected.len() == seen.shares.len()
        && expected.iter().all(|(address, share)| {
            let seen = seen.shares.get(address);
            seen.is_some_and(|seen| seen.abs_diff(*share) <= count)
        })
}

type Fails = Box<dyn FnMut(&Operation) -> bool>;
type Watch = Box<dyn FnMut(&Operation, &MemoryMaps)>;

fn watched(
    maps: MemoryMaps,
    expectations: &Rc<RefCell<Expectations>>,
) -> FaultyMaps<MemoryMaps, Fails, Watch> {
    let (faults, checks) = (Rc::clone(expectations), Rc::clone(expectations));
    FaultyMaps {
        maps,
        fails: Box::new(move |_| faults.borrow_mut().faults.pop_front() == Some(true)),
        watch: Box::new(move |_, maps| checks.borrow().check(maps)),
    }
}

type Recorded = FaultyMaps<MemoryMaps, Fails, Watch>;

thread_local! {
    static RECORD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Maps that write down every operation.
fn recorded() -> Recorded {
    FaultyMaps {
        maps: MemoryMaps::default(),
        fails: Box::new(|_| false),
        watch: Box::new(|operation, _| {
            let line = match operation {
                Operation::PutBackend(id, _) => format!("put backend {}", id.0),
                Operation::DeleteBackend(id) => format!("delete backend {}", id.0),
                Operation::PutSlot(key, _) => {
                    let (service, generation) = (key.service.0, key.generation.0);
                    format!("put slot {service}.{generation}.{}", key.index)
                }
                Operation::DeleteSlot(key) => {
                    let (service, generation) = (key.service.0, key.generation.0);
                    format!("delete slot {service}.{generation}.{}", key.index)
                }
                Operation::PutMember(pair) => {
                    format!("put member {}.{}", pair.service.0, pair.backend.0)
                }
                Operation::DeleteMember(pair) => {
                    format!("delete member {}.{}", pair.service.0, pair.backend.0)
                }
                Operation::PutService(..) => "switch".to_owned(),
                Operation::DeleteService(_) => "delete".to_owned(),
                Operation::DeleteCounters(_) => "delete counters".to_owned(),
            };
            RECORD.with_borrow_mut(|record| record.push(line));
        }),
    }
}

fn take(_: &mut Reconciler<Recorded>) -> Vec<String> {
    RECORD.with_borrow_mut(std::mem::take)
}

fn frontend(number: u8) -> Frontend {
    Frontend {
        address: [10, 96, 0, number].into(),
        port: 80,
        protocol: Protocol::Tcp,
    }
}

/// A route to backends with these numbers and weights.
fn route(targets: &[(u8, u32)], affinity: Option<u64>) -> Arc<Route> {
    let targets = targets.iter().map(|(number, weight)| Target {
        address: SocketAddr::from(([10, 244, 0, *number], 8080)),
        weight: NonZeroU32::new(*weight).unwrap(),
    });
    Arc::new(Route {
        targets: targets.collect(),
        affinity: affinity.map(Duration::from_secs),
        without: Without::Refused,
    })
}
