//! Promises of delta alone: a request says what changed in the names, each response has an answer of its own, a
//! removal is said, and a stream begins with the versions that are held.

mod protocols;
mod versions;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{Script, delta, removed};
use crowfly_xds::{Changed, DataErrors, Key, Protocol, TroubleReason};
use envoy_types::pb::envoy::service::discovery::v3::Resource;
use envoy_types::pb::google::protobuf;

/// S1-02: each response gets an answer of its own, in order, also when requests are slow.
#[test]
fn each_response_gets_its_own_answer() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.hold_sends();
    script.subscribe::<Cluster>("a");
    script.open();
    script.delta_request();

    let bad = cluster("a").invalid().any();
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.receive(delta::<Cluster>("n2", [("a", "2", bad)]));
    script.receive(delta::<Cluster>("n3", [("a", "3", cluster("a").any())]));
    script.no_request();

    let mut answers = Vec::new();
    for _ in 0..3 {
        script.confirm_send();
        let answer = script.delta_request();
        answers.push((answer.response_nonce, answer.error_detail.is_some()));
    }
    let expected = [("n1", false), ("n2", true), ("n3", false)];
    assert_eq!(answers, expected.map(|(n, bad)| (n.to_owned(), bad)));
    script.confirm_send();
    script.no_request();
}

/// S1-08: a second watch subscribes to its name only; the end of a watch unsubscribes from it only.
#[test]
fn requests_say_what_changed_in_the_names() {
    let mut script = watching::<Cluster>(&["a"]);
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
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

/// S1-21: the last name of a type goes and comes back on the same stream: the server is told of
/// both, and sends it again.
#[test]
fn last_name_of_a_type_can_come_back() {
    let mut script = watching::<Cluster>(&["a"]);
    script.subscribe::<Endpoints>("e");
    script.delta_request();
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
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
    script.receive(delta::<Cluster>("n2", [("a", "1", cluster("a").any())]));
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-22: a name that leaves and returns before a request could go out is not lost: the server
/// sends it again, and nobody is called for what has not changed.
#[test]
fn name_that_leaves_and_returns_is_not_lost() {
    let mut script = watching::<Cluster>(&["a"]);
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
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
    script.receive(delta::<Cluster>("n2", [("a", "1", cluster("a").any())]));
    assert_eq!(script.changes(), []);
}

/// S1-22: a name that leaves, returns and leaves again before a request could go out is told to
/// the server as gone: it would be sent for ever otherwise.
#[test]
fn name_that_leaves_twice_is_unsubscribed() {
    let mut script = watching::<Cluster>(&["a"]);
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
    let mut script = watching::<Cluster>(&["a"]);
    script.hold_sends();
    script.subscribe::<Cluster>("b");
    script.delta_request();

    script.subscribe::<Cluster>("c");
    script.unsubscribe::<Cluster>("c");
    script.confirm_send();

    script.no_request();
}

/// S1-11: a resource of any type that the server removes is gone: here that is said, and not
/// concluded from absence.
#[test]
fn removed_resource_does_not_exist() {
    let mut script = watching::<Endpoints>(&["a"]);
    script.receive(delta::<Endpoints>("n1", [("a", "1", endpoints("a").any())]));
    script.delta_request();
    script.changes();

    script.receive(removed::<Endpoints>("n2", &["a"]));

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n2", None)
    );
    let told = [(Key::of::<Endpoints>("a"), Changed::Data)];
    assert_eq!(script.changes(), told);
    assert_eq!(
        script.error::<Endpoints>("a").reason,
        TroubleReason::Deleted
    );
}

/// S1-12: a name that never came is known not to exist as soon as the server says so, and is no
/// longer waited for.
#[test]
fn removal_of_what_never_came_ends_the_wait() {
    let mut script = watching::<Listener>(&["a"]);

    script.receive(removed::<Listener>("n1", &["a", "stranger"]));

    assert_eq!(script.error::<Listener>("a").reason, TroubleReason::Deleted);
    assert_eq!(script.time_to_timeout(), None);
    assert!(script.read::<Listener>("stranger").is_none());
}

/// S1-13: resources of any type stay if a response does not mention them.
#[test]
fn unmentioned_resources_stay() {
    let mut script = watching::<Cluster>(&["a", "b"]);
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.changes();

    script.receive(delta::<Cluster>("n2", [("b", "1", cluster("b").any())]));

    assert_eq!(script.changes(), [(Key::of::<Cluster>("b"), Changed::Data)]);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// A heartbeat, which has a TTL and no resource, is acknowledged and changes nothing.
#[test]
fn heartbeat_changes_nothing() {
    let mut script = watching::<Cluster>(&["a"]);
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();
    script.changes();

    let mut heartbeat = delta::<Cluster>("n2", []);
    heartbeat.resources.push(Resource {
        name: "a".to_owned(),
        version: "1".to_owned(),
        ttl: Some(protobuf::Duration::default()),
        ..Resource::default()
    });
    script.receive(heartbeat);

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n2", None)
    );
    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

fn watching<R: ResourceType>(names: &[&str]) -> Script {
    Script::watching::<R>(Protocol::Delta, names)
}
