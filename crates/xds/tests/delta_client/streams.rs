//! What the client half makes of delta streams that end.

use std::collections::HashMap;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{NODE_ID, Script, delta, removed, response};
use crowfly_xds::{Changed, DataErrors, Ending, EndingKind, Key, Protocol, Reason};

/// S1-17: the next stream is opened at once, nobody is told, and its first requests have node,
/// names and the versions that are held; no nonce.
#[test]
fn next_stream_takes_up_where_the_last_one_ended() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b", "c"]);
    let resources = [
        ("a", "1", cluster("a").any()),
        ("b", "7", cluster("b").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", resources));
    script.delta_request();
    script.receive_delta(delta::<Cluster>(
        "n2",
        [("a", "2", cluster("a").invalid().any())],
    ));
    script.delta_request();
    script.subscribe::<Listener>("l");
    script.delta_request();
    script.changes();

    script.close("the server restarts");
    script.open();

    assert_eq!(script.elapsed(), Duration::ZERO);
    assert_eq!(script.changes(), []);
    let first = script.delta_request();
    assert_eq!(first.node.unwrap().id, NODE_ID);
    assert_eq!(first.resource_names_subscribe, ["a", "b", "c"]);
    assert!(first.resource_names_unsubscribe.is_empty());
    assert_eq!(first.response_nonce, "");
    assert_eq!(
        first.initial_resource_versions,
        versions(&[("a", "1"), ("b", "7")])
    );
    let second = script.delta_request();
    assert_eq!(second.node, None);
    assert_eq!(second.resource_names_subscribe, ["l"]);
    assert!(second.initial_resource_versions.is_empty());
    script.no_request();
}

/// S1-17: what the server removed, and what nobody wants any more, is not among the versions.
#[test]
fn what_is_not_held_has_no_version() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b", "c"]);
    let resources = ["a", "b", "c"].map(|name| (name, "1", cluster(name).any()));
    script.receive_delta(delta::<Cluster>("n1", resources));
    script.receive_delta(removed::<Cluster>("n2", &["a"]));
    script.unsubscribe::<Cluster>("b");
    script.close("gone");
    while script.take_request().is_some() {}

    script.open();

    let first = script.delta_request();
    assert_eq!(first.resource_names_subscribe, ["a", "c"]);
    assert_eq!(first.initial_resource_versions, versions(&[("c", "1")]));
}

/// S1-17: a wildcard's resources have their versions on the next stream, though none is named.
#[test]
fn wildcard_resources_have_versions_on_the_next_stream() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.open();
    script.delta_request();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();

    script.close("gone");
    script.open();

    let first = script.delta_request();
    assert_eq!(first.resource_names_subscribe, ["*"]);
    assert_eq!(first.initial_resource_versions, versions(&[("a", "1")]));
}

/// S1-17: the answer that a stream did not live to take is not given on the next.
#[test]
fn answers_end_with_their_stream() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.hold_sends();
    script.subscribe::<Cluster>("a");
    script.open();
    script.delta_request();
    let bad = cluster("a").invalid().any();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", bad)]));

    script.close("gone");
    script.open();

    let first = script.delta_request();
    assert_eq!(
        (first.response_nonce.as_str(), first.error_detail),
        ("", None)
    );
    script.confirm_send();
    script.no_request();
}

/// S1-18: a stream that ends before it brought anything is an error to every watcher, and the next
/// one waits.
#[test]
fn silent_stream_is_an_error_to_every_watcher() {
    let (mut script, _) = Script::watching_delta::<Listener>(&["a", "b"]);

    script.close("deadline exceeded");

    let told: Vec<Key> = script.changes().into_iter().map(|(key, _)| key).collect();
    assert_eq!(told, ["a", "b"].map(Key::of::<Listener>));
    let reason = script.error::<Listener>("a").reason;
    assert_eq!(reason, Reason::Connectivity("deadline exceeded".into()));
    assert!(!script.take_open(), "the next one waits");
    script.advance(Duration::from_millis(1200));
    assert!(script.take_open());
}

/// S1-18: the first word of the server ends the trouble of what a wildcard brought, too, which in
/// delta it does not send again.
#[test]
fn response_ends_the_trouble_of_what_a_wildcard_brought() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.open();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.close("the server restarts");
    script.close("connection refused");
    assert!(script.ambient::<Cluster>("a").is_some());
    script.advance(Duration::from_millis(1200));
    script.open();
    script.changes();

    script.receive_delta(delta::<Cluster>("n1", []));

    let healed = [(Key::of::<Cluster>("a"), Changed::Ambient)];
    assert_eq!(script.changes(), healed);
    assert_eq!(script.ambient::<Cluster>("a"), None);
}

/// S1-20: what a server does not send again after a restart stays as it is, and is not waited for;
/// an empty response does not change that.
#[test]
fn resource_not_sent_again_after_a_restart_stays() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.changes();

    script.close("the server restarts");
    script.open();
    script.receive_delta(delta::<Cluster>("n1", []));

    assert_eq!(script.time_to_timeout(), None);
    script.advance(Duration::from_secs(600));
    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-23: a response of an unknown type is neither acknowledged nor refused, and does not count.
#[test]
fn response_of_an_unknown_type_is_passed_over() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    let mut unknown = delta::<Cluster>("n1", [("a", "1", cluster("a").any())]);
    unknown.type_url = "type.googleapis.com/no.such.Type".to_owned();

    script.receive_delta(unknown);

    script.no_request();
    assert_eq!(script.changes(), []);
    script.receive_delta(delta::<Cluster>("n2", [("a", "1", cluster("a").any())]));
    assert_eq!(script.delta_request().response_nonce, "n2");
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// A server that does not know the delta method is spoken to in state of the world, at once and
/// from then on, without anybody being told.
#[test]
fn server_without_delta_is_asked_for_the_state_of_the_world() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);

    script.end(unimplemented());

    assert_eq!(script.changes(), []);
    assert_eq!(script.time_to_timeout(), None);
    script.open();
    assert_eq!(script.protocol(), Some(Protocol::StateOfTheWorld));
    let request = script.request();
    assert_eq!(request.node.unwrap().id, NODE_ID);
    assert_eq!(request.resource_names, ["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert_eq!(script.request().version_info, "v1");

    script.close("gone");
    script.open();
    assert_eq!(script.protocol(), Some(Protocol::StateOfTheWorld));
    script.request();
    script.subscribe::<Listener>("l");
    assert_eq!(script.request().resource_names, ["l"], "a new type as well");
}

/// The same answer in state of the world is a failure like any other.
#[test]
fn server_without_any_ads_is_a_failure() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.end(unimplemented());
    script.open();

    script.end(unimplemented());

    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert!(!script.take_open());
}

/// A stream that has brought something shows that the server knows delta: its end does not put
/// an end to that.
#[test]
fn answered_delta_stream_stays_delta() {
    let (mut script, _) = Script::watching_delta::<Listener>(&["a"]);
    let good = listener("a").rds("r").any();
    script.receive_delta(delta::<Listener>("n1", [("a", "1", good)]));

    script.end(unimplemented());
    script.open();

    assert_eq!(script.protocol(), Some(Protocol::Delta));
}

fn unimplemented() -> Ending {
    Ending {
        reason: "unknown method".into(),
        kind: EndingKind::Unimplemented,
    }
}

fn versions(expected: &[(&str, &str)]) -> HashMap<String, String> {
    let owned = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
    expected.iter().map(owned).collect()
}
