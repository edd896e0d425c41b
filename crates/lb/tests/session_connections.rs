//! Tests of the connections that sessions ask for and keep (A75). They check the work as well,
//! because sessions may stick to any of thousands of endpoints.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sessions;
mod sim;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crowfly_lb::{
    CallOutcome, ClusterPlan, EndpointState, FailurePercentageEjection, Health, Leaf, LoadPlan,
    LoadStore, LocalityId, Node, OutlierDetection, OverrideHost, Policy,
};
use sessions::{ALL, Stuck, WELL, draining, open, pick_first, stick, with_health, with_timeout};
use sim::{
    CLUSTER, Sim, address, endpoint,
    plans::{cluster, gate, localities, priorities, priority, tree_of, zone},
};

/// S12-08: calls through a connection of sessions alone count in the locality of the backend, for the limit of the
/// cluster and for the backend.
#[test]
fn calls_through_a_connection_of_sessions_are_counted() {
    let zones = |zone| {
        let low = localities(&[("b", 1, &[2]), (zone, 1, &[3])]);
        let high = localities(&[("a", 1, &[1])]);
        let node = priority(&[("child0", high), ("child1", low)]);
        tree_of(gate(CLUSTER, &[], 2, node))
    };
    let mut sim = open(zones("c"));
    let wanted = stick(&mut sim, &[3]).demand();
    sim.demand(wanted);
    sim.ready(&[3]);
    let call = sim.session_call(&[3]);
    assert_eq!(call.locality(), &LocalityId::new("us", "c", ""));
    assert_eq!(call.cluster().unwrap().as_str(), CLUSTER);
    let other = sim.session_call(&[3]);
    let dropped = sim.pick_drop();
    assert!(dropped.contains("circuit breaker"), "{dropped}");
    let view = |sim: &Sim| {
        let mut roster = sim.balancer.roster(CLUSTER).into_iter();
        roster.find(|view| view.addresses[0] == address(3)).unwrap()
    };
    assert_eq!((view(&sim).picks, view(&sim).in_flight), (2, 2));
    drop((call, other));
    assert_eq!(view(&sim).in_flight, 0);

    // The backend moves to another locality of its priority.
    sim.plan(zones("d"));
    assert!(sim.releases.is_empty());
    let call = sim.session_call(&[3]);
    assert_eq!(call.locality(), &LocalityId::new("us", "d", ""));
}

/// A61, A75: sessions are found by address, and so are their last uses. A draining backend that loses one of its
/// addresses is another endpoint, but it keeps its sessions, and takes the connection over before that is released.
#[test]
fn a_draining_backend_that_loses_an_address_keeps_its_connection() {
    let plan = |leaf: &[&[u16]], draining: &[&[u16]]| {
        let endpoints = |ports: &[&[u16]]| ports.iter().map(|ports| endpoint(ports)).collect();
        let draining: Vec<_> = endpoints(draining);
        with_health(ALL, endpoints(leaf), draining.into())
    };
    let mut sim = open(plan(&[&[5], &[1, 2]], &[]));
    let at_the_second = EndpointState::Ready {
        transport: 2,
        address: address(2),
    };
    sim.report(1, at_the_second);
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(2));
    sim.plan(plan(&[&[5]], &[&[1, 2]]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));

    sim.plan(plan(&[&[5]], &[&[2]]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[2][..], &[1][..]));
    assert_eq!(
        stick(&mut sim, &[1, 2]),
        Stuck::Queue,
        "the connection moves"
    );
    sim.ready(&[2]);
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(2));

    // An address that comes anew has no last use, so nothing connects it.
    sim.forget();
    sim.plan(plan(&[&[5]], &[&[2], &[3]]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
}

/// S12-08 and C-core's ChildPolicyNeverCreatedSubchannel: a draining backend that no leaf ever had is connected for a
/// session.
#[test]
fn a_draining_backend_that_no_leaf_had_is_connected() {
    let mut sim = open(draining(&[1, 3], &[2], ALL));
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects, [2]);
    sim.connecting(2);
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    sim.forget();
    sim.ready(&[2]);
    assert_eq!(sim.publishes, 1);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(2), BTreeMap::from([(1, 1), (3, 1)]));
}

/// C-core's ChildPolicyUnrefsSubchannelNotUsedWithinIdleThreshold: a connection that no session used is let go with
/// its leaf.
#[test]
fn a_connection_that_no_session_used_is_not_kept() {
    let mut sim = open(draining(&[1, 2, 3], &[], ALL));
    assert_eq!(stick(&mut sim, &[3]), Stuck::On(3));
    sim.plan(draining(&[1, 3], &[2], ALL));
    assert_eq!(sim.releases, [2]);
    // A call without a session is no use.
    let _ = sim.count(20);
    sim.plan(draining(&[3], &[2, 1], ALL));
    assert_eq!(sim.releases, [2, 1]);
}

/// S12-09 and C-core's IdleTimer: the connection of sessions alone is kept until none has used it for the timeout, and
/// each use extends that. Looks come when they are due, and at least 5 s apart.
#[test]
fn a_connection_is_kept_until_its_sessions_are_idle() {
    let plan = |leaf: &[u16], rest: &[u16]| with_timeout(60, &draining(leaf, rest, ALL));
    let mut sim = open(plan(&[1, 2, 3], &[]));
    let started = sim.now();
    let due = |sim: &Sim| {
        sim.balancer
            .next_timeout()
            .map(|at| (at - started).as_secs())
    };
    assert_eq!(due(&sim), None, "leaves keep all connections");
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(stick(&mut sim, &[3]), Stuck::On(3));

    sim.advance_secs(5);
    sim.plan(plan(&[1], &[2, 3]));
    assert_eq!(due(&sim), Some(60));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(stick(&mut sim, &[3]), Stuck::On(3));
    sim.advance_secs(55);
    assert_eq!((sim.releases.len(), due(&sim)), (0, Some(65)));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.advance_secs(5);
    assert_eq!((&sim.releases[..], due(&sim)), (&[3][..], Some(120)));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.advance_secs(55);
    assert_eq!((&sim.releases[..], due(&sim)), (&[3][..], Some(125)));
    sim.advance_secs(5);
    assert_eq!((&sim.releases[..], due(&sim)), (&[3, 2][..], None));
    // A session that comes later makes it connect again.
    let wanted = stick(&mut sim, &[3]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects, [3]);
}

/// S12-10: another timeout counts at once, and looks are 5 s apart, however short it is.
#[test]
fn another_timeout_sets_the_time_of_the_next_look() {
    let plan = |seconds| with_timeout(seconds, &draining(&[1], &[2, 3], ALL));
    let mut sim = open(plan(3600));
    let started = sim.now();
    let due = |sim: &Sim| {
        sim.balancer
            .next_timeout()
            .map(|at| (at - started).as_secs())
    };
    for port in [2, 3] {
        let wanted = stick(&mut sim, &[port]).demand();
        sim.demand(wanted);
        sim.ready(&[port]);
        assert_eq!(stick(&mut sim, &[port]), Stuck::On(port));
    }
    assert_eq!(due(&sim), Some(3600));
    sim.advance_secs(10);
    sim.plan(plan(60));
    assert_eq!(due(&sim), Some(60));
    sim.advance_secs(49);
    assert_eq!(stick(&mut sim, &[3]), Stuck::On(3));
    sim.advance_secs(1);
    assert_eq!((&sim.releases[..], due(&sim)), (&[2][..], Some(119)));
    sim.plan(plan(1));
    assert_eq!(due(&sim), Some(65), "not before 5 s after the last look");
    sim.advance_secs(4);
    assert_eq!(sim.releases, [2]);
    sim.advance_secs(1);
    assert_eq!((&sim.releases[..], due(&sim)), (&[2, 3][..], None));
}

/// gRFC A75: under `pick_first` the endpoint that is connected keeps its sessions, and another one gets a connection of
/// its own. When the leaf goes, the endpoint takes its connection over.
#[test]
fn sessions_stick_under_pick_first() {
    let low = |ports| priority(&[("child0", zone(&[9])), ("child1", pick_first(ports))]);
    let mut sim = open(tree_of(cluster(CLUSTER, pick_first(&[1, 2]))));
    assert_eq!(stick(&mut sim, &[1]), Stuck::On(1));
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects, [2]);
    sim.ready(&[2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 3)]));

    // The leaf is replaced by a priority that is not needed: both endpoints are kept for their sessions.
    sim.forget();
    sim.plan(tree_of(cluster(CLUSTER, low(&[1, 2]))));
    sim.ready(&[9]);
    assert_eq!(
        sim.connects,
        [9, 1],
        "1 is connected before its list is released"
    );
    assert_eq!(sim.releases, [1]);
    sim.ready(&[1]);
    for port in [1, 2] {
        assert_eq!(stick(&mut sim, &[port]), Stuck::On(port));
    }
    assert_eq!(sim.count(3), BTreeMap::from([(9, 3)]));
    sim.advance(OverrideHost::default().idle_timeout);
    assert_eq!(sim.releases, [1, 1, 2]);
}

/// A61, A75: under `pick_first` a backend that loses an address is another endpoint, and the list stays connected to it.
/// Its sessions use that connection at once, and ask for none of their own.
#[test]
fn sessions_under_pick_first_stay_when_their_backend_loses_an_address() {
    let plan = |endpoints: &[&[u16]]| {
        let endpoints = endpoints.iter().map(|ports| endpoint(ports)).collect();
        let policy = Policy::PickFirst { shuffle: false };
        tree_of(cluster(CLUSTER, Node::Leaf(Leaf { policy, endpoints })))
    };
    let mut sim = open(plan(&[&[1, 2], &[3]]));
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(1));
    sim.plan(plan(&[&[1], &[3]]));
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(1));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 3)]));
    assert_eq!(sim.releases, []);
    assert_eq!(sim.live.len(), 1, "the list");
}

/// gRFC A75: when `pick_first` takes over, the endpoints' own connections are kept for as long as sessions use them, and
/// the others are released.
#[test]
fn connections_that_sessions_use_outlast_a_change_to_pick_first() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2, 3]))));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(tree_of(cluster(CLUSTER, pick_first(&[1, 2, 3]))));
    sim.ready_newest(1);
    sim.releases.sort_unstable();
    assert_eq!(sim.releases, [1, 3]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 3)]));
    assert!(
        sim.tree()
            .contains("127.0.0.1:2 READY (kept for its sessions)")
    );

    sim.forget();
    sim.advance(OverrideHost::default().idle_timeout);
    assert_eq!(sim.releases, [2]);
    assert_eq!(sim.live.len(), 1, "the list");
}

/// gRFC A75: an endpoint's own connection goes with its leaf if no session has used the endpoint until then. A session
/// that comes later uses the connection of the list, and makes none.
#[test]
fn a_use_after_a_change_to_pick_first_does_not_bring_the_own_connection_back() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2]))));
    sim.plan(tree_of(cluster(CLUSTER, pick_first(&[1, 2]))));
    sim.ready_newest(1);
    sim.releases.sort_unstable();
    assert_eq!(sim.releases, [1, 2]);
    sim.forget();
    assert_eq!(stick(&mut sim, &[]), Stuck::On(1), "over the list");
    sim.flush();
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(sim.live.len(), 1, "the list");
}

/// gRFC A75: a call that waits for its backend is a use of it, so its connection is not given up before it is there.
#[test]
fn a_connection_that_a_call_waits_for_is_kept() {
    let mut sim = open(with_timeout(60, &draining(&[1, 3], &[2], ALL)));
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    sim.connecting(2);
    sim.advance_secs(50);
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    sim.advance_secs(50);
    assert_eq!(sim.releases, [], "the call has waited for 50 s");
    sim.advance_secs(10);
    assert_eq!(sim.releases, [2], "no call has waited for 60 s");
}

/// gRFC A75: other health for sessions makes what they keep be looked at in the same update, also where leaves hold
/// every endpoint.
#[test]
fn other_health_for_sessions_is_acted_on_at_once() {
    let plan = |health: &[Health]| {
        tree_of(with(pick_first(&[1, 2]), |plan| {
            plan.override_host = OverrideHost {
                health: health.iter().copied().collect(),
                idle_timeout: Duration::from_secs(1),
            };
        }))
    };
    let mut sim = open(plan(ALL));
    for _ in 0..2 {
        let wanted = stick(&mut sim, &[2]).demand();
        sim.demand(wanted);
        sim.ready(&[2]);
        sim.forget();
        // The second look is due 5 s after the first one.
        sim.advance_secs(2);
    }
    assert!(sim.releases.is_empty());
    sim.plan(plan(WELL));
    assert_eq!(sim.releases, [2]);
}

/// gRFC A75: a changed endpoint or state costs what changed, not the number of endpoints that sessions may stick to.
#[test]
fn a_change_costs_what_it_changes() {
    let ports: Vec<u16> = (1..=5_000).collect();
    let lower: Vec<u16> = (5_001..=10_000).collect();
    let mut sim =
        Sim::ready_with_in_one_batch(tree_of(cluster(CLUSTER, priorities(&[&ports, &lower]))));
    let demand = stick(&mut sim, &[7]).demand();
    sim.demand(demand);
    let wanted = stick(&mut sim, &[9_000]).demand();
    let visits = sim.balancer.visits();
    sim.demand(wanted);
    sim.ready(&[9_000]);
    assert_eq!(stick(&mut sim, &[9_000]), Stuck::On(9_000));
    assert!(sim.balancer.visits() - visits < 10);

    let mut other = lower;
    other[17] = 20_000;
    let visits = sim.balancer.visits();
    sim.plan(tree_of(cluster(CLUSTER, priorities(&[&ports, &other]))));
    assert!(
        sim.balancer.visits() - visits < 10,
        "{}",
        sim.balancer.visits() - visits
    );
    let wanted = stick(&mut sim, &[20_000]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects.last(), Some(&20_000));
}

/// S12-08: the load of calls through a connection of sessions alone is counted in the locality of the backend.
#[test]
fn the_load_of_sessions_is_counted_in_their_locality() {
    let store = Arc::new(LoadStore::new(|| {}));
    let low = localities(&[("b", 1, &[2]), ("c", 1, &[3])]);
    let child = priority(&[("child0", localities(&[("a", 1, &[1])])), ("child1", low)]);
    let mut sim = open(tree_of(with(child, |plan| {
        plan.load = Some(LoadPlan {
            store: store.clone(),
            metrics: Arc::default(),
        });
    })));
    let wanted = stick(&mut sim, &[3]).demand();
    sim.demand(wanted);
    sim.ready(&[3]);
    sim.session_call(&[3]).finish(CallOutcome::Status(0));
    let open = sim.session_call(&[3]);
    let clusters = store.take();
    let of_c = LocalityId::new("us", "c", "");
    let loads = clusters.iter().flat_map(|cluster| &cluster.localities);
    let loads: Vec<_> = loads.filter(|load| load.locality == of_c).collect();
    assert_eq!(loads.len(), 1);
    assert_eq!(
        (loads[0].issued, loads[0].succeeded, loads[0].in_progress),
        (2, 1, 1)
    );
    drop(open);
}

/// gRFC A61: sessions go by the connection of their backend. An ejected one keeps them, and gets no other calls.
#[test]
fn an_ejected_backend_keeps_its_sessions() {
    let mut sim = open(tree_of(with(zone(&[1, 2, 3]), |plan| {
        plan.outlier_detection = Some(Arc::new(OutlierDetection {
            success_rate: None,
            failure_percentage: Some(FailurePercentageEjection {
                threshold: 50,
                enforcement_percentage: 100,
                minimum_hosts: 3,
                request_volume: 5,
            }),
            max_ejection_percent: 50,
            ..outliers()
        }));
    })));
    for _ in 0..30 {
        let call = sim.call();
        let code = if *call.transport() == 2 { 14 } else { 0 };
        call.finish(CallOutcome::Status(code));
    }
    sim.advance_secs(10);
    assert_eq!(
        sim.count(4),
        BTreeMap::from([(1, 2), (3, 2)]),
        "2 is ejected"
    );
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
}

fn outliers() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 10,
        success_rate: None,
        failure_percentage: None,
    }
}

/// A leaf cluster with other settings.
fn with(child: Node, change: impl FnOnce(&mut ClusterPlan)) -> Node {
    let Node::Cluster(plan) = cluster(CLUSTER, child) else {
        panic!("expected a leaf cluster");
    };
    let mut plan = ClusterPlan::clone(&plan);
    change(&mut plan);
    Node::Cluster(Arc::new(plan))
}

/// The tree shows the settings of sessions once there are some, and the backends that only sessions keep.
#[test]
fn the_tree_shows_what_sessions_keep() {
    let plan = |leaf: &[u16], rest: &[u16]| with_timeout(90, &draining(leaf, rest, ALL));
    let mut sim = Sim::ready_with(plan(&[1, 2], &[]));
    assert!(!sim.tree().contains("override_host"));
    let demand = stick(&mut sim, &[2]).demand();
    sim.demand(demand);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(plan(&[1], &[2]));
    assert_eq!(
        sim.tree(),
        "\
cluster payments READY
└ cluster_impl payments limit 1024 READY
  └ override_host UNKNOWN+HEALTHY+DRAINING, idle timeout 90s
    ├ round_robin READY
    │ └ 127.0.0.1:1 READY
    └ 127.0.0.1:2 READY (draining, kept for its sessions)
"
    );
    sim.advance_secs(90);
    assert!(!sim.tree().contains("127.0.0.1:2"));
}
