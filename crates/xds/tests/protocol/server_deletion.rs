//! How the server half says that a resource is gone, and what it sends of a change (xDS protocol:
//! "Grouping resources into responses", "Deleting resources").

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};

use crate::server::{Server, names};

/// H-05, P-09: A change to one cluster sends all of them in one response.
#[test]
fn changed_cluster_is_sent_with_all_others() {
    let mut server = Server::new(&all());
    server.ask::<Cluster>(&["a", "b"], "");
    let first = server.response();
    server.ack::<Cluster>(&["a", "b"], &first);

    server.set(&all().with(cluster("a").eds("other")));

    assert_eq!(names::<Cluster>(&server.response()), ["a", "b"]);
    server.silent();
}

/// H-06, P-09: A change to one of several routes or endpoints sends that one.
#[test]
fn changed_endpoints_are_sent_alone() {
    let mut server = Server::new(&all());
    server.ask::<Endpoints>(&["a", "b"], "");
    let first = server.response();
    server.ack::<Endpoints>(&["a", "b"], &first);

    server.set(&all().with(endpoints("b").locality("z", 1, ["127.0.0.1:1"])));

    assert_eq!(names::<Endpoints>(&server.response()), ["b"]);
    server.silent();
}

/// P-10: A listener is deleted by leaving it out.
#[test]
fn deleted_listener_is_left_out() {
    let mut server = Server::new(&all());
    server.ask::<Listener>(&["a", "b"], "");
    let first = server.response();
    server.ack::<Listener>(&["a", "b"], &first);

    server.set(&all().without("a"));

    assert_eq!(names::<Listener>(&server.response()), ["b"]);
}

/// P-10: The last one is deleted by an empty response, under a wildcard and by name.
#[test]
fn last_listener_is_deleted_by_an_empty_response() {
    for list in [&["*"][..], &["a", "b"]] {
        let mut server = Server::new(&all());
        server.ask::<Listener>(list, "");
        let first = server.response();
        server.ack::<Listener>(list, &first);

        server.set(&Resources::new());

        let empty = server.response();
        assert!(names::<Listener>(&empty).is_empty());
        assert_ne!(empty.version_info, first.version_info);
        server.ack::<Listener>(list, &empty);
        server.silent();
    }
}

/// The first request for named listeners is answered even if there are none: a client that comes
/// from another stream may hold what was deleted meanwhile.
#[test]
fn client_from_another_stream_hears_that_everything_is_gone() {
    let mut server = Server::new(&Resources::new());

    server.ask::<Listener>(&["a"], "");

    let empty = server.response();
    assert!(names::<Listener>(&empty).is_empty());
    server.ack::<Listener>(&["a"], &empty);
    server.silent();
}

/// P-10: Routes and endpoints cannot be deleted by absence, so nothing is sent when they go; when
/// they return they are sent.
#[test]
fn routes_and_endpoints_go_in_silence_and_return() {
    let mut server = Server::new(&all());
    server.ask::<Endpoints>(&["a"], "");
    let first = server.response();
    server.ack::<Endpoints>(&["a"], &first);
    server.ask::<RouteConfig>(&["a"], "");
    let first = server.response();
    server.ack::<RouteConfig>(&["a"], &first);

    server.set(&all().without("a"));
    server.silent();

    server.set(&all());
    assert_eq!(names::<Endpoints>(&server.response()), ["a"]);
    assert_eq!(names::<RouteConfig>(&server.response()), ["a"]);
}

/// A resource that the client no longer wants is not reported as deleted. The server only stops
/// sending it.
#[test]
fn end_of_a_subscription_is_not_answered() {
    let mut server = Server::new(&all());
    server.ask::<Listener>(&["a", "b"], "");
    let first = server.response();

    server.ack::<Listener>(&["b"], &first);

    server.silent();
}

/// All four types, each with `a` and `b`.
fn all() -> Resources {
    ["a", "b"].into_iter().fold(Resources::new(), |all, name| {
        all.with(listener(name).rds(name))
            .with(routes(name))
            .with(cluster(name))
            .with(endpoints(name))
    })
}
