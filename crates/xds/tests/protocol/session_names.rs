//! Which names the client half asks for, and when.

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{cluster, endpoints, listener, routes};
use crowfly_testkit::{Script, response};
use crowfly_xds::{Changed, Key};

/// S1-08: a second watch asks for both names with the current nonce and version; the end of a watch
/// asks for what remains.
#[test]
fn names_are_added_and_removed_on_the_current_nonce() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    script.request();

    script.subscribe::<Cluster>("b");

    let both = script.request();
    assert_eq!(both.resource_names, ["a", "b"]);
    assert_eq!(
        (both.version_info.as_str(), both.response_nonce.as_str()),
        ("v1", "n1")
    );
    assert_eq!(both.error_detail, None);

    script.unsubscribe::<Cluster>("a");

    let rest = script.request();
    assert_eq!(rest.resource_names, ["b"]);
    assert_eq!(
        (rest.version_info.as_str(), rest.response_nonce.as_str()),
        ("v1", "n1")
    );
    script.no_request();
    assert!(script.read::<Cluster>("a").is_none(), "nobody wants it");
}

/// S1-09: what is already asked for is not asked for again.
#[test]
fn second_wish_for_a_name_sends_nothing() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    script.request();

    script.subscribe::<Cluster>("a");

    script.no_request();
}

/// S1-21: after the last watch of a type ends, a new one on the same stream goes on with the
/// nonce.
#[test]
fn nonce_outlives_the_last_name_of_a_type() {
    let mut script = Script::watching::<RouteConfig>(&["a"]);
    script.receive(response::<RouteConfig>("v1", "n1", [routes("a").any()]));
    script.request();
    script.subscribe::<Cluster>("keeps the stream open");
    script.request();

    script.unsubscribe::<RouteConfig>("a");
    let nothing = script.request();
    assert!(nothing.resource_names.is_empty());
    assert_eq!(nothing.response_nonce, "n1");

    script.subscribe::<RouteConfig>("b");
    let again = script.request();
    assert_eq!(again.resource_names, ["b"]);
    assert_eq!(
        (again.version_info.as_str(), again.response_nonce.as_str()),
        ("v1", "n1")
    );
}

/// S1-22: a watch that ends and begins again before the server hears of it keeps what is known: the
/// server sees no change, and so would not send it again.
#[test]
fn resource_is_kept_when_a_watch_ends_and_begins_before_a_request_went_out() {
    let mut script = Script::watching::<Endpoints>(&["a", "b"]);
    script.receive(response::<Endpoints>(
        "v1",
        "n1",
        [endpoints("a").any(), endpoints("b").any()],
    ));
    script.request();
    script.hold_sends();
    script.receive(response::<Endpoints>("v2", "n2", []));
    script.request();
    script.changes();

    // The ACK of n2 is still on its way.
    script.unsubscribe::<Endpoints>("a");
    script.subscribe::<Endpoints>("a");
    script.no_request();
    script.confirm_send();

    assert_eq!(script.request().resource_names, ["a", "b"]);
    assert_eq!(script.value::<Endpoints>("a").name, "a");
    assert_eq!(script.changes(), [], "no duplicate delivery");
    script.confirm_send();
    assert_eq!(script.time_to_timeout(), None, "nothing is awaited");
}

/// S1-22: an update that comes while such a watch is in between is not lost either.
#[test]
fn update_between_the_end_and_the_beginning_of_a_watch_is_taken() {
    let mut script = Script::watching::<Endpoints>(&["a"]);
    script.receive(response::<Endpoints>("v1", "n1", [endpoints("a").any()]));
    script.request();
    script.hold_sends();
    script.receive(response::<Endpoints>("v2", "n2", []));
    script.request();

    script.unsubscribe::<Endpoints>("a");
    let update = endpoints("a").locality("z", 1, ["127.0.0.1:80"]);
    script.receive(response::<Endpoints>("v3", "n3", [update.any()]));
    script.subscribe::<Endpoints>("a");

    assert_eq!(script.value::<Endpoints>("a").priorities.len(), 1);
}

/// S1-22: a wait that was on when the watch ended and began again ends when it would have.
#[test]
fn deadline_is_kept_when_a_watch_ends_and_begins_before_a_request_went_out() {
    let mut script = Script::watching::<Endpoints>(&["a"]);
    script.advance(std::time::Duration::from_secs(10));
    script.hold_sends();
    script.receive(response::<Endpoints>("v1", "n1", []));
    script.request();

    script.unsubscribe::<Endpoints>("a");
    script.subscribe::<Endpoints>("a");
    script.confirm_send();
    script.request();
    script.confirm_send();

    assert_eq!(
        script.time_to_timeout(),
        Some(std::time::Duration::from_secs(5))
    );
}

/// S1-27: changes while a request is on its way go out as one request with the latest names.
#[test]
fn changes_during_a_send_make_one_request() {
    let mut script = Script::new();
    script.subscribe::<Listener>("a");
    script.hold_sends();
    script.open();
    assert_eq!(script.request().resource_names, ["a"]);

    for name in ["b", "c", "d"] {
        script.subscribe::<Listener>(name);
    }
    script.unsubscribe::<Listener>("c");
    script.no_request();
    script.confirm_send();

    assert_eq!(script.request().resource_names, ["a", "b", "d"]);
    script.confirm_send();
    script.no_request();
}

/// S1-27: two responses during a send get one answer, to the newest; it may take a NACK back.
#[test]
fn newest_response_is_the_one_that_is_answered() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.hold_sends();
    script.subscribe::<Cluster>("b");
    script.request();

    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").invalid().any()],
    ));
    script.receive(response::<Cluster>("v2", "n2", [cluster("a").any()]));
    script.confirm_send();

    let ack = script.request();
    assert_eq!(
        (ack.version_info.as_str(), ack.response_nonce.as_str()),
        ("v2", "n2")
    );
    assert_eq!(ack.error_detail, None);
    script.confirm_send();
    script.no_request();
}

/// A wildcard is asked for by its own name, next to names, and ends without an empty list that
/// would mean it again (xDS protocol: "How the client specifies what resources to return").
#[test]
fn wildcard_is_asked_for_by_name() {
    let mut script = Script::new();
    script.subscribe_all::<Listener>();
    script.open();
    assert_eq!(script.request().resource_names, ["*"]);

    script.subscribe::<Listener>("a");
    assert_eq!(script.request().resource_names, ["*", "a"]);

    script.unsubscribe_all::<Listener>();
    assert_eq!(script.request().resource_names, ["a"]);
}

/// With a wildcard, every resource that comes is taken, and one left out of a later response is
/// gone (xDS protocol: "Deleting resources").
#[test]
fn wildcard_takes_all_that_comes() {
    let mut script = Script::new();
    script.subscribe_all::<Listener>();
    script.open();
    let both = [listener("a").rds("r").any(), listener("b").rds("r").any()];
    script.receive(response::<Listener>("v1", "n1", both));
    assert_eq!(script.changes().len(), 2);

    script.receive(response::<Listener>(
        "v2",
        "n2",
        [listener("b").rds("r").any()],
    ));

    assert_eq!(
        script.changes(),
        [(Key::of::<Listener>("a"), Changed::Data)]
    );
    assert!(
        script.read::<Listener>("a").is_none(),
        "forgotten once told"
    );
    assert!(script.read::<Listener>("b").unwrap().is_ok());
}

/// A name that was awaited beside a wildcard and is no longer asked for by itself cannot time out.
#[test]
fn deadline_of_a_name_falls_with_the_name_also_under_a_wildcard() {
    let mut script = Script::new();
    script.subscribe_all::<Listener>();
    script.subscribe::<Listener>("a");
    script.open();
    script.unsubscribe::<Listener>("a");
    script.receive(response::<Listener>(
        "v1",
        "n1",
        [listener("a").rds("r").any()],
    ));

    script.advance(std::time::Duration::from_secs(60));

    assert_eq!(script.value::<Listener>("a").name, "a");
}

/// S1-22: a name that leaves and returns while the request of another type goes out first is not
/// lost: the server, which never heard that it was gone, would not send it again.
#[test]
fn name_that_leaves_and_returns_during_another_types_turn_is_not_lost() {
    let mut script = Script::watching::<Listener>(&["l"]);
    script.subscribe::<Cluster>("a");
    script.subscribe::<Cluster>("b");
    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").any(), cluster("b").any()],
    ));
    while script.try_request().is_some() {}
    script.changes();
    script.hold_sends();
    script.subscribe::<Listener>("m");
    script.request();

    script.unsubscribe::<Cluster>("a");
    script.subscribe::<Listener>("o");
    script.confirm_send();
    assert_eq!(script.request().resource_names, ["l", "m", "o"]);
    script.subscribe::<Cluster>("a");

    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert_eq!(script.changes(), []);
}

/// A name that came and went before the server was told of it is forgotten at once.
#[test]
fn name_that_was_never_asked_for_is_forgotten_with_its_watch() {
    let mut script = Script::watching::<Endpoints>(&["a"]);
    script.hold_sends();
    script.subscribe::<Endpoints>("b");
    script.request();
    script.subscribe::<Cluster>("c");
    script.unsubscribe::<Cluster>("c");

    script.confirm_send();

    script.no_request();
    assert!(script.cache().entry(&Key::of::<Cluster>("c")).is_none());
}
