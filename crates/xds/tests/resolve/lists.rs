//! Tests of aggregates whose list is a resource of its own (gRFC A99). A change of the list must
//! leave the clusters in it as they are.

use std::sync::Arc;

use crowfly_model::grpc::ClusterConfig;
use crowfly_testkit::builders::{cluster, cluster_config};
use crowfly_xds::{ClusterError, XdsConfig};

use crate::world::World;

/// An aggregate by resource `x`, which lists `a b`, besides a cluster `other`.
fn with_list() -> World {
    let mut world = World::routed(&["top", "other"]);
    world.give(&cluster("top").aggregate_resource("x"));
    for name in ["a", "b", "other"] {
        world.leaf(name);
    }
    world.give(&cluster_config("x").clusters(["a", "b"]));
    world.ready();
    world.moves();
    world.published();
    world
}

/// The configurations hold the very same of this cluster.
fn same(before: &XdsConfig, after: &XdsConfig, name: &str) -> bool {
    let [before, after] = [before, after].map(|config| config.clusters[name].as_ref().unwrap());
    Arc::ptr_eq(before, after)
}

/// S4-24: An aggregate that names a list waits for it, and then has the leaves that it lists.
#[test]
fn list_is_waited_for() {
    let mut world = World::routed(&["top", "other"]);
    world.give(&cluster("top").aggregate_resource("x"));
    for name in ["a", "b", "other"] {
        world.leaf(name);
    }
    world.waits_for("cluster list x");
    assert_eq!(world.published(), 0);

    world.give(&cluster_config("x").clusters(["b", "a"]));

    assert_eq!(world.leaves("top"), "b a");
    assert_eq!(world.published(), 1);
    assert!(world.ready().clusters["a"].is_ok());
}

/// S4-25: The list has another order: so have the leaves, which are themselves the same as before;
/// no watch begins or ends, and only the aggregate is worked out again.
#[test]
fn reordered_list_changes_the_order_alone() {
    let mut world = with_list();
    for order in [["b", "a"], ["a", "b"], ["b", "a"]] {
        let before = world.ready();
        let built = world.resolver.clusters_built();

        world.give(&cluster_config("x").clusters(order));

        assert_eq!(world.leaves("top"), order.join(" "));
        assert_eq!(world.published(), 1);
        let after = world.ready();
        for name in ["a", "b", "other"] {
            assert!(same(&before, &after, name), "{name}");
        }
        assert!(Arc::ptr_eq(
            &before.clusters["top"].as_ref().unwrap().cluster,
            &world.cluster("top").cluster
        ));
        let moves = world.moves();
        assert!(
            moves.watched.is_empty() && moves.unwatched.is_empty(),
            "{moves:?}"
        );
        assert_eq!(world.resolver.clusters_built() - built, 1);
    }
}

/// A list grows and shrinks; leaves that stay are the same.
#[test]
fn list_grows_and_shrinks() {
    let mut world = with_list();
    let before = world.ready();
    world.leaf("c");

    world.give(&cluster_config("x").clusters(["c", "a"]));

    assert_eq!(world.leaves("top"), "c a");
    assert!(same(&before, &world.ready(), "a"));
    assert!(!world.ready().clusters.contains_key("b"));
    assert_eq!(
        world.moves().unwatched,
        ["cluster b", "endpoints b"].map(String::from).into()
    );
}

/// S4-26: A list that does not exist is the error of its aggregate alone, which heals with it.
#[test]
fn missing_list_is_the_error_of_its_aggregate() {
    let mut world = with_list();
    let before = world.ready();

    world.miss::<ClusterConfig>("x");

    let error = world.cluster_error("top");
    assert!(matches!(&*error, ClusterError::List { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cluster top: cluster list x: does not exist: the server deleted it [node test-node]"
    );
    assert!(same(&before, &world.ready(), "other"));

    world.give(&cluster_config("x").clusters(["b"]));
    assert_eq!(world.leaves("top"), "b");
    assert!(same(&before, &world.ready(), "other"));
}

/// S4-26: A list that is refused from the start is an error, too.
#[test]
fn invalid_list_is_the_error_of_its_aggregate() {
    let mut world = World::routed(&["top", "other"]);
    world.give(&cluster("top").aggregate_resource("x"));
    world.leaf("other");

    world.give(&cluster_config("x").invalid());

    let error = world.cluster_error("top").to_string();
    assert!(
        error.starts_with("cluster top: cluster list x: invalid: "),
        "{error}"
    );
    assert!(world.ready().clusters["other"].is_ok());
}

/// S4-26: Inside of another aggregate, one without a list is left out and noted.
#[test]
fn nested_aggregate_without_a_list_is_left_out() {
    let mut world = with_list();
    world.route(&["outer"]);
    world.aggregate("outer", &["top", "other"]);
    assert_eq!(world.leaves("outer"), "a b other");

    world.miss::<ClusterConfig>("x");

    assert_eq!(world.leaves("outer"), "other");
    let notes = &world.cluster("outer").notes;
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0]
            .to_string()
            .starts_with("cluster list x: does not exist")
    );
}

/// S4-27: From a list in the cluster to one of its own, to another, and back: the last
/// configuration is replaced when the new one is whole, and leaves that stay are the same.
#[test]
fn switch_of_lists_keeps_serving() {
    let mut world = World::routed(&["top"]);
    world.leaf("a");
    world.leaf("b");
    world.aggregate("top", &["a", "b"]);
    let before = world.ready();
    world.published();

    world.give(&cluster("top").aggregate_resource("x"));
    world.waits_for("cluster list x");
    assert_eq!(world.published(), 0, "the old one serves");
    world.give(&cluster_config("x").clusters(["b", "a"]));
    assert_eq!(world.leaves("top"), "b a");
    assert_eq!(world.published(), 1);
    assert!(same(&before, &world.ready(), "a") && same(&before, &world.ready(), "b"));

    world.give(&cluster("top").aggregate_resource("y"));
    world.waits_for("cluster list y");
    assert!(world.moves().unwatched.contains("cluster list x"));
    world.late(&cluster_config("x").clusters(["a"]));
    assert_eq!(world.published(), 0, "the old one serves");
    world.give(&cluster_config("y").clusters(["a"]));
    assert_eq!(world.leaves("top"), "a");

    world.aggregate("top", &["a", "b"]);
    assert_eq!(world.leaves("top"), "a b");
    assert!(world.moves().unwatched.contains("cluster list y"));
    assert!(same(&before, &world.ready(), "a"));
}

/// S4-28: Aggregates that name the same list share one watch, which ends with the last of them.
#[test]
fn aggregates_share_a_list() {
    let mut world = with_list();
    world.route(&["top", "twin"]);
    world.give(&cluster("twin").aggregate_resource("x"));
    assert_eq!(world.leaves("twin"), "a b");
    assert_eq!(world.leaves("top"), "a b");
    assert!(!world.moves().watched.contains("cluster list x"));

    world.give(&cluster_config("x").clusters(["b", "a"]));
    assert_eq!(world.leaves("twin"), "b a");
    assert_eq!(world.leaves("top"), "b a");

    world.route(&["twin"]);
    assert_eq!(world.moves().unwatched, ["cluster top".to_owned()].into());
    world.aggregate("twin", &["a"]);
    assert!(world.moves().unwatched.contains("cluster list x"));
}
