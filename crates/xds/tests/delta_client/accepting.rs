//! Requests, ACKs and NACKs on a delta stream.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{NODE_ID, Script, delta, garbled};
use crowfly_xds::{Changed, DataErrors, Key, Protocol, Reason};

/// S1-01: one watch makes exactly one request, with the node and one name to subscribe to.
#[test]
fn first_request_introduces_the_node_and_subscribes_to_one_name() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe::<Listener>("a");
    script.no_request();

    script.open();

    assert_eq!(script.protocol(), Some(Protocol::Delta));
    let request = script.delta_request();
    assert_eq!(request.node.unwrap().id, NODE_ID);
    assert_eq!(request.type_url, Listener::TYPE_URL);
    assert_eq!(request.resource_names_subscribe, ["a"]);
    assert!(request.resource_names_unsubscribe.is_empty());
    assert!(request.initial_resource_versions.is_empty());
    assert_eq!(request.response_nonce, "");
    assert_eq!(request.error_detail, None);
    script.no_request();
}

/// S1-01: the second type on a stream does not introduce the node again.
#[test]
fn only_the_first_request_of_a_stream_has_the_node() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe::<Listener>("a");
    script.subscribe::<Cluster>("c");

    script.open();

    assert!(script.delta_request().node.is_some());
    let second = script.delta_request();
    assert_eq!(second.node, None);
    assert_eq!(second.resource_names_subscribe, ["c"]);
    script.no_request();
}

/// S1-02: a valid response is acknowledged with its nonce and nothing else.
#[test]
fn valid_response_is_acknowledged() {
    let (mut script, _) = Script::watching_delta::<Listener>(&["a"]);

    let resource = listener("a").rds("r").any();
    script.receive_delta(delta::<Listener>("n1", [("a", "1", resource)]));

    let ack = script.delta_request();
    assert_eq!(ack.response_nonce, "n1");
    assert_eq!((ack.node, ack.error_detail), (None, None));
    assert!(ack.resource_names_subscribe.is_empty(), "said once");
    assert!(ack.initial_resource_versions.is_empty());
    script.no_request();
    let told = [(Key::of::<Listener>("a"), Changed::Data)];
    assert_eq!(script.changes(), told);
    assert_eq!(script.value::<Listener>("a").name, "a");
}

/// S1-03: a first response that is not valid is refused with its nonce; the error names the
/// resource, and its watcher hears of it.
#[test]
fn first_response_can_be_refused() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);

    let bad = cluster("a").invalid().any();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", bad)]));

    let nack = script.delta_request();
    assert_eq!(nack.response_nonce, "n1");
    let detail = nack.error_detail.unwrap();
    assert_eq!(detail.code, 3, "INVALID_ARGUMENT");
    let message = detail.message;
    assert!(message.contains("cluster a: lb_policy"), "{message}");
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    let reason = script.error::<Cluster>("a").reason;
    assert!(matches!(reason, Reason::Invalid(_)), "{reason:?}");
}

/// S1-04, S1-05: a bad update is refused and the resource stays, under an ambient error, which the
/// next good update ends.
#[test]
fn refused_update_leaves_the_resource_until_a_good_one_comes() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    let good = cluster("a").eds("good").any();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", good)]));
    script.delta_request();
    script.changes();

    let bad = cluster("a").invalid().any();
    script.receive_delta(delta::<Cluster>("n2", [("a", "2", bad)]));

    let nack = script.delta_request();
    assert_eq!(nack.response_nonce, "n2");
    assert!(nack.error_detail.is_some());
    let told = [(Key::of::<Cluster>("a"), Changed::Ambient)];
    assert_eq!(script.changes(), told);
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("good"));
    let ambient = script.ambient::<Cluster>("a").unwrap();
    assert!(matches!(ambient.reason, Reason::Invalid(_)));

    let better = cluster("a").eds("better").any();
    script.receive_delta(delta::<Cluster>("n3", [("a", "3", better)]));

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n3", None)
    );
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("better"));
    assert_eq!(script.ambient::<Cluster>("a"), None);
}

/// S1-06: in a partly valid response the good resource is delivered and one NACK lists the bad.
#[test]
fn valid_part_of_a_refused_response_is_used() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b"]);

    let resources = [
        ("a", "1", cluster("a").any()),
        ("b", "1", cluster("b").invalid().any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", resources));

    let message = script.delta_request().error_detail.unwrap().message;
    assert!(message.contains("cluster b"), "{message}");
    assert!(!message.contains("cluster a"), "{message}");
    script.no_request();
    assert_eq!(script.value::<Cluster>("a").name, "a");
    let reason = script.error::<Cluster>("b").reason;
    assert!(matches!(reason, Reason::Invalid(_)), "{reason:?}");
}

/// S1-07: the NACK lists every bad resource; one whose message cannot be read has its name from
/// the wrapper, so that its watcher hears of it.
#[test]
fn every_bad_resource_is_reported() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b", "c"]);

    let resources = [
        ("a", "1", cluster("a").invalid().any()),
        ("b", "1", garbled::<Cluster>()),
        ("c", "1", cluster("c").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", resources));

    let message = script.delta_request().error_detail.unwrap().message;
    for bad in ["cluster a: ", "cluster b: cannot be decoded"] {
        assert!(message.contains(bad), "{bad} is not in {message}");
    }
    assert!(!message.contains("cluster c"), "{message}");
    let reason = script.error::<Cluster>("b").reason;
    assert!(matches!(reason, Reason::Invalid(_)), "{reason:?}");
}

/// S1-10: a resource sent again under a new version is acknowledged; nobody is called, and the
/// object stays the same.
#[test]
fn unchanged_resource_is_acknowledged_and_not_delivered() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();
    script.changes();
    let held = script.value::<Cluster>("a");

    script.receive_delta(delta::<Cluster>("n2", [("a", "2", cluster("a").any())]));

    assert_eq!(script.delta_request().response_nonce, "n2");
    assert_eq!(script.changes(), []);
    assert!(Arc::ptr_eq(&held, &script.value::<Cluster>("a")));
}

/// S1-02: each response gets an answer of its own, in order, also when requests are slow.
#[test]
fn each_response_gets_its_own_answer() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.hold_sends();
    script.subscribe::<Cluster>("a");
    script.open();
    script.delta_request();

    let bad = cluster("a").invalid().any();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.receive_delta(delta::<Cluster>("n2", [("a", "2", bad)]));
    script.receive_delta(delta::<Cluster>("n3", [("a", "3", cluster("a").any())]));
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

/// S1-37: an error says which resource, why, and to which node it happened.
#[test]
fn errors_name_resource_and_node() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b"]);

    let bad = cluster("a").invalid().any();
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", bad)]));
    script.advance(std::time::Duration::from_secs(15));

    let invalid = script.error::<Cluster>("a").to_string();
    assert!(
        invalid.starts_with("cluster a: invalid: lb_policy: "),
        "{invalid}"
    );
    assert!(invalid.ends_with("[node test-node]"), "{invalid}");
    assert_eq!(
        script.error::<Cluster>("b").to_string(),
        "cluster b: does not exist: the server did not send it within 15s [node test-node]"
    );
}
