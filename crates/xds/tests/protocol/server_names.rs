//! Names and wildcards as the server half takes them (xDS protocol: "How the client specifies what
//! resources to return").

use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener};

use crate::server::{Server, names};

/// H-04, P-13: A client that names some resources is served those alone, of every type.
#[test]
fn named_subset_is_served_alone() {
    let mut server = Server::new(&three());

    server.ask::<Cluster>(&["b"], "");
    assert_eq!(names::<Cluster>(&server.response()), ["b"]);
    server.ask::<Endpoints>(&["c"], "");
    assert_eq!(names::<Endpoints>(&server.response()), ["c"]);
    server.ask::<Listener>(&["a"], "");
    assert_eq!(names::<Listener>(&server.response()), ["a"]);
    server.silent();
}

/// P-11: A name that joins the list is sent, although version and nonce are those of an ACK.
#[test]
fn added_name_is_sent_under_an_unchanged_version() {
    let mut server = Server::new(&three());
    server.ask::<Endpoints>(&["a"], "");
    let first = server.response();

    server.ack::<Endpoints>(&["a", "b"], &first);

    let second = server.response();
    assert_eq!(names::<Endpoints>(&second), ["b"]);
    assert_eq!(second.version_info, first.version_info);
    server.silent();
}

/// P-09, P-11: A name that joins the list of a full-state type is sent together with the others
/// (xDS protocol: "Grouping resources into responses").
#[test]
fn added_cluster_is_sent_with_all_others() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&["a"], "");
    let first = server.response();

    server.ack::<Cluster>(&["a", "b"], &first);

    assert_eq!(names::<Cluster>(&server.response()), ["a", "b"]);
}

/// P-12: A name that left the list and joins it again is sent again.
#[test]
fn name_that_left_and_returned_is_sent_again() {
    let mut server = Server::new(&three());
    server.ask::<Endpoints>(&["a", "b"], "");
    let first = server.response();
    server.ack::<Endpoints>(&["b"], &first);
    server.silent();

    server.ack::<Endpoints>(&["a", "b"], &first);

    assert_eq!(names::<Endpoints>(&server.response()), ["a"]);
}

/// H-01, H-03, P-15: A list that was empty from the start means everything.
#[test]
fn empty_list_at_first_means_everything() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&[], "");
    let response = server.response();
    assert_eq!(names::<Cluster>(&response), ["a", "b", "c"]);

    server.ack::<Cluster>(&[], &response);
    server.set(&three().with(cluster("d")));

    assert_eq!(names::<Cluster>(&server.response()), ["a", "b", "c", "d"]);
}

/// H-02: A change is pushed to a client that asked for everything.
#[test]
fn change_is_pushed_to_a_wildcard() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&[], "");
    let first = server.response();
    server.ack::<Cluster>(&[], &first);
    server.set(&three().with(cluster("a").eds("other")));
    let changed = server.response();
    assert_eq!(names::<Cluster>(&changed), ["a", "b", "c"]);
    assert_ne!(changed.version_info, first.version_info);
}

/// H-10, H-11: Names that are unsubscribed are not sent any more, and the others are.
#[test]
fn unsubscribed_names_are_not_sent_any_more() {
    let mut server = Server::new(&three());
    let [b_changed, a_changed] = [three().with(cluster("b").eds("other")), three()]
        .map(|all| all.with(endpoints("b").locality("z", 1, ["127.0.0.1:1"])));
    let a_changed = a_changed
        .with(cluster("a").eds("other"))
        .with(endpoints("a").locality("z", 1, ["127.0.0.1:1"]));
    server.ask::<Cluster>(&["a", "b", "c"], "");
    let clusters = server.response();
    server.ack::<Cluster>(&["a"], &clusters);
    server.ask::<Endpoints>(&["a", "b", "c"], "");
    let assignments = server.response();
    server.ack::<Endpoints>(&["a"], &assignments);
    server.silent();
    server.set(&b_changed);
    server.silent();
    server.set(&a_changed);
    let clusters = server.response();
    assert_eq!(names::<Cluster>(&clusters), ["a"]);
    server.ack::<Cluster>(&["a"], &clusters);
    assert_eq!(names::<Endpoints>(&server.response()), ["a"]);
}

/// P-15: After a name was given, an empty list means nothing.
#[test]
fn empty_list_after_a_name_means_nothing() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&["a"], "");
    let response = server.response();

    server.ack::<Cluster>(&[], &response);
    server.silent();

    server.set(&three().with(cluster("a").eds("other")).with(cluster("d")));
    server.silent();
}

/// H-12: A list with one empty name ends the subscription to all others. xds-test-harness uses this form.
#[test]
fn list_of_one_empty_name_means_nothing() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&["a"], "");
    let response = server.response();

    server.ack::<Cluster>(&[""], &response);
    server.silent();

    server.set(&three().with(cluster("a").eds("other")).with(cluster("d")));
    server.silent();
    server.ask::<Cluster>(&["a"], &response.nonce);
    assert_eq!(names::<Cluster>(&server.response()), ["a"]);

    let mut server = Server::new(&three());
    server.ask::<Cluster>(&[""], "");
    assert_eq!(
        server.response().resources,
        [],
        "it is no wildcard at first"
    );
}

/// P-18: `*` means everything, alone and among names, and each resource is sent once (xDS protocol:
/// "Duplicate resource names").
#[test]
fn star_among_names_means_everything_once() {
    let mut server = Server::new(&three());

    server.ask::<Cluster>(&["*", "a"], "");

    assert_eq!(names::<Cluster>(&server.response()), ["a", "b", "c"]);
}

/// P-18: A name given twice is sent once.
#[test]
fn name_given_twice_is_sent_once() {
    let mut server = Server::new(&three());

    server.ask::<Endpoints>(&["a", "a"], "");

    assert_eq!(names::<Endpoints>(&server.response()), ["a"]);
}

/// P-16: A list without the `*` it had ends the wildcard, explicit or implied.
#[test]
fn wildcard_ends_when_the_list_no_longer_has_it() {
    for first_list in [&["*", "a"][..], &["*"], &[]] {
        let mut server = Server::new(&three());
        server.ask::<Cluster>(first_list, "");
        let response = server.response();

        server.ack::<Cluster>(&["a"], &response);
        server.silent();
        server.set(&three().with(cluster("b").eds("other")).with(cluster("d")));
        server.silent();

        server.set(&three().with(cluster("a").eds("other")));
        assert_eq!(names::<Cluster>(&server.response()), ["a"]);
    }
}

/// P-28: A wildcard is answered even when there is nothing: a client's start may wait for it.
#[test]
fn first_wildcard_is_answered_also_with_nothing() {
    let mut server = Server::new(&Resources::new());

    server.ask::<Cluster>(&["*"], "");

    let response = server.response();
    assert!(response.resources.is_empty());
    server.ack::<Cluster>(&["*"], &response);
    server.silent();
}

/// H-08, P-19: A name that does not exist is remembered, and sent when it does (xDS protocol: "Knowing
/// when a requested resource does not exist").
#[test]
fn missing_name_is_sent_once_it_exists() {
    let mut server = Server::new(&three());
    server.ask::<Endpoints>(&["later"], "");
    server.silent();

    server.set(&three().with(endpoints("later")));

    assert_eq!(names::<Endpoints>(&server.response()), ["later"]);
}

/// H-07, P-19: A named cluster that does not exist is left out of the answer, which tells nothing about
/// it.
#[test]
fn missing_cluster_is_left_out_and_sent_once_it_exists() {
    let mut server = Server::new(&three());
    server.ask::<Cluster>(&["a", "later"], "");
    let response = server.response();
    assert_eq!(names::<Cluster>(&response), ["a"]);
    server.ack::<Cluster>(&["a", "later"], &response);

    server.set(&three().with(cluster("later")));

    assert_eq!(names::<Cluster>(&server.response()), ["a", "later"]);
}

/// P-17: Where the old form of the wildcard is switched off, an empty list asks for nothing, and
/// `*` for everything. Other types keep it.
#[test]
fn empty_list_asks_for_nothing_where_the_legacy_wildcard_is_off() {
    let mut server = Server::named_only::<Endpoints>(&three());
    server.ask::<Endpoints>(&[], "");
    server.silent();
    server.set(&three().with(endpoints("d")));
    server.silent();
    server.ask::<Endpoints>(&["*"], "");
    assert_eq!(names::<Endpoints>(&server.response()), ["a", "b", "c", "d"]);

    server.ask::<Listener>(&[], "");
    assert_eq!(names::<Listener>(&server.response()), ["a", "b", "c"]);
}

/// xRFC TP1: A client finds a new-style name in any spelling of its parameters.
#[test]
fn new_style_names_are_found_in_any_spelling() {
    let [one, other] = [
        "xdstp://a/t/x?env=prod&zone=1",
        "xdstp://a/t/x?zone=1&env=prod",
    ];
    for (served, asked) in [(one, other), (other, one), (one, one)] {
        let mut server = Server::new(&Resources::new().with(endpoints(served)));
        server.ask::<Endpoints>(&[asked], "");
        let first = server.response();
        assert_eq!(names::<Endpoints>(&first), [served]);
        server.ack::<Endpoints>(&[asked], &first);
        server.silent();
        server.set(&Resources::new().with(endpoints(served).locality("z", 1, ["10.0.0.1:1"])));
        assert_eq!(names::<Endpoints>(&server.response()), [served]);
    }
}

/// Listeners, clusters and endpoints `a`, `b` and `c`.
fn three() -> Resources {
    ["a", "b", "c"]
        .into_iter()
        .fold(Resources::new(), |all, name| {
            all.with(listener(name).rds("r"))
                .with(cluster(name))
                .with(endpoints(name))
        })
}
