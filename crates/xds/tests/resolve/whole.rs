//! Tests that a configuration is given whole or not at all, because half of one would fail calls.

use std::{collections::BTreeSet, sync::Arc};

use crowfly_model::grpc::route::{ClusterChoice, Forward, RouteAction};
use crowfly_testkit::builders::{cluster, endpoints, listener, routes};

use crate::world::World;

/// S4-01: The walk asks for one more type at each step, gives nothing until the last piece is here,
/// and then gives it once, whole.
#[test]
fn configuration_is_given_once_the_last_piece_is_here() {
    let mut world = World::new();
    world.waits_for("listener web");
    world.give(&listener("web").rds("r"));
    world.waits_for("route configuration r");
    world.give(&routes("r").host("web").route("/a", "c").route("/", "d"));
    world.waits_for("cluster c, cluster d");
    world.give(&cluster("c").eds("c-eds"));
    world.waits_for("cluster d, endpoints c-eds");
    world.give(&cluster("d"));
    world.give(&endpoints("c-eds").locality("z", 1, ["127.0.0.1:1"]));
    world.waits_for("endpoints d");
    assert_eq!(world.published(), 0);
    world.give(&endpoints("d"));

    let config = world.ready();

    assert_eq!(world.published(), 1);
    assert_eq!(config.listener.name, "web");
    assert_eq!(config.routes.name, "r");
    let routes = config.virtual_host.routes.iter();
    let [to_c, to_d] = ["c", "d"].map(|name| {
        let forward = Forward::to(ClusterChoice::Cluster(name.to_owned()));
        RouteAction::Forward(Arc::new(forward))
    });
    assert_eq!(
        routes.map(|route| &route.action).collect::<Vec<_>>(),
        [&to_c, &to_d]
    );
    let names: Vec<&str> = config.clusters.keys().map(|name| &**name).collect();
    assert_eq!(names, ["c", "d"]);
    let c = world.cluster("c");
    assert_eq!(c.cluster.eds_name(), Some("c-eds"));
    assert_eq!(c.endpoints().unwrap().priorities.len(), 1);
    assert_eq!((&c.notes, &config.notes), (&vec![], &vec![]));
}

/// gRFC A28, A74: a configuration with a split is whole when each cluster of the split is here. One with a weight
/// of zero is not asked for.
#[test]
fn each_cluster_of_a_split_is_asked_for() {
    let mut world = World::new();
    world.give(&listener("web").rds("r"));
    let split = [("c", 1), ("d", 1), ("c", 2), ("none", 0)];
    world.give(&routes("r").host("web").split("/", &split));
    world.waits_for("cluster c, cluster d");
    world.give(&cluster("c"));
    world.give(&endpoints("c"));
    world.waits_for("cluster d");
    world.give(&cluster("d"));
    world.give(&endpoints("d"));

    let config = world.ready();

    let names: Vec<&str> = config.clusters.keys().map(|name| &**name).collect();
    assert_eq!(names, ["c", "d"]);
}

/// A piece of a configuration, and how the world gets it.
type Piece = (&'static str, fn(&mut World));

/// S4-02: Whichever piece is the last to come, nothing is given before it.
#[test]
fn nothing_is_given_while_any_one_piece_is_withheld() {
    let pieces: [Piece; 9] = [
        ("listener web", |w| w.give(&listener("web").rds("r"))),
        ("route configuration r", |w| w.route(&["top", "c"])),
        ("cluster c", |w| w.give(&cluster("c"))),
        ("endpoints c", |w| w.give(&endpoints("c"))),
        ("cluster top", |w| {
            w.give(&cluster("top").aggregate_resource("x"));
        }),
        ("cluster list x", |w| {
            w.give(&crowfly_testkit::builders::cluster_config("x").clusters(["e", "d"]));
        }),
        ("endpoints e", |w| w.leaf("e")),
        ("cluster d", |w| w.give(&cluster("d").logical_dns("db", 80))),
        ("DNS name db:80", |w| w.answer("db", 80, &["10.0.0.1:80"])),
    ];
    for (withheld, (what, give)) in pieces.iter().enumerate() {
        let mut world = World::new();
        for (_, give) in pieces.iter().enumerate().filter(|(i, _)| *i != withheld) {
            give.1(&mut world);
        }
        // A leaf is two pieces; the first of them is the one that it waits for.
        let missing = if *what == "endpoints e" {
            "cluster e"
        } else {
            what
        };
        world.waits_for(missing);
        assert_eq!(world.published(), 0, "without {what}");

        give(&mut world);

        world.ready();
        assert_eq!(world.published(), 1, "with {what} at last");
    }
}

/// S4-03: Routes in the listener itself need no route configuration.
#[test]
fn inline_routes_are_not_watched() {
    let mut world = World::new();
    let inline = routes("inline").host("*").route("/", "c");
    world.give(&listener("web").routes(inline));
    world.leaf("c");

    world.ready();

    assert_eq!(
        world.watched(),
        ["cluster c", "endpoints c", "listener web"]
            .map(String::from)
            .into()
    );
    let moves = world.moves();
    assert_eq!(moves.watched, world.watched());
    assert_eq!(moves.unwatched, BTreeSet::new());
}

/// Every watch starts as soon as its name is known, beside the ones that are still open.
#[test]
fn watches_do_not_wait_for_each_other() {
    let mut world = World::routed(&["top", "c"]);
    world.aggregate("top", &["lost", "below", "d"]);
    world.give(&cluster("d").logical_dns("db", 80));
    world.aggregate("below", &["e"]);
    world.give(&cluster("e"));
    world.give(&cluster("c"));

    world.waits_for("DNS name db:80, cluster lost, endpoints c, endpoints e");

    for name in [
        "DNS name db:80",
        "cluster lost",
        "endpoints c",
        "endpoints e",
    ] {
        assert!(world.watched().contains(name), "{name}");
    }
}

/// An update that changes nothing gives no configuration.
#[test]
fn same_again_is_not_given_again() {
    let mut world = World::serving(&["c"]);
    world.published();

    world.leaf("c");
    world.give(&listener("web").rds("r"));
    world.route(&["c"]);

    assert_eq!(world.published(), 0);
}
