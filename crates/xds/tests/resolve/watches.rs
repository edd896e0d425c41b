//! Tests of the watches of a resolver: their subjects, beginnings and ends. A watch that is not
//! needed costs the server and the client.

use std::collections::BTreeSet;
use std::sync::Arc;

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};

use crate::world::World;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The answer lists exactly what it depends on.
#[test]
fn watches_are_what_the_answer_depends_on() {
    let mut world = World::serving(&["c"]);
    assert_eq!(
        world.watched(),
        names(&[
            "cluster c",
            "endpoints c",
            "listener web",
            "route configuration r"
        ])
    );

    // The routes now lead elsewhere: `c` is not needed any more.
    world.route(&["d"]);

    assert_eq!(
        world.watched(),
        names(&["cluster d", "listener web", "route configuration r"])
    );
}

/// S4-20: Two clusters whose endpoints are the same resource share one watch, and nothing else.
#[test]
fn clusters_share_a_watch_of_endpoints() {
    let mut world = World::routed(&["a", "b"]);
    world.give(&cluster("a").eds("shared"));
    world.give(&cluster("b").eds("shared"));
    let watches = world.resolver.watches().resources;
    let of_endpoints = watches.iter().filter(|key| key.kind.noun == "endpoints");
    assert_eq!(of_endpoints.count(), 1);

    world.give(&endpoints("shared"));
    let [a, b] = ["a", "b"].map(|name| world.cluster(name));
    assert!(Arc::ptr_eq(a.endpoints().unwrap(), b.endpoints().unwrap()));
    assert_eq!((&*a.cluster.name, &*b.cluster.name), ("a", "b"));
    world.moves();

    // One leaves, with its own trouble; the other does not feel it.
    world.miss::<Cluster>("a");
    world.ready().clusters["a"].as_ref().unwrap_err();
    assert!(Arc::ptr_eq(&b, &world.cluster("b")));
    assert_eq!(world.moves().unwatched, names(&[]));
    world.miss::<Cluster>("b");
    assert_eq!(world.moves().unwatched, names(&["endpoints shared"]));
}

/// S4-20: One host name, one lookup; another port is another name.
#[test]
fn clusters_share_a_lookup() {
    let mut world = World::routed(&["a", "b", "c"]);
    world.give(&cluster("a").logical_dns("db", 80));
    world.give(&cluster("b").logical_dns("db", 80));
    world.give(&cluster("c").logical_dns("db", 81));
    assert_eq!(world.resolver.watches().names.len(), 2);
    world.answer("db", 80, &["10.0.0.1:80"]);
    world.answer("db", 81, &["10.0.0.1:81"]);

    let [a, b] = ["a", "b"].map(|name| world.cluster(name));
    assert_eq!(a.members, b.members);
    assert_ne!(a.members, world.cluster("c").members);

    world.moves();
    world.route(&["a"]);
    assert_eq!(
        world.moves().unwatched,
        names(&["DNS name db:81", "cluster b", "cluster c"])
    );
}

/// S4-21: With the last way to a cluster end its watches and its lookup, in the same step.
#[test]
fn watches_of_a_dropped_cluster_end_in_the_same_step() {
    let mut world = World::routed(&["top", "keep"]);
    world.aggregate("top", &["c", "d", "keep"]);
    world.leaf("c");
    world.leaf("keep");
    world.give(&cluster("d").logical_dns("db", 80));
    world.answer("db", 80, &["10.0.0.1:80"]);
    world.ready();
    world.moves();

    world.route(&["keep"]);

    let moves = world.moves();
    assert_eq!(moves.watched, names(&[]));
    assert_eq!(
        moves.unwatched,
        names(&[
            "DNS name db:80",
            "cluster c",
            "cluster d",
            "cluster top",
            "endpoints c"
        ])
    );
    assert_eq!(world.ready().clusters.len(), 1);
}

/// S4-21: The cluster itself leads elsewhere: to other endpoints, another host, no aggregate.
#[test]
fn watches_follow_what_a_cluster_says() {
    let mut world = World::serving(&["c"]);
    world.moves();

    world.give(&cluster("c").eds("e"));
    let moves = world.moves();
    assert_eq!(moves.watched, names(&["endpoints e"]));
    assert_eq!(moves.unwatched, names(&["endpoints c"]));

    world.give(&cluster("c").logical_dns("db", 80));
    let moves = world.moves();
    assert_eq!(moves.watched, names(&["DNS name db:80"]));
    assert_eq!(moves.unwatched, names(&["endpoints e"]));

    world.give(&cluster("c").logical_dns("db2", 80));
    let moves = world.moves();
    assert_eq!(moves.watched, names(&["DNS name db2:80"]));
    assert_eq!(moves.unwatched, names(&["DNS name db:80"]));

    world.aggregate("c", &["l"]);
    let moves = world.moves();
    assert_eq!(moves.watched, names(&["cluster l"]));
    assert_eq!(moves.unwatched, names(&["DNS name db2:80"]));

    world.give(&cluster("c"));
    let moves = world.moves();
    assert_eq!(moves.watched, names(&["endpoints c"]));
    assert_eq!(moves.unwatched, names(&["cluster l"]));
}

/// S4-22: A cluster that a call holds stays watched and in the configuration after the routes dropped
/// it, and is kept up to date; it goes with the last that holds it.
#[test]
fn held_cluster_stays_until_it_is_released() {
    let mut world = World::serving(&["c", "d"]);
    world.hold("c");
    world.hold("c");
    world.moves();
    world.published();

    world.route(&["d"]);
    assert_eq!(world.moves().unwatched, names(&[]));
    assert!(world.ready().routed().eq(["d"]));
    let held = world.cluster("c");

    world.give(&endpoints("c").locality("z", 1, ["127.0.0.1:9"]));
    assert_ne!(world.cluster("c").members, held.members);

    world.release("c");
    assert_eq!(world.moves().unwatched, names(&[]));
    world.release("c");
    assert_eq!(
        world.moves().unwatched,
        names(&["cluster c", "endpoints c"])
    );
    assert!(!world.ready().clusters.contains_key("c"));

    // Once too often does no harm.
    world.release("c");
    world.ready();
}

/// S4-22: A held aggregate holds its leaves.
#[test]
fn held_aggregate_keeps_its_leaves() {
    let mut world = World::routed(&["top", "d"]);
    world.aggregate("top", &["c", "d"]);
    world.leaf("c");
    world.leaf("d");
    world.hold("top");
    world.moves();

    world.route(&["d"]);
    assert_eq!(world.moves().unwatched, names(&[]));
    assert_eq!(world.leaves("top"), "c d");
    assert!(world.ready().clusters["c"].is_ok());

    world.release("top");
    assert_eq!(
        world.moves().unwatched,
        names(&["cluster c", "cluster top", "endpoints c"])
    );
}

/// S4-22: A cluster that is held from the start can be released.
#[test]
fn cluster_held_from_the_start_is_released() {
    let mut world = World::with("web", &["c"]);
    assert_eq!(world.watched(), names(&["cluster c", "listener web"]));

    world.release("c");

    assert_eq!(world.watched(), names(&["listener web"]));
}

/// S4-23: A held cluster of which nothing is known yet holds nothing back: not the first
/// configuration, and no later one.
#[test]
fn unresolved_held_cluster_holds_nothing_back() {
    let mut world = World::routed(&["c"]);
    world.hold("slow");
    assert!(world.watched().contains("cluster slow"));
    world.leaf("c");
    assert!(!world.ready().clusters.contains_key("slow"));
    world.published();

    world.give(&cluster("slow"));
    world.give(&endpoints("c").locality("z", 1, ["127.0.0.1:9"]));
    assert_eq!(world.published(), 1);
    assert!(!world.ready().clusters.contains_key("slow"));

    world.give(&endpoints("slow"));
    assert!(world.ready().clusters["slow"].is_ok());
    assert_eq!(world.published(), 1);

    // A route leads to it and it loses its endpoints: now it counts.
    world.route(&["c", "slow"]);
    world.give(&cluster("slow").eds("other"));
    world.waits_for("endpoints other");
    world.miss::<Endpoints>("other");
    assert!(world.cluster("slow").endpoints().is_none());
}

/// S4-23: A held aggregate is in the configuration when all its leaves are, and not before: who
/// finds it there finds them.
#[test]
fn held_aggregate_comes_with_its_leaves() {
    let mut world = World::serving(&["c"]);
    world.hold("top");
    world.aggregate("top", &["c", "slow"]);
    world.give(&cluster("slow"));
    assert!(!world.ready().clusters.contains_key("top"));

    world.give(&endpoints("slow"));
    assert_eq!(world.leaves("top"), "c slow");
    assert!(world.ready().clusters.contains_key("slow"));

    world.give(&cluster("slow").eds("other"));
    let config = world.ready();
    assert!(!config.clusters.contains_key("top"));
    assert!(!config.clusters.contains_key("slow"));
    assert!(config.clusters.contains_key("c"));
}
