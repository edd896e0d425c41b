//! Names that come and go on a delta stream.

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{Script, delta, removed};
use crowfly_xds::{Changed, DataErrors, Key, Protocol};

/// S1-08: a second watch subscribes to its name only; the end of a watch unsubscribes from it only.
#[test]
fn requests_say_what_changed_in_the_names() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();

    script.subscribe::<Cluster>("b");
    let request = script.delta_request();
    assert_eq!(request.resource_names_subscribe, ["b"]);
    assert!(request.resource_names_unsubscribe.is_empty());
    assert_eq!(request.response_nonce, "", "it answers no response");

    script.unsubscribe::<Cluster>("a");
    let request = script.delta_request();
    assert!(request.resource_names_subscribe.is_empty());
    assert_eq!(request.resource_names_unsubscribe, ["a"]);
    script.no_request();
    assert!(script.read::<Cluster>("a").is_none(), "it is forgotten");
}

/// S1-09: a watch on what is watched already makes no request.
#[test]
fn second_watch_on_a_name_makes_no_request() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);

    script.subscribe::<Cluster>("a");

    script.no_request();
}

/// S1-21: the last name of a type goes and comes back on the same stream: the server is told of
/// both, and sends it again.
#[test]
fn last_name_of_a_type_can_come_back() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.subscribe::<Endpoints>("e");
    script.delta_request();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();

    script.unsubscribe::<Cluster>("a");
    assert_eq!(script.delta_request().resource_names_unsubscribe, ["a"]);
    script.subscribe::<Cluster>("a");

    let request = script.delta_request();
    assert_eq!(request.resource_names_subscribe, ["a"]);
    assert!(
        request.initial_resource_versions.is_empty(),
        "what was let go is not held, nor is this the first request"
    );
    script.receive_delta(delta::<Cluster>("n2", [("a", "1", cluster("a").any())]));
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-22: a name that leaves and returns before a request could go out is not lost: the server
/// sends it again, and nobody is called for what has not changed.
#[test]
fn name_that_leaves_and_returns_is_not_lost() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();
    script.changes();
    script.hold_sends();
    script.subscribe::<Cluster>("b");
    script.delta_request();

    script.unsubscribe::<Cluster>("a");
    script.subscribe::<Cluster>("a");
    script.confirm_send();

    let request = script.delta_request();
    assert_eq!(request.resource_names_subscribe, ["a"]);
    assert!(request.resource_names_unsubscribe.is_empty());
    assert_eq!(script.value::<Cluster>("a").name, "a");
    script.receive_delta(delta::<Cluster>("n2", [("a", "1", cluster("a").any())]));
    assert_eq!(script.changes(), []);
}

/// S1-22: a name that leaves, returns and leaves again before a request could go out is told to
/// the server as gone: it would be sent for ever otherwise.
#[test]
fn name_that_leaves_twice_is_unsubscribed() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.hold_sends();
    script.subscribe::<Cluster>("b");
    script.delta_request();

    script.unsubscribe::<Cluster>("a");
    script.subscribe::<Cluster>("a");
    script.unsubscribe::<Cluster>("a");
    script.confirm_send();

    let request = script.delta_request();
    assert_eq!(request.resource_names_unsubscribe, ["a"]);
    assert!(request.resource_names_subscribe.is_empty());
}

/// S1-22: a name that came and went before a request could go out is not mentioned.
#[test]
fn name_that_came_and_went_is_not_mentioned() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.hold_sends();
    script.subscribe::<Cluster>("b");
    script.delta_request();

    script.subscribe::<Cluster>("c");
    script.unsubscribe::<Cluster>("c");
    script.confirm_send();

    script.no_request();
}

/// S1-27: watches that change while a request is on its way go out as one.
#[test]
fn changes_during_a_send_go_out_as_one_request() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.hold_sends();
    script.subscribe::<Cluster>("a");
    script.open();
    script.delta_request();

    for name in ["b", "c", "d"] {
        script.subscribe::<Cluster>(name);
    }
    script.unsubscribe::<Cluster>("a");
    script.no_request();
    script.confirm_send();

    let request = script.delta_request();
    assert_eq!(request.resource_names_subscribe, ["b", "c", "d"]);
    assert_eq!(request.resource_names_unsubscribe, ["a"]);
    script.confirm_send();
    script.no_request();
}

/// Everything of a type is asked for by `*`, and resources come and go without being named.
#[test]
fn wildcard_takes_what_the_server_has() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.open();
    assert_eq!(script.delta_request().resource_names_subscribe, ["*"]);

    let both = [
        ("a", "1", cluster("a").any()),
        ("b", "1", cluster("b").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", both));
    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert_eq!(script.value::<Cluster>("b").name, "b");
    script.changes();

    script.receive_delta(removed::<Cluster>("n2", &["a"]));
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert_eq!(script.value::<Cluster>("b").name, "b");
}

/// The end of a wildcard is told, and what was not asked for by name is let go.
#[test]
fn end_of_a_wildcard_leaves_what_is_named() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.subscribe::<Cluster>("a");
    script.open();
    assert_eq!(script.delta_request().resource_names_subscribe, ["*", "a"]);
    let both = [
        ("a", "1", cluster("a").any()),
        ("b", "1", cluster("b").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", both));
    script.delta_request();

    script.unsubscribe_all::<Cluster>();

    assert_eq!(script.delta_request().resource_names_unsubscribe, ["*"]);
    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert!(script.read::<Cluster>("b").is_none());
}

/// S1-25: a resource nobody asked for is acknowledged and ignored, valid or not.
#[test]
fn unrequested_resource_is_acknowledged_and_ignored() {
    let (mut script, _) = Script::watching_delta::<Endpoints>(&["a"]);

    let resources = [
        ("a", "1", endpoints("a").any()),
        ("stranger", "1", endpoints("stranger").any()),
        ("odd", "1", endpoints("odd").invalid().any()),
    ];
    script.receive_delta(delta::<Endpoints>("n1", resources));

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n1", None)
    );
    let told = [(Key::of::<Endpoints>("a"), Changed::Data)];
    assert_eq!(script.changes(), told);
    assert!(script.read::<Endpoints>("stranger").is_none());
    assert!(script.read::<Endpoints>("odd").is_none());
}
