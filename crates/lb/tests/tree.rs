//! Tests of the live tree and of the texts of failures, because operators read both to find out why
//! calls fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use crowfly_lb::{Connectivity, TreeKind, TreeRole, timing::FAILOVER_TIMEOUT};
use sim::{
    Picked, Sim,
    plans::{aggregate, cluster, gate, localities, priorities, priority, tree_of, zone},
};

/// S6-11: an aggregate of two leaf clusters with two priorities each, while the first has failed
/// over to its second priority.
#[test]
fn an_aggregate_that_failed_over_inside_its_first_leaf() {
    let mut sim = Sim::new();
    sim.plan(tree_of(aggregate(&[
        (
            "primary",
            priority(&[
                ("child0", localities(&[("a", 70, &[1, 2]), ("b", 30, &[3])])),
                ("child1", localities(&[("c", 1, &[4])])),
            ]),
        ),
        ("secondary", priorities(&[&[5], &[6]])),
    ])));
    sim.failing(1, "connection refused");
    sim.failing(2, "connection refused");
    sim.failing(3, "timed out");
    sim.ready(&[4]);
    let _call = sim.call();
    assert_eq!(
        sim.tree(),
        "\
cluster payments READY
└ priority READY
  ├ primary READY (in use)
  │ └ cluster_impl primary limit 1024 READY 1 in flight
  │   └ priority READY
  │     ├ child0 TRANSIENT_FAILURE
  │     │ └ localities TRANSIENT_FAILURE
  │     │   ├ us/a weight 70 TRANSIENT_FAILURE
  │     │   │ └ round_robin TRANSIENT_FAILURE
  │     │   │   ├ 127.0.0.1:1 TRANSIENT_FAILURE (connection refused)
  │     │   │   └ 127.0.0.1:2 TRANSIENT_FAILURE (connection refused)
  │     │   └ us/b weight 30 TRANSIENT_FAILURE
  │     │     └ round_robin TRANSIENT_FAILURE
  │     │       └ 127.0.0.1:3 TRANSIENT_FAILURE (timed out)
  │     └ child1 READY (in use)
  │       └ localities READY
  │         └ us/c weight 1 READY
  │           └ round_robin READY
  │             └ 127.0.0.1:4 READY 1 in flight
  └ secondary (not needed yet)
"
    );
}

/// S8-12: priorities that are kept, localities that left, and drops are told.
#[test]
fn what_is_kept_is_told() {
    let plan = |zones: &[_]| {
        let drops = [("throttle", 100_000), ("lb", 2_500)];
        let children = [("child0", localities(zones)), ("child1", zone(&[3]))];
        tree_of(gate("payments", &drops, 8, priority(&children)))
    };
    let mut sim = Sim::new();
    sim.plan(plan(&[("a", 1, &[1]), ("b", 1, &[2])]));
    sim.advance(FAILOVER_TIMEOUT);
    sim.ready(&[3]);
    sim.ready(&[1, 2]);
    sim.plan(plan(&[("a", 1, &[1])]));
    assert_eq!(
        sim.tree(),
        "\
cluster payments READY
└ cluster_impl payments limit 8, drops throttle 10% + lb 0.25% READY
  └ priority READY
    ├ child0 READY (in use)
    │ └ localities READY
    │   ├ us/a weight 1 READY
    │   │ └ round_robin READY
    │   │   └ 127.0.0.1:1 READY
    │   └ us/b READY (removed, kept in case it returns)
    │     └ round_robin READY
    │       └ 127.0.0.1:2 READY
    └ child1 READY (kept in case it is needed)
      └ localities READY
        └ us/a weight 1 READY
          └ round_robin READY
            └ 127.0.0.1:3 READY
"
    );
}

/// S8-12: everything that the text tells is in a field too, so that nothing has to parse the text.
#[test]
fn a_live_tree_has_fields_for_all_that_it_prints() {
    let children = [
        ("child0", localities(&[("a", 7, &[1])])),
        ("child1", zone(&[2])),
    ];
    let drops = [("throttle", 1)];
    let root = gate("payments", &drops, 8, priority(&children));
    let mut sim = Sim::ready_with(tree_of(root));
    let _call = sim.call();
    let tree = sim.tree_fields();
    assert_eq!(
        (tree.kind, tree.name.as_str()),
        (TreeKind::Cluster, "payments")
    );

    let gate = &tree.children[0];
    assert_eq!(gate.kind, TreeKind::ClusterImpl);
    assert_eq!((gate.limit, gate.in_flight), (Some(8), Some(1)));
    let [drop] = gate.drops.as_slice() else {
        panic!("{gate:?}");
    };
    assert_eq!((&*drop.name, drop.per_million), ("throttle", 1));

    let priority = &gate.children[0];
    assert_eq!(
        (priority.kind, priority.name.as_str()),
        (TreeKind::Priority, "")
    );
    let [first, second] = priority.children.as_slice() else {
        panic!("{priority:?}");
    };
    assert_eq!(
        (first.kind, first.name.as_str()),
        (TreeKind::PriorityChild, "child0")
    );
    assert_eq!(first.role, Some(TreeRole::InUse));
    assert_eq!(
        (second.role, second.state),
        (Some(TreeRole::NotNeeded), None)
    );

    let locality = &first.children[0].children[0];
    assert_eq!(
        (locality.kind, locality.weight),
        (TreeKind::Locality, Some(7))
    );
    let policy = &locality.children[0];
    assert_eq!(
        (policy.kind, policy.name.as_str()),
        (TreeKind::LeafPolicy, "round_robin")
    );
    let endpoint = &policy.children[0];
    assert_eq!(endpoint.kind, TreeKind::Endpoint);
    assert_eq!(endpoint.addresses, ["127.0.0.1:1"]);
    assert_eq!((endpoint.in_flight, endpoint.picks), (Some(1), Some(1)));
    assert_eq!(
        (endpoint.state, endpoint.role),
        (Some(Connectivity::Ready), None)
    );
}

/// S8-12: an endpoint that fails while it waits to take over, or to leave, still says why.
#[test]
fn a_role_does_not_hide_the_reason_of_a_failure() {
    let mut sim = Sim::ready_with(tree_of(zone(&[1, 2])));
    sim.failing(2, "connection refused");
    sim.plan(tree_of(zone(&[3, 4])));
    sim.failing(3, "timed out");
    let expected = "\
cluster payments READY
└ localities READY
  └ us/a weight 1 READY
    └ round_robin READY
      ├ 127.0.0.1:1 READY (leaving)
      ├ 127.0.0.1:2 TRANSIENT_FAILURE (leaving, connection refused)
      ├ 127.0.0.1:3 TRANSIENT_FAILURE (pending, timed out)
      └ 127.0.0.1:4 CONNECTING (pending)
";
    assert_eq!(sim.tree(), expected);
}

/// S6-07: a tree that is to replace the one in use is shown beside it.
#[test]
fn what_is_to_take_over_is_told() {
    let mut sim = Sim::ready_with(tree_of(cluster("payments", zone(&[1]))));
    sim.plan(tree_of(aggregate(&[("new", zone(&[2]))])));
    assert_eq!(
        sim.tree(),
        "\
cluster payments READY
├ cluster_impl payments limit 1024 READY
│ └ localities READY
│   └ us/a weight 1 READY
│     └ round_robin READY
│       └ 127.0.0.1:1 READY
└ priority CONNECTING (takes over when it is READY)
  └ new CONNECTING (in use)
    └ cluster_impl new limit 1024 CONNECTING
      └ localities CONNECTING
        └ us/a weight 1 CONNECTING
          └ round_robin CONNECTING
            └ 127.0.0.1:2 CONNECTING
"
    );
}

/// S8-03: a priority that was given its time says so.
#[test]
fn a_priority_that_took_too_long_is_told() {
    let mut sim = Sim::new();
    sim.plan(tree_of(priorities(&[&[1], &[2]])));
    assert!(sim.tree().contains("child0 CONNECTING (in use)"));
    sim.advance(FAILOVER_TIMEOUT);
    let tree = sim.tree();
    assert!(tree.contains("child0 CONNECTING (took too long)"), "{tree}");
    assert!(tree.contains("child1 CONNECTING (in use)"), "{tree}");
    sim.failing(2, "connection refused");
    let tree = sim.tree();
    assert!(
        tree.contains("child0 CONNECTING (in use, took too long)"),
        "{tree}"
    );
}

/// S10-03: the calls of a locality that failed and has other endpoints since wait for those, below
/// a priority too; the others fail, and say why.
#[test]
fn a_failed_locality_that_connects_again_is_told() {
    let mut sim = Sim::new();
    let plan = |ports: &[_]| {
        let zones = localities(&[("a", 1, ports), ("b", 1, &[9])]);
        tree_of(priority(&[("child0", zones)]))
    };
    sim.plan(plan(&[1]));
    sim.failing(1, "connection refused");
    sim.failing(9, "connection refused");
    sim.plan(plan(&[2]));
    let (mut queued, mut failed) = (0, 0);
    for _ in 0..100 {
        match sim.pick() {
            Picked::Queue => queued += 1,
            Picked::Fail(text) => {
                failed += 1;
                assert_eq!(
                    text,
                    "cluster payments: no connection to any endpoint in us/b; \
                     last error: 127.0.0.1:9: connection refused (and 1 more locality)"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        queued > 20 && failed > 20,
        "{queued} waited, {failed} failed"
    );
}
