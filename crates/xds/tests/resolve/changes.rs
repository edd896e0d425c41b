//! Tests of changes of listener and routes under a channel that is being served. The old
//! configuration serves until the new one is complete (gRFC A74).

use std::sync::Arc;

use crowfly_model::grpc::{Cluster, Listener, RouteConfig};
use crowfly_testkit::builders::{cluster, endpoints, listener, routes};

use crate::world::World;

/// S4-04: From routes in the listener to routes of their own and back: the old configuration is the
/// last one given until the new one is complete, and the watch that is not needed ends.
#[test]
fn routes_move_out_of_the_listener_and_back() {
    let inline = || listener("web").routes(routes("inline").host("*").route("/", "c"));
    let mut world = World::new();
    world.give(&inline());
    world.leaf("c");
    world.leaf("d");
    world.ready();
    world.moves();
    world.published();

    world.give(&listener("web").rds("r"));
    world.waits_for("route configuration r");
    assert_eq!(world.published(), 0, "the old one serves");
    assert!(world.moves().watched.contains("route configuration r"));

    world.route(&["d"]);
    assert!(world.ready().clusters.contains_key("d"));
    assert_eq!(world.published(), 1);

    world.give(&inline());
    assert!(world.ready().clusters.contains_key("c"));
    assert_eq!(world.published(), 1);
    let gone = world.moves().unwatched;
    assert!(gone.contains("route configuration r"), "{gone:?}");
}

/// S4-05: The listener names other routes: the old ones are not watched any more, and news of them
/// that was under way is dropped.
#[test]
fn late_news_of_the_old_routes_is_dropped() {
    let mut world = World::serving(&["c"]);
    world.leaf("d");
    world.moves();
    world.published();

    world.give(&listener("web").rds("other"));
    world.waits_for("route configuration other");
    let moves = world.moves();
    assert!(moves.watched.contains("route configuration other"));
    assert!(moves.unwatched.contains("route configuration r"));

    world.late(&routes("r").host("*").route("/", "d"));
    world.waits_for("route configuration other");
    assert_eq!(world.published(), 0);
    assert!(world.moves().watched.is_empty());

    world.give(&routes("other").host("*").route("/", "c"));
    assert_eq!(world.ready().routes.name, "other");
    world.late(&routes("r").host("*").route("/", "d"));
    assert_eq!(world.ready().routes.name, "other");
    assert_eq!(world.published(), 1);
}

/// S4-05: A cluster that is the same before and after the listener named other routes is the same
/// `Arc`, even though the way to it was lost in between.
#[test]
fn cluster_survives_a_change_of_routes() {
    let mut world = World::serving(&["c"]);
    let before = world.cluster("c");

    world.give(&listener("web").rds("other"));
    world.waits_for("route configuration other");
    world.give(&routes("other").host("*").route("/", "c").route("/d", "d"));
    world.leaf("d");

    assert!(Arc::ptr_eq(&before, &world.cluster("c")));
}

/// S4-05: The listener names routes that are not there yet: the old routes serve on, and endpoints and
/// clusters behind them are followed (gRFC A74: what serves is whole).
#[test]
fn clusters_are_followed_while_the_next_routes_are_missing() {
    let mut world = World::serving(&["c", "d"]);
    world.hold("c");
    world.hold("d");
    let before = world.ready();

    world.give(&listener("web").rds("other"));
    world.waits_for("route configuration other");
    assert!(Arc::ptr_eq(&before, &world.in_use()), "nothing changed yet");

    world.give(&endpoints("c").locality("z", 1, ["127.0.0.1:9"]));
    let now = world.in_use();
    assert_ne!(before.clusters["c"], now.clusters["c"]);
    let same = |name: &str| before.clusters[name].as_ref().ok() == now.clusters[name].as_ref().ok();
    assert!(same("d") && now.routed().eq(before.routed()));
    assert!(Arc::ptr_eq(&before.listener, &now.listener));

    world.miss::<Cluster>("d");
    world.in_use().clusters["d"].as_ref().unwrap_err();

    // What ends it is that there can be no next one.
    world.miss::<RouteConfig>("other");
    world.error();
    world.give(&listener("web").rds("third"));
    world.waits_for("route configuration third");
    assert!(world.last_in_use().is_none());
}

/// S4-02, S4-04: Routes lead to a cluster that is not there yet, or a cluster names other
/// endpoints. That cluster stays as it was, and the others are followed.
#[test]
fn clusters_are_followed_while_another_cluster_is_missing() {
    let address = |world: &World, name: &str| {
        let config = world.in_use();
        let cluster = config.clusters[name].as_ref().unwrap();
        let endpoints = cluster.endpoints().unwrap();
        endpoints.priorities[0][0].endpoints[0].addresses[0].port()
    };
    let mut world = World::serving(&["c", "d"]);
    world.hold("c");
    world.hold("d");

    world.route(&["c", "new"]);
    world.waits_for("cluster new");
    world.give(&endpoints("d").locality("z", 1, ["127.0.0.1:9"]));
    assert!(world.in_use().routed().eq(["c", "d"]));
    assert_eq!((address(&world, "c"), address(&world, "d")), (1, 9));

    world.give(&cluster("c").eds("other"));
    world.waits_for("cluster new, endpoints other");
    world.give(&endpoints("d").locality("z", 1, ["127.0.0.1:10"]));
    assert_eq!((address(&world, "c"), address(&world, "d")), (1, 10));

    world.give(&endpoints("other").locality("z", 1, ["127.0.0.1:11"]));
    assert_eq!((address(&world, "c"), address(&world, "d")), (11, 10));
    world.leaf("new");
    assert!(world.ready().routed().eq(["c", "new"]));
}

/// S4-11: A fallback that nothing is known of yet holds a new list of an aggregate back, and no change
/// of the leaves in use.
#[test]
fn leaves_are_followed_while_another_is_missing() {
    let mut world = World::routed(&["top"]);
    world.aggregate("top", &["a", "b"]);
    world.leaf("a");
    world.leaf("b");
    world.hold("top");
    let before = world.ready();

    world.aggregate("top", &["a", "slow"]);
    world.give(&cluster("slow").logical_dns("db", 80));
    world.waits_for("DNS name db:80");
    world.give(&endpoints("a").locality("z", 1, ["127.0.0.1:9"]));

    let now = world.in_use();
    assert_eq!(now.clusters["top"], before.clusters["top"]);
    assert_ne!(now.clusters["a"], before.clusters["a"]);
    assert_eq!(now.clusters["b"], before.clusters["b"]);

    // One of them becomes an aggregate: the list that is kept needs a leaf.
    world.aggregate("a", &["x"]);
    world.leaf("x");
    world.hold("a");
    assert_eq!(world.in_use().clusters["a"], now.clusters["a"]);

    world.answer("db", 80, &["10.0.0.1:80"]);
    assert_eq!(world.leaves("top"), "x slow");
}

/// S4-06: A listener that is deleted is the channel's error, and nothing below it is watched; when
/// it is back, so is the rest.
#[test]
fn deleted_listener_comes_back() {
    let mut world = World::serving(&["c"]);
    world.published();

    world.miss::<Listener>("web");
    let error = world.error().to_string();
    assert_eq!(
        error,
        "listener web: does not exist: the server deleted it [node test-node]"
    );
    assert_eq!(world.watched(), ["listener web".to_owned()].into());

    world.give(&listener("web").rds("r"));
    assert!(world.ready().clusters["c"].is_ok());
    assert_eq!(world.published(), 1);
}

/// S4-07: No virtual host fits: an error, also in place of a configuration that was good, until one
/// fits.
#[test]
fn virtual_host_is_missed_and_found() {
    let mut world = World::new();
    world.give(&listener("web").rds("r"));
    world.give(&routes("r").host("other.example").route("/", "c"));
    world.leaf("c");
    let text = "route configuration r: no virtual host matches `web`";
    assert_eq!(world.error().to_string(), text);

    world.route(&["c"]);
    world.ready();

    world.give(&routes("r").host("other.example").route("/", "c"));
    assert_eq!(world.error().to_string(), text);
    assert!(!world.watched().contains("cluster c"));

    world.route(&["c"]);
    world.ready();
}

/// The authority chooses the virtual host, and need not be the listener's name.
#[test]
fn virtual_host_is_that_of_the_authority() {
    let mut world = World::with("other.example", &[]);
    world.give(&listener("web").rds("r"));
    let two_hosts = routes("r").host("web").route("/", "c");
    world.give(&two_hosts.host("other.example").route("/", "d"));
    world.leaf("d");

    assert!(world.ready().routed().eq(["d"]));
}
