//! Listener and routes change under a channel that is being served.

use std::sync::Arc;

use crowfly_model::grpc::Listener;
use crowfly_testkit::builders::{listener, routes};

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
