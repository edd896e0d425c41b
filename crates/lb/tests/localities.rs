//! Tests of weighted localities (xds_wrr_locality): their shares, changes and failures. A change of
//! weight must move calls and no connection.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use crowfly_lb::{
    BalancerEvent, Connectivity, Locality, LocalityId, Node, Policy, RingSize, timing::RETENTION,
};
use leaf::leaf;
use sim::{CLUSTER, Port, Sim, endpoints_at, flat, noted, plan, plans::tree_of};

/// S7-01: a backend is added, removed and replaced; those that stay keep their connections, and
/// no call fails or waits meanwhile.
#[test]
fn endpoints_that_stay_keep_their_connections() {
    let mut sim = Sim::ready_with(flat(&[1, 2, 3]));
    let kept = [sim.id(1), sim.id(2)];
    sim.count(30);

    sim.plan(flat(&[1, 2, 3, 4]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[4][..], &[][..]));
    assert_eq!(sim.count(30), counts(&[(1, 10), (2, 10), (3, 10)]));
    sim.ready(&[4]);
    assert_eq!(sim.count(40), counts(&[(1, 10), (2, 10), (3, 10), (4, 10)]));

    sim.forget();
    sim.plan(flat(&[1, 2, 4]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[3][..]));
    assert_eq!(sim.count(30), counts(&[(1, 10), (2, 10), (4, 10)]));

    sim.forget();
    sim.plan(flat(&[1, 2, 5]));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[5][..], &[][..]));
    assert_eq!(
        sim.count(30),
        counts(&[(1, 10), (2, 10), (4, 10)]),
        "4 serves until 5 reports"
    );
    sim.connecting(5);
    assert_eq!(sim.releases, [4]);
    assert_eq!(sim.count(30), counts(&[(1, 15), (2, 15)]));
    sim.ready(&[5]);
    assert_eq!(sim.count(30), counts(&[(1, 10), (2, 10), (5, 10)]));

    assert_eq!([sim.id(1), sim.id(2)], kept);
    assert_eq!(sim.view(1).picks, 10 * 7 + 5, "counters outlive the lists");
}

/// S7-01: an address that moves to another locality is still one endpoint (A75), also when the
/// locality that it left is not kept any more.
#[test]
fn an_endpoint_stays_itself_in_another_locality() {
    let mut sim = Sim::ready_with(plan(&[("a", 1, &[1]), ("b", 1, &[2])]));
    let before = sim.id(1);
    sim.plan(plan(&[("b", 1, &[2, 1])]));
    sim.advance(RETENTION);
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(sim.id(1), before);
    assert_eq!(sim.balancer.held(), (2, 1));
}

/// S7-02: a locality gets exactly its weight's share, and traffic follows a change of weight
/// without a new connection.
#[test]
fn localities_share_calls_by_weight() {
    let mut sim = Sim::ready_with(plan(&[("a", 70, &[1, 2]), ("b", 30, &[3])]));
    assert_eq!(shares(&sim), [("us/a".into(), 0.7), ("us/b".into(), 0.3)]);
    let counted = sim.count(10_000);
    // Three standard deviations of 10,000 draws with probability 0.3.
    assert!(counted[&3].abs_diff(3_000) < 138, "{counted:?}");
    assert!(counted[&1].abs_diff(counted[&2]) <= 1, "{counted:?}");

    sim.plan(plan(&[("a", 10, &[1, 2]), ("b", 90, &[3])]));
    assert_eq!(shares(&sim), [("us/a".into(), 0.1), ("us/b".into(), 0.9)]);
    assert!(sim.count(10_000)[&3].abs_diff(9_000) < 90);
    assert_eq!(
        (sim.connects.len(), sim.releases.len(), sim.publishes),
        (0, 0, 1)
    );
}

/// S7-02: a locality that is removed gets no call any more; one that is added gets its share when
/// it is ready, and the others carry the calls until then.
#[test]
fn localities_come_and_go() {
    let mut sim = Sim::ready_with(plan(&[("a", 1, &[1]), ("b", 3, &[2])]));
    sim.plan(plan(&[("a", 1, &[1])]));
    assert_eq!(shares(&sim), [("us/a".into(), 1.0)]);

    sim.plan(plan(&[("a", 1, &[1]), ("c", 1, &[3])]));
    assert_eq!(sim.connects, [3]);
    assert_eq!(shares(&sim), [("us/a".into(), 1.0)]);
    sim.ready(&[3]);
    assert_eq!(shares(&sim), [("us/a".into(), 0.5), ("us/c".into(), 0.5)]);
}

/// S10-03: a locality that is removed is kept for 15 minutes, and used again as it is if it
/// comes back meanwhile.
#[test]
fn a_removed_locality_is_kept_and_used_again() {
    let mut sim = Sim::ready_with(plan(&[("a", 1, &[1]), ("b", 3, &[2])]));
    let kept = sim.id(2);
    sim.plan(plan(&[("a", 1, &[1])]));
    assert_eq!(sim.releases, []);
    assert_eq!(sim.count(10), counts(&[(1, 10)]));

    sim.advance(RETENTION - Duration::from_secs(1));
    sim.plan(plan(&[("a", 1, &[1]), ("b", 1, &[2])]));
    assert_eq!((&sim.connects[..], sim.id(2)), (&[][..], kept));
    assert_eq!(shares(&sim), [("us/a".into(), 0.5), ("us/b".into(), 0.5)]);
    assert_eq!(sim.balancer.next_timeout(), None, "it is needed again");

    sim.plan(plan(&[("a", 1, &[1])]));
    sim.advance(RETENTION - Duration::from_secs(1));
    assert_eq!(sim.releases, []);
    sim.advance_secs(1);
    assert_eq!(sim.releases, [2]);
    assert_eq!(sim.balancer.held(), (1, 1));
}

/// S10-03: the time that a removed locality is kept for does not start anew with every plan.
#[test]
fn plans_do_not_prolong_the_life_of_a_removed_locality() {
    let mut sim = Sim::ready_with(plan(&[("a", 1, &[1]), ("b", 3, &[2])]));
    sim.plan(plan(&[("a", 1, &[1])]));
    for weight in 2..=15 {
        sim.advance_secs(60);
        sim.plan(plan(&[("a", weight, &[1])]));
    }
    assert_eq!(sim.releases, []);
    sim.advance_secs(60);
    assert_eq!(sim.releases, [2]);
}

/// S7-02: weights count among the READY localities only.
#[test]
fn a_locality_that_fails_gives_its_share_to_the_others() {
    let mut sim = Sim::ready_with(plan(&[("a", 2, &[1]), ("b", 2, &[2]), ("c", 4, &[3])]));
    sim.failing(3, "connection reset");
    assert_eq!(shares(&sim), [("us/a".into(), 0.5), ("us/b".into(), 0.5)]);
    sim.ready(&[3]);
    assert_eq!(shares(&sim).last().unwrap().1, 0.5);
}

/// S7-03: a cluster whose endpoints are all unhealthy has an empty plan: calls fail and say why;
/// it heals with the next plan.
#[test]
fn an_empty_plan_fails_with_its_note_and_heals() {
    let mut sim = Sim::ready_with(flat(&[1]));
    sim.plan(noted(
        plan(&[]),
        "EDS resource payments-eds has no healthy endpoint",
    ));
    assert_eq!(
        sim.pick_failure(),
        "cluster payments: no endpoints (EDS resource payments-eds has no healthy endpoint)",
    );
    sim.plan(flat(&[1]));
    assert_eq!(sim.pick_port(), 1, "its connection was kept");

    sim.plan(plan(&[]));
    sim.advance(RETENTION);
    assert_eq!(sim.releases, [1]);
    sim.plan(flat(&[1]));
    assert!(sim.is_queued());
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// S7-03: a first plan that is empty is published too.
#[test]
fn a_first_plan_that_is_empty_fails() {
    let mut sim = Sim::new();
    sim.plan(noted(plan(&[]), "EDS resource payments-eds does not exist"));
    assert!(sim.pick_failure().contains("payments-eds does not exist"));
}

/// S10-03: calls wait while a locality may become READY, and fail when all have failed: each with
/// the failure of one of them, by weight.
#[test]
fn calls_fail_only_when_every_locality_has_failed() {
    let mut sim = Sim::new();
    sim.plan(noted(plan(&[("a", 9, &[1]), ("b", 1, &[2])]), "stale data"));
    assert!(sim.is_queued());
    sim.failing(1, "connection refused");
    assert!(sim.is_queued(), "b may still become ready");
    sim.failing(2, "timed out");

    let mut failures = BTreeMap::<_, usize>::new();
    for _ in 0..1000 {
        *failures.entry(sim.pick_failure()).or_default() += 1;
    }
    let text = |zone, error| {
        let what = "cluster payments: no connection to any endpoint in";
        format!("{what} us/{zone}; last error: 127.0.0.1:{error} (stale data)")
    };
    let by_a = failures[&text("a", "1: connection refused")];
    let by_b = failures[&text("b", "2: timed out")];
    assert_eq!(by_a + by_b, 1000);
    assert!(by_b.abs_diff(100) < 30, "{failures:?}");
}

/// S10-03: a locality that failed counts as failing until it is READY, also when it gets a new
/// endpoint; its own calls wait for that endpoint, those of the other locality fail as before.
#[test]
fn a_failed_locality_does_not_make_the_others_wait() {
    let mut sim = Sim::new();
    sim.plan(plan(&[("a", 1, &[1]), ("b", 1, &[2])]));
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.plan(plan(&[("a", 1, &[3]), ("b", 1, &[2])]));
    let queued = (0..1000).filter(|_| sim.is_queued()).count();
    assert!(queued.abs_diff(500) < 50, "{queued} of 1000 wait");
    sim.ready(&[3]);
    assert_eq!(sim.count(10), counts(&[(3, 10)]));
}

/// Work is proportional to what changed: a batch is acted on once, and nothing is published when
/// calls would go where they went before.
#[test]
fn a_picker_is_published_once_per_batch_and_only_for_a_change() {
    let mut sim = Sim::new();
    sim.handle(BalancerEvent::Plan(flat(&[7]).into()));
    sim.handle(BalancerEvent::Plan(
        plan(&[("a", 1, &[1, 2]), ("b", 1, &[3])]).into(),
    ));
    sim.flush();
    assert_eq!(
        sim.connects,
        [1, 2, 3],
        "the plan that was replaced left no trace"
    );
    assert_eq!(sim.publishes, 1);

    sim.connecting(1);
    assert_eq!(sim.publishes, 1, "calls waited before, and still do");
    sim.ready(&[1]);
    assert_eq!(sim.publishes, 2);
    sim.failing(3, "connection refused");
    assert_eq!(sim.publishes, 2, "b had no share before, and has none now");
    sim.plan(plan(&[("a", 1, &[1, 2]), ("b", 1, &[3])]));
    assert_eq!(sim.publishes, 2, "the same plan");
}

/// A cluster that goes releases its endpoints; one that returns in the same batch keeps them.
#[test]
fn a_removed_cluster_releases_its_endpoints() {
    let mut sim = Sim::ready_with(plan(&[("a", 1, &[1]), ("b", 1, &[2])]));
    sim.handle(BalancerEvent::RemoveCluster(CLUSTER.into()));
    sim.handle(BalancerEvent::Plan(
        plan(&[("a", 1, &[1]), ("b", 1, &[2])]).into(),
    ));
    sim.flush();
    assert_eq!(sim.releases, []);

    let late = sim.id(1);
    sim.handle(BalancerEvent::RemoveCluster(CLUSTER.into()));
    sim.flush();
    assert_eq!(sim.releases, [1, 2]);
    assert!(sim.balancer.tree(CLUSTER).is_none());

    sim.handle(BalancerEvent::Endpoint {
        id: late,
        state: crowfly_lb::EndpointState::Idle,
    });
    sim.flush();
    assert_eq!(sim.connects, [], "a late report is ignored");
}

/// A locality that would be IDLE connects by itself, because calls choose among those that are
/// READY (A42: `ring_hash` below localities gets no call that could wake it). So a request to connect
/// finds nothing to do.
#[test]
fn localities_are_never_idle() {
    let lazy = |policy: Policy, zone, port| Locality {
        id: LocalityId::new("us", zone, ""),
        weight: NonZeroU32::MIN,
        child: leaf(policy, endpoints_at(&[port])).root,
    };
    let ring = Policy::RingHash {
        size: RingSize::default(),
        request_hash_header: None,
    };
    let first = Policy::PickFirst { shuffle: false };
    let zones = [lazy(ring, "a", 1), lazy(first, "b", 2)];
    let mut sim = Sim::new();
    sim.plan(tree_of(Node::Localities(Arc::new(zones))));
    assert_eq!(sim.connects, [1, 2]);
    sim.ready(&[1, 2]);
    sim.forget();
    sim.idle(1);
    sim.idle(2);
    assert_eq!(sim.connects, [1, 2], "both connections were lost");
    assert_eq!(sim.balancer.state(CLUSTER), Some(Connectivity::Connecting));
    let now = sim.now();
    sim.balancer.exit_idle(&CLUSTER.into(), now);
    sim.flush();
    assert_eq!(sim.connects, [1, 2], "they connect already");
}

/// The live tree shows the plan's shape with the state of each node, and why.
#[test]
fn the_live_tree_prints_states() {
    let mut sim = Sim::ready_with(plan(&[("a", 70, &[1, 2]), ("b", 30, &[3])]));
    sim.failing(3, "connection refused");
    sim.plan(plan(&[("a", 70, &[1, 4]), ("b", 30, &[3])]));
    assert_eq!(
        sim.tree(),
        "\
cluster payments READY
└ localities READY
  ├ us/a weight 70 READY
  │ └ round_robin READY
  │   ├ 127.0.0.1:1 READY
  │   ├ 127.0.0.1:2 READY (leaving)
  │   └ 127.0.0.1:4 CONNECTING (pending)
  └ us/b weight 30 TRANSIENT_FAILURE
    └ round_robin TRANSIENT_FAILURE
      └ 127.0.0.1:3 TRANSIENT_FAILURE (connection refused)
"
    );
}

fn shares(sim: &Sim) -> Vec<(String, f64)> {
    let shares = sim.picker.as_ref().unwrap().shares();
    shares
        .iter()
        .map(|share| (share.locality.to_string(), share.probability))
        .collect()
}

fn counts(expected: &[(Port, usize)]) -> BTreeMap<Port, usize> {
    expected.iter().copied().collect()
}
