//! Tests of trouble with one piece of a configuration: the other pieces must work on.

use std::sync::Arc;

use crowfly_model::grpc::{Cluster, Endpoints, RouteConfig};
use crowfly_testkit::builders::{cluster, cluster_config, endpoints, listener, routes};
use crowfly_xds::{Members, ResolveError};

use crate::world::World;

/// A listener for servers is an error that says so.
#[test]
fn socket_listener_is_an_error() {
    let mut world = World::new();

    world.give(&listener("web").socket());

    assert_eq!(world.error(), ResolveError::SocketListener("web".into()));
}

/// A listener or a route configuration that is not to be had leaves no configuration.
#[test]
fn listener_and_routes_in_trouble_are_errors() {
    let mut world = World::new();
    world.give(&listener("web").rds("r").invalid());
    let error = world.error().to_string();
    assert!(error.starts_with("listener web: invalid: "), "{error}");

    world.give(&listener("web").rds("r"));
    world.miss::<RouteConfig>("r");
    let error = world.error().to_string();
    assert!(
        error.starts_with("route configuration r: does not exist"),
        "{error}"
    );
}

/// S4-08: Trouble that leaves resources in use takes nothing away. It is noted where it belongs, and
/// forgotten when it is over.
#[test]
fn ambient_errors_are_notes() {
    let mut world = World::routed(&["c", "top"]);
    world.leaf("c");
    world.give(&cluster("top").aggregate_resource("x"));
    world.give(&cluster_config("x").clusters(["c"]));
    let before = world.ready();

    world.give(&listener("web").rds("r").invalid());
    world.give(&routes("r").invalid());
    world.give(&cluster("c").invalid());
    world.give(&endpoints("c").invalid());
    world.give(&cluster_config("x").invalid());

    let config = world.ready();
    assert!(Arc::ptr_eq(&config.listener, &before.listener));
    assert!(Arc::ptr_eq(&config.virtual_host, &before.virtual_host));
    assert_eq!(
        noted(&config.notes),
        ["listener web", "route configuration r"]
    );
    let (old, new) = (before.clusters["c"].as_ref().unwrap(), world.cluster("c"));
    assert!(Arc::ptr_eq(&new.cluster, &old.cluster));
    assert_eq!(new.members, old.members);
    assert_eq!(noted(&new.notes), ["cluster c", "endpoints c"]);
    // What troubles a leaf is told where the leaf is.
    assert_eq!(world.leaves("top"), "c");
    assert_eq!(noted(&world.cluster("top").notes), ["cluster list x"]);

    world.give(&listener("web").rds("r"));
    world.route(&["c", "top"]);
    world.leaf("c");
    world.give(&cluster_config("x").clusters(["c"]));
    assert_eq!(world.ready(), before);
}

/// S4-09: A cluster that is not to be had is that cluster's error; the others work.
#[test]
fn missing_cluster_is_its_own_error() {
    let mut world = World::serving(&["c"]);
    let before = world.cluster("c");

    world.route(&["lost", "c", "bad"]);
    world.miss::<Cluster>("lost");
    world.give(&cluster("bad").invalid());

    assert_eq!(
        world.cluster_error("lost").to_string(),
        "cluster lost: does not exist: the server deleted it [node test-node]"
    );
    let error = world.cluster_error("bad").to_string();
    assert!(error.starts_with("cluster bad: invalid: "), "{error}");
    assert!(Arc::ptr_eq(&before, &world.cluster("c")));
}

/// S4-10: Endpoints that are not to be had leave a cluster without any, and a note that says why.
#[test]
fn missing_endpoints_are_a_note() {
    let mut world = World::routed(&["c"]);
    world.give(&cluster("c").eds("lost"));
    world.miss::<Endpoints>("lost");

    let state = world.cluster("c");

    assert_eq!(state.members, Members::Endpoints(None));
    assert_eq!(
        state.notes[0].to_string(),
        "endpoints lost: does not exist: the server deleted it [node test-node]"
    );

    world.give(&endpoints("lost").locality("z", 1, ["127.0.0.1:1"]));
    assert!(world.cluster("c").endpoints().is_some());
    assert_eq!(world.cluster("c").notes, []);
}

/// gRFC A74: a lookup that fails leaves a cluster without endpoints, with a note; one that fails
/// after a good answer leaves the answer. A name is one endpoint with all its addresses (gRFC A61).
#[test]
fn failed_lookup_is_a_note() {
    let mut world = World::routed(&["d"]);
    world.give(&cluster("d").logical_dns("db", 80));
    world.fail_lookup("db", 80, "no such host");
    let state = world.cluster("d");
    assert_eq!(state.members, Members::Endpoints(None));
    assert_eq!(
        state.notes[0].to_string(),
        "DNS name db:80: no such host [node test-node]"
    );

    world.answer("db", 80, &["10.0.0.1:80", "10.0.0.2:80"]);
    let good = world.cluster("d");
    let priorities = &good.endpoints().unwrap().priorities;
    let [locality] = &priorities[0][..] else {
        panic!("expected one locality, got {priorities:?}");
    };
    assert_eq!(locality.endpoints.len(), 1);
    assert_eq!(locality.endpoints[0].addresses.len(), 2);
    assert_eq!(good.notes, []);

    for trouble in ["SERVFAIL", "timed out"] {
        world.fail_lookup("db", 80, trouble);
        let state = world.cluster("d");
        assert_eq!(state.members, good.members);
        assert!(state.notes[0].to_string().contains(trouble));
    }
    world.answer("db", 80, &[]);
    assert_eq!(world.cluster("d").members, good.members);
    world.answer("db", 80, &["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(world.cluster("d"), good);
}

fn noted(notes: &[crowfly_xds::ResourceError]) -> Vec<String> {
    let texts = notes
        .iter()
        .map(|note| format!("{} {}", note.noun, note.name));
    texts.collect()
}
