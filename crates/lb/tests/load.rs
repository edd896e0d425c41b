//! Tests of the counts for load reports: calls by locality, drops, and their way through the tree
//! (A27, A42, A75). A report is right only if each call is counted exactly once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use crowfly_lb::{
    BackendMetrics, BalancerEvent, CallContext, CallOutcome, ClusterLoad, ClusterPlan,
    DropCategory, EndpointState, LoadPlan, LoadStore, LocalityLoad, MetricFilter, NamedMetrics,
    Node, Pick,
};
use proptest::prelude::*;
use sim::{
    Picked, Sim,
    plans::{NO_LIMIT, gate, localities, priorities, priority_kept_for, tree_of, zone},
};

const ALL: u32 = DropCategory::ALL;
const FAILED: CallOutcome = CallOutcome::Status(14);

/// S13-02: issued, succeeded and errors are what was sent to each locality, counted once.
#[test]
fn calls_are_counted_by_locality() {
    let store = store();
    let zones = localities(&[("a", 1, &[1]), ("b", 3, &[2, 3])]);
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zones)));
    let mut expected: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for n in 0..1000 {
        let call = sim.call();
        let row = expected.entry(call.locality().to_string()).or_default();
        row[0] += 1;
        let (index, outcome) = match n % 4 {
            0 => (2, FAILED),
            1 => (2, CallOutcome::Cancelled),
            _ => (1, CallOutcome::OK),
        };
        row[index] += 1;
        call.finish(outcome);
    }
    assert_eq!(rows(&store), expected);
    expected.values_mut().for_each(|row| *row = [0; 4]);
    assert_eq!(rows(&store), expected, "deltas, not totals");
}

/// S13-05: a call that is open across intervals is issued once, and is in progress in each report.
#[test]
fn an_open_call_is_in_progress_and_not_issued_again() {
    let store = store();
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zone(&[1]))));
    let call = sim.call();
    assert_eq!(only(&store), [1, 0, 0, 1]);
    assert_eq!(only(&store), [0, 0, 0, 1]);
    call.finish(CallOutcome::OK);
    assert_eq!(only(&store), [0, 1, 0, 0]);
    drop(sim.call());
    assert_eq!(only(&store), [1, 0, 1, 0], "never sent is an error");
}

/// S9-01, S13-04: drops by category, and drops by the limit apart from them. A dropped call is not issued.
#[test]
fn drops_are_counted_by_category_and_by_the_limit() {
    let store = store();
    let drops = [("throttle", ALL / 10), ("lb", ALL / 2)];
    let mut sim = Sim::ready_with(tree_of(with_load(
        gate("payments", &drops, NO_LIMIT, zone(&[1])),
        &store,
        MetricFilter::default(),
    )));
    let (mut dropped, mut sent) = (BTreeMap::new(), 0);
    for seed in 0..10_000 {
        match sim.picker.as_ref().unwrap().pick(&CallContext::new(seed)) {
            Pick::Ready(_) => sent += 1,
            Pick::Drop(drop) => *dropped.entry(drop.to_string()).or_insert(0) += 1,
            other => panic!("{other:?}"),
        }
    }
    let [load] = &store.take()[..] else {
        panic!("one cluster")
    };
    let named: u64 = load.drops.iter().map(|(_, count)| count).sum();
    assert_eq!(named, dropped.values().sum::<u64>());
    for (category, count) in &load.drops {
        let text = format!("cluster payments: dropped by category {category}");
        assert_eq!(dropped.get(&text), Some(count));
    }
    assert_eq!(
        (load.uncategorized_drops, load.localities[0].issued),
        (0, sent)
    );

    // Without any drop config, too.
    sim.plan(tree_of(with_load(
        gate("payments", &[], 1, zone(&[1])),
        &store,
        MetricFilter::default(),
    )));
    let open = sim.call();
    sim.pick_drop();
    sim.pick_drop();
    let [load] = &store.take()[..] else {
        panic!("one cluster")
    };
    assert_eq!((load.uncategorized_drops, load.drops.len()), (2, 0));
    drop(open);
}

/// S9-01: a category that left the configuration is reported a last time. Its counts are not lost.
#[test]
fn a_category_that_goes_is_reported_a_last_time() {
    let store = store();
    let dropping = |name| {
        let gate = gate("payments", &[(name, ALL)], NO_LIMIT, zone(&[1]));
        tree_of(with_load(gate, &store, MetricFilter::default()))
    };
    let mut sim = Sim::ready_with(dropping("old"));
    sim.pick_drop();
    sim.plan(dropping("new"));
    sim.pick_drop();
    let drops = |store: &LoadStore| store.take().remove(0).drops;
    let both: Vec<(Arc<str>, u64)> = vec![("new".into(), 1), ("old".into(), 1)];
    assert_eq!(drops(&store), both);
    sim.pick_drop();
    assert_eq!(drops(&store), both[..1]);
}

/// S13-08: the last counts of a cluster that is gone are taken once; then the store is empty. A call that is
/// still open keeps the cluster, because its end is part of the load.
#[test]
fn the_last_counts_of_a_cluster_are_taken_once() {
    let changes = Arc::new(AtomicU64::new(0));
    let told = changes.clone();
    let store = Arc::new(LoadStore::new(move || _ = told.fetch_add(1, Relaxed)));
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zone(&[1]))));
    assert_eq!(changes.load(Relaxed), 1, "a cluster is wanted");
    let open = sim.call();
    sim.call().finish(CallOutcome::OK);
    sim.remove(sim::CLUSTER);
    drop(sim);
    assert_eq!(changes.load(Relaxed), 1, "a call is open");
    assert_eq!(only(&store), [2, 1, 0, 1]);
    assert!(store.is_in_use());

    open.finish(FAILED);
    assert_eq!(changes.load(Relaxed), 2, "nobody uses the cluster any more");
    assert!(!store.is_in_use());
    assert_eq!(only(&store), [0, 0, 1, 0]);
    assert!(store.take().is_empty());
}

/// S13-08: the calls of a connection that was lost, and of one that was replaced, are counted to the end.
#[test]
fn a_lost_connection_loses_no_counts() {
    let store = store();
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zone(&[1]))));
    let open = sim.call();
    drop(sim.call());
    sim.idle(1);
    sim.ready(&[1]);
    sim.call().finish(CallOutcome::OK);
    assert_eq!(only(&store), [3, 1, 1, 1]);
    open.finish(CallOutcome::OK);
    assert_eq!(only(&store), [0, 1, 0, 0]);
}

/// S9-08, 2.9 of the rules: load reporting comes, goes and changes without a new connection, and a call is
/// counted where it began.
#[test]
fn load_reporting_changes_without_a_new_connection() {
    for child in [
        zone(&[1, 2]),
        priorities(&[&[1, 2], &[3]]),
        first_of(&[1, 2]),
    ] {
        let (left, right) = (store(), store());
        let mut sim = Sim::new();
        sim.plan(tree_of(gate("payments", &[], NO_LIMIT, child.clone())));
        sim.ready_newest(1);
        let unreported = sim.call();

        sim.plan(tree_of(reporting(&left, child.clone())));
        let reported = sim.call();
        assert_eq!(*reported.transport(), 1, "the connection stays");
        sim.plan(tree_of(reporting(&right, child.clone())));
        sim.call().finish(CallOutcome::OK);
        drop((unreported, reported));
        assert_eq!(only(&left), [1, 0, 1, 0]);
        assert_eq!(only(&right), [1, 1, 0, 0]);

        sim.plan(tree_of(gate("payments", &[], NO_LIMIT, child.clone())));
        drop(sim.call());
        sim.forget();
        assert_eq!(only(&right), [0; 4]);
        assert!(left.take().is_empty() && right.take().is_empty());
    }
}

/// S9-08: a plan with the same load reporting changes nothing.
#[test]
fn the_same_load_reporting_is_no_change() {
    let store = store();
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zone(&[1, 2]))));
    let before = sim.picker.clone().unwrap();
    sim.plan(tree_of(reporting(&store, zone(&[1, 2]))));
    assert!(Arc::ptr_eq(&before, sim.picker.as_ref().unwrap()));
}

/// S6-09, A75: each leaf of an aggregate counts for itself, and one that asks for no reports is not counted.
#[test]
fn each_leaf_of_an_aggregate_counts_for_itself() {
    let (left, right) = (store(), store());
    let named = |name, child| gate(name, &[], NO_LIMIT, child);
    let none = MetricFilter::default;
    let leaves = [
        ("x", with_load(named("x", zone(&[1])), &left, none())),
        ("y", named("y", zone(&[2]))),
        ("z", with_load(named("z", zone(&[3])), &right, none())),
    ];
    let mut sim = Sim::new();
    sim.plan(tree_of(priority_kept_for(
        std::time::Duration::from_secs(1),
        &leaves,
    )));
    for port in [1, 2, 3] {
        sim.ready(&[port]);
        sim.call().finish(CallOutcome::OK);
        assert_eq!(sim.call().transport(), &port);
        sim.failing(port, "refused");
    }
    let names = |store: &LoadStore| -> Vec<String> {
        let taken = store.take();
        taken.iter().map(|load| load.cluster.to_string()).collect()
    };
    assert_eq!(names(&left), ["x"]);
    assert_eq!(names(&right), ["z"]);
}

/// gRFC A85: metrics are read only if the cluster propagates some, and are added up by locality.
#[test]
fn backend_metrics_are_added_up_if_the_cluster_propagates_them() {
    let store = store();
    let mut sim = Sim::ready_with(tree_of(reporting(&store, zone(&[1, 2]))));
    assert!(!sim.call().wants_metrics());
    let wanted = MetricFilter {
        cpu_utilization: true,
        named: NamedMetrics::All,
        ..MetricFilter::default()
    };
    let gate = gate("payments", &[], NO_LIMIT, zone(&[1, 2]));
    sim.plan(tree_of(with_load(gate, &store, wanted)));
    for _ in 0..4 {
        let call = sim.call();
        assert!(call.wants_metrics());
        call.record_metrics(&BackendMetrics {
            cpu_utilization: 0.25,
            mem_utilization: 0.5,
            application_utilization: 0.0,
            named: &HashMap::from([("queue".to_owned(), 2.0)]),
        });
        call.finish(CallOutcome::OK);
    }
    let locality = store.take().remove(0).localities.remove(0);
    let sum = |calls, total| crowfly_lb::MetricSum { calls, total };
    assert_eq!(locality.metrics.cpu_utilization, sum(4, 1.0));
    assert_eq!(locality.metrics.mem_utilization, sum(0, 0.0));
    assert_eq!(locality.metrics.named["named_metrics.queue"], sum(4, 8.0));
    let again = store.take().remove(0).localities.remove(0);
    assert_eq!(again.metrics, crowfly_lb::MetricTotals::default());
}

/// S13-02: calls on many threads, counts taken all the while: every count is taken once.
#[test]
fn counts_are_exact_while_they_are_taken() {
    const CALLS: u64 = 20_000;
    let store = store();
    let zones = localities(&[("a", 1, &[1]), ("b", 1, &[2, 3])]);
    let sim = Sim::ready_with(tree_of(reporting(&store, zones)));
    let picker = sim.picker.unwrap();
    let over = AtomicBool::new(false);
    let mut sum = [0; 3];
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                scope.spawn({
                    let picker = &picker;
                    move || {
                        for n in 0..CALLS {
                            let Pick::Ready(call) =
                                picker.pick(&CallContext::new(worker * CALLS + n))
                            else {
                                panic!("ready");
                            };
                            call.finish(if n % 2 == 0 { CallOutcome::OK } else { FAILED });
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut sum = [0; 3];
            while !over.load(Relaxed) {
                for row in rows(&store).values() {
                    (0..3).for_each(|n| sum[n] += row[n]);
                    assert!(row[3] <= 4, "{row:?}");
                }
            }
            sum
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        over.store(true, Relaxed);
        sum = reader.join().unwrap();
    });
    for row in rows(&store).values() {
        (0..3).for_each(|n| sum[n] += row[n]);
        assert_eq!(row[3], 0);
    }
    assert_eq!(sum, [4 * CALLS, 2 * CALLS, 2 * CALLS]);
}

#[derive(Clone, Debug)]
enum Step {
    Call,
    Finish(usize, bool),
    Lose(u16),
    Restore(u16),
    Replan(bool, u8),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Call),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(n, ok)| Step::Finish(n, ok)),
        1 => (1u16..=3).prop_map(Step::Lose),
        2 => (1u16..=3).prop_map(Step::Restore),
        2 => (any::<bool>(), 0u8..3).prop_map(|(on, shape)| Step::Replan(on, shape)),
        1 => Just(Step::Take),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// S13-02, S13-08: the counts that are taken add up to the calls that were made while the
    /// cluster asked for reports. It holds whatever happens to connections, plans and open calls.
    #[test]
    fn any_script_adds_up(steps in steps()) {
        let store = store();
        let shape = |shape: u8| match shape {
            0 => localities(&[("a", 1, &[1]), ("b", 1, &[2, 3])]),
            1 => localities(&[("a", 1, &[2, 3]), ("c", 1, &[1])]),
            _ => priorities(&[&[1, 2], &[3]]),
        };
        let plan = |on: bool, n: u8| tree_of(match on {
            true => reporting(&store, shape(n)),
            false => gate("payments", &[], NO_LIMIT, shape(n)),
        });
        let mut sim = Sim::new();
        sim.plan(plan(true, 0));
        let (mut open, mut reported) = (Vec::new(), true);
        let (mut expected, mut taken) = ([0; 3], [0; 3]);
        for step in steps {
            match step {
                Step::Call => if let Picked::Ready(call) = sim.pick() {
                    expected[0] += u64::from(reported);
                    open.push((call, reported));
                },
                Step::Finish(n, ok) if !open.is_empty() => {
                    let (call, counted) = open.swap_remove(n % open.len());
                    expected[if ok { 1 } else { 2 }] += u64::from(counted);
                    call.finish(if ok { CallOutcome::OK } else { FAILED });
                }
                Step::Finish(..) => {}
                Step::Lose(port) => report(&mut sim, port, EndpointState::Idle),
                Step::Restore(port) => report(&mut sim, port, sim::ready_at(port)),
                Step::Replan(on, n) => { sim.plan(plan(on, n)); reported = on; }
                Step::Take => add(&mut taken, &store),
            }
        }
        add(&mut taken, &store);
        let still = open.iter().filter(|(_, counted)| *counted).count() as u64;
        prop_assert_eq!(expected[0], expected[1] + expected[2] + still);
        prop_assert_eq!(taken, expected);
        expected[2] += still;
        drop(open);
        drop(sim);
        add(&mut taken, &store);
        prop_assert_eq!(taken, expected);
        prop_assert!(store.take().is_empty());
    }
}

/// Reports the state of an endpoint, if there is one at this port.
fn report(sim: &mut Sim, port: sim::Port, state: EndpointState<sim::Port>) {
    let found = sim.live.iter().find(|(_, at)| **at == port);
    if let Some((&id, _)) = found {
        sim.handle(BalancerEvent::Endpoint { id, state });
        sim.flush();
    }
}

fn add(sum: &mut [u64; 3], store: &LoadStore) {
    for row in rows(store).values() {
        (0..3).for_each(|n| sum[n] += row[n]);
    }
}

fn store() -> Arc<LoadStore> {
    Arc::new(LoadStore::new(|| {}))
}

/// The cluster `payments` with load reports.
fn reporting(store: &Arc<LoadStore>, child: Node) -> Node {
    let gate = gate("payments", &[], NO_LIMIT, child);
    with_load(gate, store, MetricFilter::default())
}

fn with_load(node: Node, store: &Arc<LoadStore>, metrics: MetricFilter) -> Node {
    let Node::Cluster(cluster) = node else {
        panic!("a cluster");
    };
    Node::Cluster(Arc::new(ClusterPlan {
        load: Some(LoadPlan {
            store: store.clone(),
            metrics: Arc::new(metrics),
        }),
        ..(*cluster).clone()
    }))
}

/// A `pick_first` leaf.
fn first_of(ports: &[sim::Port]) -> Node {
    Node::Leaf(crowfly_lb::Leaf {
        policy: crowfly_lb::Policy::PickFirst { shuffle: false },
        endpoints: sim::endpoints_at(ports),
    })
}

/// Issued, succeeded, errors and in progress of each locality.
fn rows(store: &LoadStore) -> BTreeMap<String, [u64; 4]> {
    let mut rows = BTreeMap::new();
    let loads: Vec<ClusterLoad> = store.take();
    for LocalityLoad {
        locality,
        issued,
        succeeded,
        errors,
        in_progress,
        ..
    } in loads.into_iter().flat_map(|load| load.localities)
    {
        rows.insert(
            locality.to_string(),
            [issued, succeeded, errors, in_progress],
        );
    }
    rows
}

/// The one row that there is.
fn only(store: &LoadStore) -> [u64; 4] {
    let rows = rows(store);
    let [row] = rows.values().collect::<Vec<_>>()[..] else {
        panic!("expected one locality, got {rows:?}");
    };
    *row
}
