//! The order in which the server half speaks (xDS protocol: "Eventual consistency considerations",
//! "Resource warming").

use std::time::{Duration, Instant};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};

use crate::server::{Server, names};

const ORDER: [&str; 4] = [
    Cluster::TYPE_URL,
    Endpoints::TYPE_URL,
    Listener::TYPE_URL,
    RouteConfig::TYPE_URL,
];

/// P-29: Clusters and endpoints come before the listeners and routes that use them, in whichever
/// order they were asked for.
#[test]
fn clusters_and_endpoints_come_before_what_uses_them() {
    let mut server = Server::new(&service("c", 1));
    server.ask::<RouteConfig>(&["r"], "");
    server.ask::<Listener>(&["l"], "");
    server.ask::<Endpoints>(&["c", "d"], "");
    server.ask::<Cluster>(&["c", "d"], "");

    assert_eq!(server.types_due(), ORDER);
}

/// P-14: Clusters and endpoints come first after a change as well, although the client named a
/// subset of the resources.
#[test]
fn order_holds_for_a_change_of_a_named_subset() {
    let more = |resources: Resources| resources.with(cluster("other")).with(endpoints("other"));
    let mut server = subscribed(&more(service("c", 1)));

    server.set(&more(service("d", 2)));

    assert_eq!(server.types_due(), ORDER);
}

/// P-30: A changed cluster is followed by its endpoints although those are the same: Envoy keeps
/// the cluster warming until they come.
#[test]
fn changed_cluster_is_followed_by_its_unchanged_endpoints() {
    let mut server = subscribed(&service("c", 1));
    let changed = cluster("c").edit(|cluster| cluster.alt_stat_name = "new".to_owned());

    server.set(&service("c", 1).with(changed));

    let clusters = server.response();
    assert_eq!(names::<Cluster>(&clusters), ["c"]);
    assert_eq!(names::<Endpoints>(&server.response()), ["c"]);
    server.silent();
}

/// P-30: That follows the name of the endpoints, which need not be that of the cluster, and leaves
/// the endpoints of unchanged clusters alone.
#[test]
fn only_the_endpoints_of_the_changed_cluster_follow() {
    let resources = Resources::new()
        .with(cluster("a").eds("a-eds"))
        .with(cluster("b").eds("b-eds"))
        .with(endpoints("a-eds"))
        .with(endpoints("b-eds"));
    let mut server = Server::new(&resources);
    server.ask::<Cluster>(&["*"], "");
    let first = server.response();
    server.ack::<Cluster>(&["*"], &first);
    server.ask::<Endpoints>(&["a-eds", "b-eds"], "");
    let first = server.response();
    server.ack::<Endpoints>(&["a-eds", "b-eds"], &first);

    let changed = cluster("b")
        .eds("b-eds")
        .edit(|b| b.alt_stat_name = "new".to_owned());
    server.set(&resources.with(changed));

    assert_eq!(names::<Cluster>(&server.response()), ["a", "b"]);
    assert_eq!(names::<Endpoints>(&server.response()), ["b-eds"]);
    server.silent();
}

/// There is one response of a type on its way at a time; the next one has all that changed since.
#[test]
fn next_response_waits_for_the_answer_to_the_last() {
    let mut server = Server::new(&service("c", 1));
    server.ask::<Endpoints>(&["c"], "");
    let first = server.response();
    server.set(&service("c", 2));
    server.set(&service("c", 3));
    server.silent();

    server.ack::<Endpoints>(&["c"], &first);

    assert_eq!(server.response().resources, [served("c", 3).any()]);
    server.silent();
}

/// A NACK is an answer too.
#[test]
fn next_response_follows_a_nack() {
    let mut server = Server::new(&service("c", 1));
    server.ask::<Endpoints>(&["c"], "");
    let first = server.response();
    server.set(&service("c", 2));

    server.nack::<Endpoints>(&["c"], &first);

    assert_eq!(server.response().resources, [served("c", 2).any()]);
}

/// P-14, P-29: Routes to a new cluster wait while the cluster itself waits for the client.
#[test]
fn order_holds_while_a_client_has_not_answered() {
    let mut server = subscribed(&service("c", 1));
    let changed = cluster("c").edit(|cluster| cluster.alt_stat_name = "new".to_owned());
    server.set(&service("c", 1).with(changed));
    let clusters = server.response();
    let endpoints = server.response();

    server.set(&service("d", 2));
    server.silent();

    server.ack::<Cluster>(&["c", "d"], &clusters);
    assert_eq!(names::<Cluster>(&server.response()), ["c", "d"]);
    server.silent();
    server.ack::<Endpoints>(&["c", "d"], &endpoints);
    assert_eq!(server.types_due(), &ORDER[1..]);
}

/// P-29: An Envoy answers for clusters only when they are warm, and they are warm only once it has
/// their endpoints. So endpoints that it does not have yet do not wait for that answer.
#[test]
fn endpoints_that_a_client_lacks_do_not_wait_for_its_answer_about_clusters() {
    let changed = |number: &str| cluster("d").edit(|d| d.alt_stat_name = number.to_owned());
    let both = |number| service("c", 1).with(changed(number)).with(served("d", 1));
    let mut server = Server::new(&service("c", 1));
    server.ask::<Cluster>(&["*"], "");
    let first = server.response();
    server.ack::<Cluster>(&["*"], &first);
    server.ask::<Endpoints>(&["c"], "");
    let of_c = server.response();
    server.ack::<Endpoints>(&["c"], &of_c);
    server.set(&both("1"));
    let clusters = server.response();
    assert_eq!(names::<Cluster>(&clusters), ["c", "d"]);

    server.set(&both("2"));
    server.silent();
    server.ask::<Endpoints>(&["c", "d"], &of_c.nonce);

    let of_d = server.response();
    assert_eq!(names::<Endpoints>(&of_d), ["d"]);
    server.ack::<Endpoints>(&["c", "d"], &of_d);
    server.silent();
    server.ack::<Cluster>(&["*"], &clusters);
    assert_eq!(names::<Cluster>(&server.response()), ["c", "d"]);
    assert_eq!(names::<Endpoints>(&server.response()), ["d"]);
}

/// P-29: Endpoints whose cluster does not change follow no cluster, so they do not wait for an answer about
/// clusters.
#[test]
fn endpoints_of_other_clusters_do_not_wait_for_an_answer_about_clusters() {
    let changed = |number: &str| cluster("d").edit(|d| d.alt_stat_name = number.to_owned());
    let both = |port, number| {
        service("c", port)
            .with(changed(number))
            .with(served("d", 1))
    };
    let mut server = subscribed(&both(1, "1"));
    server.set(&both(1, "2"));
    assert_eq!(server.response().type_url, Cluster::TYPE_URL);
    let warmed = server.response();
    server.ack::<Endpoints>(&["c", "d"], &warmed);

    server.set(&both(2, "3"));

    assert_eq!(server.response().resources, [served("c", 2).any()]);
    server.silent();
}

/// P-29: Endpoints that change together with their cluster come after it, because they may be of no use
/// before.
#[test]
fn changed_endpoints_wait_for_the_change_of_their_cluster() {
    let changed = |number: &str| {
        let d = cluster("d").eds("c");
        d.edit(|d| d.alt_stat_name = number.to_owned())
    };
    let both = |port, number| service("c", port).with(changed(number));
    let mut server = subscribed(&both(1, "1"));
    server.set(&both(1, "2"));
    let clusters = server.response();
    let warmed = server.response();
    server.ack::<Endpoints>(&["c", "d"], &warmed);

    server.set(&both(2, "3"));
    server.silent();

    server.ack::<Cluster>(&["c", "d"], &clusters);
    assert_eq!(server.response().type_url, Cluster::TYPE_URL);
    assert_eq!(server.response().resources, [served("c", 2).any()]);
}

/// P-29: A cluster that routes no longer use is left out once the routes are sent, and not before
/// (make before break).
#[test]
fn clusters_are_removed_after_the_routes_that_used_them() {
    let mut server = subscribed(&service("c", 1));

    server.set(&service("d", 2));

    let both = server.response();
    assert_eq!(names::<Cluster>(&both), ["c", "d"]);
    assert_eq!(server.types_due(), &ORDER[1..]);
    server.ack::<Cluster>(&["c", "d"], &both);
    let last = server.response();
    assert_eq!(names::<Cluster>(&last), ["d"]);
    assert_ne!(
        both.version_info, last.version_info,
        "a client that has the old cluster must not claim to have the newest version"
    );
    server.ack::<Cluster>(&["c", "d"], &last);
    server.silent();
}

/// P-29: A cluster that returns before its removal was sent was never away.
#[test]
fn removal_that_was_not_sent_is_taken_back() {
    let mut server = subscribed(&service("c", 1));
    let routes_to_d = Resources::new().with(routes("r").host("*").route("/", "d"));
    server.set(&routes_to_d);
    assert_eq!(server.response().type_url, Listener::TYPE_URL);

    server.set(&service("c", 1));

    assert!(!server.types_due().contains(&Cluster::TYPE_URL.to_owned()));
}

/// P-14: A client that stops to answer for clusters is still sent the other types, after a while.
#[test]
fn client_that_stops_to_answer_for_one_type_is_sent_the_others() {
    let mut server = subscribed(&service("c", 1));
    let start = Instant::now();
    server.set_time(start);
    let changed = |number: &str| cluster("c").edit(|c| c.alt_stat_name = number.to_owned());
    server.set(&service("c", 1).with(changed("1")));
    assert_eq!(server.response().type_url, Cluster::TYPE_URL);
    let endpoints = server.response();
    server.ack::<Endpoints>(&["c", "d"], &endpoints);

    server.set(&service("c", 2).with(changed("2")));
    server.silent();
    let wait = server.next_timeout().expect("it waits for an answer") - start;
    assert!(wait <= Duration::from_secs(10), "{wait:?}");
    server.set_time(start + wait);

    assert_eq!(names::<Endpoints>(&server.response()), ["c"]);
    assert_eq!(server.next_timeout(), None, "nothing else waits");
    server.silent();
}

/// P-29: Types that no other type refers to do not wait for the answer to another type.
#[test]
fn types_outside_the_order_wait_for_nobody() {
    let mut server = subscribed(&service("c", 1));
    let changed = |number: &str| cluster("c").edit(|c| c.alt_stat_name = number.to_owned());
    server.set(&service("c", 1).with(changed("1")));
    assert_eq!(server.response().type_url, Cluster::TYPE_URL);
    server.response();
    server.set(&service("c", 1).with(changed("2")));
    server.silent();

    server.ask_all("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");

    assert!(server.response().type_url.ends_with("Secret"));
}

/// A client that is slow to be served is sent the newest snapshot only.
#[test]
fn snapshots_that_nobody_was_sent_are_passed_over() {
    let mut server = Server::new(&service("c", 1));
    server.ask::<Endpoints>(&["c"], "");
    for port in 2..10 {
        server.set(&service("c", port));
    }

    let response = server.response();

    assert_eq!(response.resources, [served("c", 9).any()]);
    server.silent();
}

/// A stream that was served listener `l`, routes `r`, and clusters and endpoints `c` and `d`, and
/// has accepted them.
fn subscribed(resources: &Resources) -> Server {
    let mut server = Server::new(resources);
    server.ask::<Cluster>(&["c", "d"], "");
    let response = server.response();
    server.ack::<Cluster>(&["c", "d"], &response);
    server.ask::<Endpoints>(&["c", "d"], "");
    let response = server.response();
    server.ack::<Endpoints>(&["c", "d"], &response);
    server.ask::<Listener>(&["l"], "");
    let response = server.response();
    server.ack::<Listener>(&["l"], &response);
    server.ask::<RouteConfig>(&["r"], "");
    let response = server.response();
    server.ack::<RouteConfig>(&["r"], &response);
    server.silent();
    server
}

/// A service whose every resource depends on the cluster's name.
fn service(cluster_name: &str, port: u16) -> Resources {
    let inline = routes("inline").host("*").route("/", cluster_name);
    Resources::new()
        .with(listener("l").routes(inline))
        .with(routes("r").host("*").route("/", cluster_name))
        .with(cluster(cluster_name))
        .with(served(cluster_name, port))
}

fn served(name: &str, port: u16) -> crowfly_testkit::builders::EndpointsBuilder {
    endpoints(name).locality("z", 1, [format!("127.0.0.1:{port}").as_str()])
}
