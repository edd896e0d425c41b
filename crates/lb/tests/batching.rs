//! The work that many small changes make: it grows with the changes, not with their number times
//! the size of the tree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::{sync::Arc, time::Duration};

use crowfly_lb::{
    BalancerEvent, CallContext, ChoiceCount, CustomPolicy, Endpoint, EndpointState, Policy,
    ReadySet, RingSize, Selection, Selector, timing::COALESCE_MAX,
};
use leaf::leaf;
use sim::{
    CLUSTER, Port, Sim, endpoints_at,
    plans::{aggregate, cluster, localities, priorities, tree_of, zone},
    ready_at,
};

const MANY: Port = 10_000;

/// S10-01: 10,000 endpoints that become READY one by one, all at once or within a second, cost at
/// most 20 visits each; every one of them is in the picker soon after.
#[test]
fn endpoints_that_become_ready_one_by_one_are_gathered() {
    for micros in [0, 1, 10, 100] {
        let (sim, pickers) = connect_all(Duration::from_micros(micros));
        let visits = sim.balancer.visits() / u64::from(MANY);
        assert!(visits <= 20, "{visits} visits each at {micros} us");
        assert!(pickers <= 10, "{pickers} pickers at {micros} us");
        let shares = sim.picker.as_ref().unwrap().shares();
        assert_eq!(shares[0].endpoints.len(), usize::from(MANY));
    }
}

/// S10-01: the first endpoint, and any of a short list, waits for nothing.
#[test]
fn the_first_endpoint_waits_for_nothing() {
    let ports: Vec<_> = (1..=MANY).collect();
    let mut sim = Sim::new();
    sim.plan(tree_of(zone(&ports)));
    report_ready(&mut sim, 7);
    assert_eq!(sim.balancer.flush_by(), Some(sim.now));

    let mut sim = Sim::new();
    sim.plan(tree_of(zone(&[1, 2, 3, 4])));
    for port in 1..=4 {
        report_ready(&mut sim, port);
        assert_eq!(sim.balancer.flush_by(), Some(sim.now), "endpoint {port}");
        sim.flush();
    }
    assert_eq!(sim.balancer.flush_by(), None);
}

/// S8-02: bad news never waits, and takes the good news along.
#[test]
fn a_failure_waits_for_nothing() {
    let ports: Vec<_> = (1..=100).collect();
    let mut sim = Sim::new();
    sim.plan(tree_of(cluster("payments", priorities(&[&ports, &[999]]))));
    sim.ready(&[1]);
    report_ready(&mut sim, 2);
    assert!(sim.balancer.flush_by().unwrap() > sim.now);
    let id = sim.id(1);
    let state = EndpointState::TransientFailure("connection reset".into());
    sim.handle(BalancerEvent::Endpoint { id, state });
    assert_eq!(sim.balancer.flush_by(), Some(sim.now));
    sim.flush();
    assert_eq!(sim.pick_port(), 2);
}

/// S10-01: after a while without news, the next endpoint waits for as short a time as the first.
#[test]
fn patience_ends() {
    let (mut sim, _) = connect_all(Duration::from_micros(100));
    let waits: Vec<_> = [2 * COALESCE_MAX, Duration::ZERO]
        .into_iter()
        .map(|pause| {
            sim.advance(pause);
            report_ready(&mut sim, 1);
            let wait = sim.balancer.flush_by().unwrap() - sim.now;
            sim.now += wait;
            sim.flush();
            wait
        })
        .collect();
    assert_eq!(waits, [10, 40].map(Duration::from_millis));
}

/// gRFC A61: 10,000 endpoints that fail one by one, all at once or within a second, cost at most 20
/// visits each; when the last of them has failed, calls hear of it at once.
#[test]
fn endpoints_that_fail_one_by_one_are_gathered() {
    for micros in [0, 1, 10, 100] {
        let (sim, _) = report_all(Duration::from_micros(micros), |_| {
            EndpointState::TransientFailure("connection refused".into())
        });
        let visits = sim.balancer.visits() / u64::from(MANY);
        assert!(visits <= 20, "{visits} visits each at {micros} us");
    }
}

/// The failure that changes what calls do waits for nothing: that of the last endpoint. One more among
/// others, and one that failed before, can wait.
#[test]
fn only_the_last_of_many_failures_waits_for_nothing() {
    let mut sim = Sim::new();
    sim.plan(tree_of(zone(&[1, 2, 3])));
    for port in [1, 1, 2] {
        report_failing(&mut sim, port);
        assert!(
            sim.balancer.flush_by().unwrap() > sim.now,
            "endpoint {port}"
        );
    }
    report_failing(&mut sim, 3);
    assert_eq!(sim.balancer.flush_by(), Some(sim.now));
    sim.flush();
    assert!(sim.pick_failure().contains("127.0.0.1:3"));
    report_failing(&mut sim, 2);
    assert!(sim.balancer.flush_by().unwrap() > sim.now);
}

/// gRFC A56 and A75: failover over dead leaf clusters, one after the other, looks at each a few times,
/// however many they are, and so does each failure after that.
#[test]
fn failover_over_dead_leaves_costs_the_same_for_each() {
    for leaves in [50, 200, 2000] {
        let (mut sim, steps) = fail_over(leaves);
        let each = steps / u64::from(leaves);
        assert!(each <= 20, "{each} steps for each of {leaves} leaves");
        let failure = sim.pick_failure();
        assert!(
            failure.ends_with(&format!("; and {} more", leaves - 8)),
            "{failure}"
        );

        // They go on failing, and one of them comes back.
        let before = sim.balancer.steps();
        for port in [1, leaves / 2, leaves] {
            sim.failing(port, "connection refused");
        }
        sim.ready(&[leaves / 2]);
        assert_eq!(sim.pick_port(), leaves / 2);
        // The leaves below the one that is READY are deactivated, each once.
        let steps = sim.balancer.steps() - before - u64::from(leaves / 2);
        assert!(steps <= 100, "{steps} steps of {leaves} leaves");

        let before = sim.balancer.steps();
        sim.ready(&[leaves / 2 - 1]);
        assert_eq!(sim.pick_port(), leaves / 2 - 1);
        let steps = sim.balancer.steps() - before;
        assert!(steps <= 30, "{steps} steps of {leaves} leaves");
    }
}

/// An aggregate of leaf clusters with one endpoint each, all of which failed one after the other; and
/// how many nodes were looked at.
fn fail_over(leaves: Port) -> (Sim, u64) {
    let named: Vec<_> = (1..=leaves)
        .map(|port| (format!("leaf{port}"), priorities(&[&[port]])))
        .collect();
    let named: Vec<_> = named
        .iter()
        .map(|(name, node)| (name.as_str(), node.clone()))
        .collect();
    let mut sim = Sim::new();
    sim.plan(tree_of(aggregate(&named)));
    let mut steps = 0;
    for port in 1..=leaves {
        assert_eq!(std::mem::take(&mut sim.connects), [port]);
        let id = *sim.live.last_key_value().unwrap().0;
        let state = EndpointState::TransientFailure("connection refused".into());
        let before = sim.balancer.steps();
        sim.handle(BalancerEvent::Endpoint { id, state });
        sim.flush();
        steps += sim.balancer.steps() - before;
    }
    (sim, steps)
}

/// S7-01: one changed endpoint of many is looked for in its own locality.
#[test]
fn one_change_is_looked_for_in_its_locality() {
    let ports: Vec<_> = (1..=MANY).collect();
    let (few, many) = ports.split_at(10);
    let zones = |few: &[Port]| tree_of(localities(&[("few", 1, few), ("many", 1, many)]));
    let mut sim = Sim::ready_with_in_one_batch(zones(few));
    let before = sim.balancer.visits();
    sim.failing(3, "connection reset");
    assert!(sim.balancer.visits() - before <= 30);
    sim.plan(zones(&few[1..]));
    assert!(sim.balancer.visits() - before <= 100);
}

/// A61: nothing is published for a plan or a request to connect that changes nothing, or for a
/// failure like the last one. That holds for every policy, and whatever a pick does at that moment.
#[test]
fn an_event_that_changes_nothing_publishes_nothing() {
    for policy in policies() {
        let is_pick_first = matches!(policy, Policy::PickFirst { .. });
        let plan = || leaf(policy.clone(), endpoints_at(&[1, 2, 3]));
        let mut sim = Sim::new();
        let unchanged = |sim: &mut Sim, when: &str| {
            sim.forget();
            sim.plan(plan());
            assert_eq!(sim.publishes, 0, "{policy:?}: the same plan, {when}");
        };
        sim.plan(plan());
        unchanged(&mut sim, "before any endpoint is READY");
        connect_held(&mut sim);
        unchanged(&mut sim, "CONNECTING");
        let ports: &[Port] = if is_pick_first { &[1] } else { &[1, 2, 3] };
        sim.ready(ports);
        unchanged(&mut sim, "READY");
        let now = sim.now();
        sim.balancer.exit_idle(&CLUSTER.into(), now);
        sim.flush();
        assert_eq!(sim.publishes, 0, "{policy:?}: nothing is IDLE");

        for (index, port) in ports.iter().enumerate() {
            sim.failing(*port, "connection reset");
            let published = sim.publishes;
            assert_eq!(published, index + 1, "{policy:?}: {port} is lost");
            sim.failing(*port, "connection reset");
            assert_eq!(sim.publishes, published, "{policy:?}: {port} fails again");
        }
        unchanged(&mut sim, "TRANSIENT_FAILURE");
        sim.ready(&[1]);
        sim.idle(1);
        unchanged(&mut sim, "after a connection was lost");
    }
}

/// A61: a list that comes out as it was is not kept beside the one that calls are picked from, so that
/// the next comparison is between one list and itself.
#[test]
fn an_event_that_changes_nothing_keeps_nothing() {
    const ENDPOINTS: Port = 1000;
    let ports: Vec<_> = (1..=ENDPOINTS).collect();
    for policy in policies() {
        if let Policy::PickFirst { .. } = policy {
            continue;
        }
        let mut sim = Sim::new();
        sim.plan(leaf(policy.clone(), endpoints_at(&ports)));
        connect_held(&mut sim);
        for port in &ports {
            report_ready(&mut sim, *port);
        }
        sim.flush();
        sim.failing(1, "connection refused");
        let kept = allocation_counter::measure(|| sim.failing(1, "connection refused"));
        let list = i64::from(ENDPOINTS) * size_of::<usize>() as i64;
        assert!(kept.bytes_current < list, "{policy:?}: {kept:?}");
    }
}

/// A56: a node that is replaced by one of another kind leaves nothing behind.
#[test]
fn nodes_that_go_leave_nothing_behind() {
    let mut sim = Sim::ready_with(tree_of(zone(&[1])));
    let mut replace = |times: usize| {
        for _ in 0..times {
            sim.plan(tree_of(priorities(&[&[1]])));
            sim.plan(tree_of(zone(&[1])));
        }
        sim.forget();
    };
    replace(100);
    let left = allocation_counter::measure(|| replace(1000)).bytes_current;
    assert!(left < 1000, "{left} bytes are left of 2000 trees");
}

fn policies() -> [Policy; 5] {
    [
        Policy::Custom(Arc::new(FirstReady)),
        Policy::LeastRequest(ChoiceCount::default()),
        Policy::PickFirst { shuffle: false },
        Policy::RingHash {
            size: RingSize::default(),
            request_hash_header: None,
        },
        Policy::RoundRobin,
    ]
}

/// Sends calls to the first endpoint that is READY.
#[derive(Debug)]
struct FirstReady;

impl CustomPolicy for FirstReady {
    fn name(&self) -> &str {
        "first_ready"
    }

    fn build(&self, _endpoints: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(Self)
    }
}

impl Selector for FirstReady {
    fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        ready.get(0).map_or(Selection::Queue, Selection::Send)
    }
}

/// Connects every endpoint that is IDLE, as calls for each of them would.
fn connect_held(sim: &mut Sim) {
    for view in sim.balancer.endpoints(CLUSTER) {
        sim.handle(BalancerEvent::Demand(view.id.into()));
    }
    sim.flush();
}

/// A balancer of many endpoints that became READY so far apart, driven as a channel drives it; and
/// how many pickers came of it.
fn connect_all(apart: Duration) -> (Sim, usize) {
    report_all(apart, ready_at)
}

fn report_all(apart: Duration, report: impl Fn(Port) -> EndpointState<Port>) -> (Sim, usize) {
    let ports: Vec<_> = (1..=MANY).collect();
    let mut sim = Sim::new();
    sim.plan(tree_of(cluster("payments", priorities(&[&ports]))));
    sim.forget();
    let ids: Vec<_> = sim.live.iter().map(|(id, port)| (*id, *port)).collect();
    for (id, port) in ids {
        sim.now += apart;
        flush_if_due(&mut sim);
        let state = report(port);
        sim.handle(BalancerEvent::Endpoint { id, state });
        flush_if_due(&mut sim);
    }
    if let Some(by) = sim.balancer.flush_by() {
        sim.now = by;
        sim.flush();
    }
    let pickers = sim.publishes;
    (sim, pickers)
}

fn flush_if_due(sim: &mut Sim) {
    if sim.balancer.flush_by().is_some_and(|by| by <= sim.now) {
        sim.flush();
    }
}

fn report_failing(sim: &mut Sim, port: Port) {
    let id = sim.id(port);
    let state = EndpointState::TransientFailure("connection refused".into());
    sim.handle(BalancerEvent::Endpoint { id, state });
}

fn report_ready(sim: &mut Sim, port: Port) {
    let id = sim.id(port);
    let state = ready_at(port);
    sim.handle(BalancerEvent::Endpoint { id, state });
}
