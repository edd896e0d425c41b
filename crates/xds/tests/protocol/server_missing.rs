//! Tests of names that do not exist, as the server half tells them in state of the world (xRFC
//! TP3). Without that a client waits for 15 seconds.

use crowfly_model::grpc::{Cluster, Endpoints, RouteConfig};
use crowfly_testkit::builders::{Resources, cluster, endpoints, routes};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;

use crate::server::{Server, names};

const CLIENT: &str = "gRPC C-core";

/// P-21: A client that understands it is told at once, once, and is sent the resource when it
/// appears.
#[test]
fn missing_name_is_told_at_once() {
    let mut server = Server::new(&Resources::new().with(endpoints("a")));

    server.ask_with_agent::<Endpoints>(CLIENT, &["a", "b"]);

    let first = server.response();
    assert_eq!(names::<Endpoints>(&first), ["a"]);
    assert_eq!(missing(&first), ["b"]);
    let detail = first.resource_errors[0].error_detail.clone().unwrap();
    assert_eq!(detail.code, 5, "NOT_FOUND");
    assert_eq!(
        detail.message,
        r#"the control plane has no envoy.config.endpoint.v3.ClusterLoadAssignment named "b""#
    );
    server.ack::<Endpoints>(&["a", "b"], &first);
    server.silent();

    server.set(&Resources::new().with(endpoints("a")).with(endpoints("b")));
    let second = server.response();
    assert_eq!(
        (names::<Endpoints>(&second), missing(&second)),
        (vec!["b".to_owned()], vec![])
    );
}

/// P-21: An Envoy is told nothing, because it takes an empty response for an answer.
#[test]
fn envoy_is_not_told_of_missing_names() {
    for agent in ["envoy", ""] {
        let mut server = Server::new(&Resources::new());
        server.ask_with_agent::<Endpoints>(agent, &["b"]);
        server.silent();
    }
}

/// P-21: In full-state types the errors come beside the resources.
#[test]
fn missing_cluster_is_told_beside_the_others() {
    let mut server = Server::new(&Resources::new().with(cluster("a")));
    server.ask_with_agent::<Cluster>(CLIENT, &["a", "b"]);
    let first = server.response();
    assert_eq!(
        (names::<Cluster>(&first), missing(&first)),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    server.ack::<Cluster>(&["a", "b"], &first);
    server.silent();
}

/// P-21: A name that leaves the list and returns is told again, like one that exists is sent again.
#[test]
fn missing_name_that_left_and_returned_is_told_again() {
    let mut server = Server::new(&Resources::new());
    server.ask_with_agent::<RouteConfig>(CLIENT, &["r"]);
    let first = server.response();
    server.ack::<RouteConfig>(&[], &first);
    server.silent();

    server.ack::<RouteConfig>(&["r"], &first);

    assert_eq!(missing(&server.response()), ["r"]);
}

/// P-21, P-29: Routes and endpoints that are deleted are told too, and endpoints after the routes.
#[test]
fn deletions_are_told_in_order() {
    let all = Resources::new().with(routes("r")).with(endpoints("e"));
    let mut server = Server::new(&all);
    server.ask_with_agent::<Endpoints>(CLIENT, &["e"]);
    let first = server.response();
    server.ack::<Endpoints>(&["e"], &first);
    server.ask::<RouteConfig>(&["r"], "");
    let first = server.response();
    server.ack::<RouteConfig>(&["r"], &first);

    server.set(&Resources::new());

    let told: Vec<_> = std::iter::repeat_with(|| missing(&server.response()))
        .take(2)
        .collect();
    assert_eq!(told, [["r"], ["e"]]);
    server.silent();
}

fn missing(response: &DiscoveryResponse) -> Vec<String> {
    let errors = response.resource_errors.iter();
    errors
        .map(|error| error.resource_name.clone().unwrap().name)
        .collect()
}
