//! Tests of aggregates and the clusters below them (gRFC A37, A74). Most cases run twice: with the
//! list inside the aggregate, and with a list of its own.

use std::sync::Arc;

use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::{cluster, cluster_config};
use crowfly_xds::{ClusterError, MAX_DEPTH};

use crate::world::World;

/// A row: the aggregates as `name: children`, the clusters that do not exist, the leaves of `top`.
type Row = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// A world of these aggregates, each with its list inside, or each with a list of its own. All else
/// that they name is a leaf, or missing.
fn world(aggregates: &[&str], missing: &[&str], routed: &[&str], by_resource: bool) -> World {
    let mut world = World::routed(routed);
    let parsed = aggregates.iter().map(|text| text.split_once(": ").unwrap());
    let parsed: Vec<(&str, Vec<&str>)> = parsed
        .map(|(name, children)| (name, children.split(' ').collect()))
        .collect();
    let is_aggregate = |name: &&str| parsed.iter().any(|(aggregate, _)| aggregate == name);
    for (name, children) in &parsed {
        if by_resource {
            world.give(&cluster(name).aggregate_resource(name));
            world.give(&cluster_config(name).clusters(children.iter().copied()));
        } else {
            world.aggregate(name, children);
        }
        for leaf in children.iter().filter(|name| !is_aggregate(name)) {
            if missing.contains(leaf) {
                world.miss::<Cluster>(leaf);
            } else {
                world.leaf(leaf);
            }
        }
    }
    for leaf in routed.iter().filter(|name| !is_aggregate(name)) {
        world.leaf(leaf);
    }
    world
}

fn check(rows: &[Row]) {
    for (aggregates, missing, expected) in rows {
        for by_resource in [false, true] {
            let world = world(aggregates, missing, &["top"], by_resource);
            assert_eq!(
                &world.leaves("top"),
                expected,
                "{aggregates:?} - {missing:?}"
            );
            let config = world.ready();
            let leaves = expected.split(' ');
            assert_eq!(config.clusters.len(), leaves.clone().count() + 1);
            for leaf in leaves {
                assert!(config.clusters[leaf].is_ok(), "{leaf} is there as well");
            }
        }
    }
}

/// S4-11: An aggregate of an EDS and a DNS cluster is complete when both are; the order is kept.
#[test]
fn aggregate_of_eds_and_dns() {
    for order in [["e", "d"], ["d", "e"]] {
        let mut world = World::routed(&["top"]);
        world.aggregate("top", &order);
        world.give(&cluster("d").logical_dns("db", 80));
        world.leaf("e");
        world.waits_for("DNS name db:80");
        assert_eq!(world.published(), 0);

        world.answer("db", 80, &["10.0.0.1:80"]);

        assert_eq!(world.leaves("top"), order.join(" "));
        assert!(world.cluster("d").endpoints().is_some());
        assert!(world.cluster("e").endpoints().is_some());
        assert_eq!(world.published(), 1);
    }
}

/// S4-12: Aggregates in aggregates are flattened depth first.
#[test]
fn nested_aggregates_are_flattened_depth_first() {
    check(&[
        (&["top: a b c"], &[], "a b c"),
        (&["top: n z", "n: a b"], &[], "a b z"),
        (&["top: z n", "n: a b"], &[], "z a b"),
        (&["top: n m", "n: a b", "m: c d"], &[], "a b c d"),
        (&["top: n z", "n: a m b", "m: c d"], &[], "a c d b z"),
        (&["top: n", "n: m", "m: a"], &[], "a"),
    ]);
}

/// S4-13: A leaf that is reached twice keeps its first place, and so does a nested aggregate.
#[test]
fn duplicates_keep_the_first_place() {
    check(&[
        (&["top: a b a"], &[], "a b"),
        (&["top: n m", "n: a b", "m: b c a"], &[], "a b c"),
        (&["top: n m", "n: z x", "m: x y z"], &[], "z x y"),
        (&["top: b n", "n: a b"], &[], "b a"),
        (&["top: n a m", "n: m b", "m: c a"], &[], "c a b"),
    ]);
}

/// S4-13: Two spellings of an xdstp name (gRFC A47) are one cluster; here, one that is missing.
#[test]
fn spellings_of_a_name_are_one_cluster() {
    let name = "xdstp://unknown/envoy.config.cluster.v3.Cluster/a";
    let [first, second] = ["x=1&y=2", "y=2&x=1"].map(|context| format!("{name}?{context}"));
    let mut world = World::routed(&["top"]);
    world.give(&cluster("top").aggregate([first.as_str(), second.as_str()]));
    world.give(&cluster(&first).eds("e"));

    match &*world.cluster_error("top") {
        ClusterError::NoLeaf { missing, .. } => assert_eq!(missing.len(), 1, "{missing:?}"),
        other => panic!("expected no leaf, got {other}"),
    }
}

/// S4-16: A circle adds nothing to the leaves that there are.
#[test]
fn circles_with_a_leaf_work() {
    check(&[
        (&["top: top a"], &[], "a"),
        (&["top: a top"], &[], "a"),
        (&["top: n a", "n: top"], &[], "a"),
        (&["top: n", "n: m", "m: top n a"], &[], "a"),
        (&["top: n m", "n: m a", "m: n b"], &[], "b a"),
    ]);
}

/// S4-16: A circle without a leaf is an error; a leaf in it heals.
#[test]
fn circle_without_a_leaf_is_an_error() {
    for circle in [&["top: top"][..], &["top: n", "n: m", "m: top n"]] {
        for by_resource in [false, true] {
            let world = world(circle, &[], &["top", "other"], by_resource);
            let error = world.cluster_error("top");
            assert_eq!(
                error.to_string(),
                "cluster top: aggregate without a leaf cluster [node test-node]"
            );
            assert!(world.ready().clusters["other"].is_ok());
        }
    }
    let mut world = world(&["top: n", "n: top"], &[], &["top"], false);
    world.leaf("a");
    world.aggregate("n", &["top", "a"]);
    assert_eq!(world.leaves("top"), "a");
}

/// S4-17: A child that is missing is left out; the others serve, with a note.
#[test]
fn missing_children_are_left_out() {
    check(&[
        (&["top: lost a"], &["lost"], "a"),
        (&["top: a lost b"], &["lost"], "a b"),
        (&["top: n b", "n: lost"], &["lost"], "b"),
        (&["top: n b", "n: lost a", "m: lost"], &["lost"], "a b"),
    ]);
    let mut world = world(&["top: lost a"], &["lost"], &["top"], false);
    let notes = &world.cluster("top").notes;
    assert_eq!(notes.len(), 1);
    assert_eq!(
        notes[0].to_string(),
        "cluster lost: does not exist: the server deleted it [node test-node]"
    );

    let a = world.cluster("a");
    world.leaf("lost");
    assert_eq!(world.leaves("top"), "lost a");
    assert_eq!(world.cluster("top").notes, []);
    assert!(Arc::ptr_eq(&a, &world.cluster("a")));
}

/// S4-17: All children are missing: an error that lists them.
#[test]
fn aggregate_of_missing_children_is_an_error() {
    let mut world = world(
        &["top: n lost", "n: gone"],
        &["lost", "gone"],
        &["top"],
        false,
    );
    assert_eq!(
        world.cluster_error("top").to_string(),
        "cluster top: aggregate without a leaf cluster: \
         cluster gone: does not exist: the server deleted it; \
         cluster lost: does not exist: the server deleted it [node test-node]"
    );

    world.leaf("lost");
    assert_eq!(world.leaves("top"), "lost");
}

/// A chain `c0 -> c1 -> ...` of so many clusters, of which the last is a leaf.
fn chain(world: &mut World, length: usize) {
    for i in 0..length - 1 {
        world.aggregate(&format!("c{i}"), &[&format!("c{}", i + 1)]);
    }
    world.leaf(&format!("c{}", length - 1));
}

/// S4-14: Sixteen levels work, the leaf's included; seventeen fail, whichever aggregate above leads
/// there, and nothing else does.
#[test]
fn seventeen_levels_are_too_deep() {
    assert_eq!(MAX_DEPTH, 16);
    let mut world = World::routed(&["c0"]);
    chain(&mut world, 16);
    assert_eq!(world.leaves("c0"), "c15");

    // One above it, which has another leaf as well, and one in the middle, which is not too deep.
    world.route(&["above", "c0", "c1", "leaf"]);
    world.aggregate("above", &["leaf", "c0"]);
    world.leaf("leaf");

    let error = world.cluster_error("above");
    assert!(matches!(&*error, ClusterError::TooDeep { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cluster above: aggregate exceeds max depth 16 at cluster c15 [node test-node]"
    );
    assert_eq!(world.leaves("c0"), "c15");
    assert_eq!(world.leaves("c1"), "c15");
    assert!(world.ready().clusters["leaf"].is_ok());
}

/// S4-14: With lists that are resources, sixteen levels work and seventeen fail as well.
#[test]
fn seventeen_levels_of_lists_are_too_deep() {
    for (length, works) in [(16, true), (17, false)] {
        let links = (0..length - 1).map(|i| format!("c{i}: c{}", i + 1));
        let links: Vec<String> = links.collect();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let world = world(&links, &[], &["c0", "other"], true);
        assert_eq!(
            world.ready().clusters["c0"].is_ok(),
            works,
            "{length} levels"
        );
        assert!(world.ready().clusters["other"].is_ok());
    }
}

/// S4-14: A missing piece that may yet give a shorter way is waited for; one that cannot is not.
#[test]
fn too_deep_is_not_said_too_early() {
    let mut world = World::routed(&["top"]);
    chain(&mut world, 17);
    world.aggregate("top", &["short", "c0"]);
    world.waits_for("cluster short");
    world.aggregate("short", &["c8"]);
    assert_eq!(world.leaves("top"), "c16");

    world.aggregate("top", &["c0", "late"]);
    assert!(matches!(
        &*world.cluster_error("top"),
        ClusterError::TooDeep { .. }
    ));
}

/// S4-15: A chain that is too deep heals when a cluster in the middle is replaced.
#[test]
fn too_deep_heals_in_the_middle() {
    let mut world = World::routed(&["c0"]);
    chain(&mut world, 17);
    world.cluster_error("c0");

    world.leaf("c8");
    assert_eq!(world.leaves("c0"), "c8");

    world.aggregate("c8", &["c9"]);
    world.cluster_error("c0");
    world.aggregate("c8", &["c10"]);
    assert_eq!(world.leaves("c0"), "c16");
}

/// S4-18: A leaf that a route leads to and that an aggregate lists is complete in both places,
/// whichever of the names sorts first.
#[test]
fn leaf_is_routed_and_listed() {
    for [aggregate, leaf] in [["a", "z"], ["z", "a"]] {
        for routed in [[aggregate, leaf], [leaf, aggregate]] {
            let mut world = World::routed(&routed);
            world.aggregate(aggregate, &["m", leaf]);
            world.leaf(leaf);
            world.leaf("m");

            assert_eq!(world.leaves(aggregate), format!("m {leaf}"));
            assert!(world.cluster(leaf).endpoints().is_some());

            world.route(&[aggregate]);
            assert_eq!(world.leaves(aggregate), format!("m {leaf}"));
            world.route(&[leaf]);
            assert!(world.cluster(leaf).endpoints().is_some());
        }
    }
}

/// S4-19: A nested aggregate that a route leads to as well has its own leaves, and the outer ones
/// theirs, in whatever order names sort, routes are written and resources come.
#[test]
fn nested_aggregate_is_routed() {
    for [outer, nested, other] in permutations(["a", "m", "z"]) {
        for order in permutations([outer, nested, other]) {
            for give in permutations([0, 1, 2]) {
                let mut world = World::routed(&order);
                for which in give {
                    match which {
                        0 => world.aggregate(outer, &["x", nested, "y"]),
                        1 => world.aggregate(nested, &["y", "w", outer]),
                        _ => world.aggregate(other, &[nested, outer]),
                    }
                }
                for leaf in ["w", "x", "y"] {
                    world.leaf(leaf);
                }

                assert_eq!(world.leaves(outer), "x y w");
                assert_eq!(world.leaves(nested), "y w x");
                assert_eq!(world.leaves(other), "y w x");
            }
        }
    }
}

fn permutations<T: Copy>([a, b, c]: [T; 3]) -> [[T; 3]; 6] {
    [
        [a, b, c],
        [a, c, b],
        [b, a, c],
        [b, c, a],
        [c, a, b],
        [c, b, a],
    ]
}
