//! Requests, ACKs and NACKs of the client half.

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{NODE_ID, Script, garbled, response};
use crowfly_xds::{Changed, Key, Reason};

/// S1-01: one watch makes exactly one request, with the node, no version, no nonce and one name.
#[test]
fn first_request_introduces_the_node_and_names_one_resource() {
    let mut script = Script::new();
    script.subscribe::<Listener>("a");
    script.no_request();

    script.open();

    let request = script.request();
    assert_eq!(request.node.unwrap().id, NODE_ID);
    assert_eq!(
        request.type_url,
        "type.googleapis.com/envoy.config.listener.v3.Listener"
    );
    assert_eq!(request.resource_names, ["a"]);
    assert_eq!(request.version_info, "");
    assert_eq!(request.response_nonce, "");
    assert_eq!(request.error_detail, None);
    script.no_request();
}

/// S1-01: the second type on a stream does not introduce the node again.
#[test]
fn only_the_first_request_of_a_stream_has_the_node() {
    let mut script = Script::new();
    script.subscribe::<Listener>("a");
    script.subscribe::<Cluster>("c");

    script.open();

    assert!(script.request().node.is_some());
    let second = script.request();
    assert_eq!(second.node, None);
    assert_eq!(second.resource_names, ["c"]);
    script.no_request();
}

/// S1-02: a valid response is acknowledged with its version and nonce, without node and error.
#[test]
fn valid_response_is_acknowledged() {
    let mut script = Script::watching::<Listener>(&["a"]);

    script.receive(response::<Listener>(
        "v1",
        "n1",
        [listener("a").rds("r").any()],
    ));

    let ack = script.request();
    assert_eq!(ack.version_info, "v1");
    assert_eq!(ack.response_nonce, "n1");
    assert_eq!(ack.node, None);
    assert_eq!(ack.error_detail, None);
    assert_eq!(ack.resource_names, ["a"]);
    script.no_request();
    assert_eq!(
        script.changes(),
        [(Key::of::<Listener>("a"), Changed::Data)]
    );
    assert_eq!(script.value::<Listener>("a").name, "a");
}

/// S1-03: a first response that is not valid is refused with its nonce and no version; the error
/// names the resource, and its watcher hears of it.
#[test]
fn first_response_can_be_refused() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").invalid().any()],
    ));

    let nack = script.request();
    assert_eq!(nack.version_info, "");
    assert_eq!(nack.response_nonce, "n1");
    let detail = nack.error_detail.unwrap();
    assert_eq!(detail.code, 3, "INVALID_ARGUMENT");
    assert!(
        detail.message.contains("cluster a: lb_policy"),
        "{}",
        detail.message
    );
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert!(matches!(
        script.error::<Cluster>("a").reason,
        Reason::Invalid(_)
    ));
}

/// S1-04: a bad update is refused with the version in use; the watcher keeps the resource and
/// hears of an ambient error.
#[test]
fn refused_update_leaves_the_accepted_version_in_use() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").eds("good").any()],
    ));
    script.request();
    script.changes();

    script.receive(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").invalid().any()],
    ));

    let nack = script.request();
    assert_eq!(nack.version_info, "v1");
    assert_eq!(nack.response_nonce, "n2");
    assert!(nack.error_detail.is_some());
    assert_eq!(
        script.changes(),
        [(Key::of::<Cluster>("a"), Changed::Ambient)]
    );
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("good"));
    let ambient = script.ambient::<Cluster>("a").unwrap();
    assert!(matches!(ambient.reason, Reason::Invalid(_)));
}

/// S1-05: a good update after a bad one is acknowledged and delivered.
#[test]
fn good_update_after_a_refused_one_is_taken() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    script.receive(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").invalid().any()],
    ));
    script.request();
    script.request();
    script.changes();

    script.receive(response::<Cluster>(
        "v3",
        "n3",
        [cluster("a").eds("new").any()],
    ));

    let ack = script.request();
    assert_eq!(
        (ack.version_info.as_str(), ack.response_nonce.as_str()),
        ("v3", "n3")
    );
    assert_eq!(ack.error_detail, None);
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("new"));
    assert_eq!(script.ambient::<Cluster>("a"), None);
}

/// S1-05: an update that takes a bad one back to what is in use ends the ambient error.
#[test]
fn return_to_the_resource_in_use_ends_the_ambient_error() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    let held = script.value::<Cluster>("a");
    script.receive(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").invalid().any()],
    ));
    script.changes();

    script.receive(response::<Cluster>("v3", "n3", [cluster("a").any()]));

    assert_eq!(
        script.changes(),
        [(Key::of::<Cluster>("a"), Changed::Ambient)]
    );
    assert_eq!(script.ambient::<Cluster>("a"), None);
    assert!(std::sync::Arc::ptr_eq(&held, &script.value::<Cluster>("a")));
}

/// S1-06: in a partly valid response the good resource is delivered and one NACK lists the bad.
#[test]
fn valid_part_of_a_refused_response_is_used() {
    let mut script = Script::watching::<Cluster>(&["a", "b"]);

    let resources = [cluster("a").any(), cluster("b").invalid().any()];
    script.receive(response::<Cluster>("v1", "n1", resources));

    let message = script.request().error_detail.unwrap().message;
    assert!(message.contains("cluster b"), "{message}");
    assert!(!message.contains("cluster a"), "{message}");
    script.no_request();
    assert_eq!(script.value::<Cluster>("a").name, "a");
    assert!(matches!(
        script.error::<Cluster>("b").reason,
        Reason::Invalid(_)
    ));
}

/// S1-07: the NACK lists every bad resource, also one that cannot even be named.
#[test]
fn every_bad_resource_is_reported() {
    let mut script = Script::watching::<Cluster>(&["a", "b", "c"]);

    let resources = [
        cluster("a").invalid().any(),
        garbled::<Cluster>(),
        cluster("b").any(),
        cluster("c").invalid().any(),
    ];
    script.receive(response::<Cluster>("v1", "n1", resources));

    let message = script.request().error_detail.unwrap().message;
    for bad in ["cluster a: ", "cluster at resources[1]: ", "cluster c: "] {
        assert!(message.contains(bad), "{bad} is not in {message}");
    }
    assert!(!message.contains("cluster b"), "{message}");
}

/// S1-07: a NACK stays within what a server accepts, however many errors there are, and says how
/// many it leaves out.
#[test]
fn nack_is_of_bounded_size() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    let resources = (0..100_000).map(|_| garbled::<Cluster>());
    script.receive(response::<Cluster>("v1", "n1", resources));

    let message = script.request().error_detail.unwrap().message;
    assert!(message.len() < 1 << 20, "{} bytes", message.len());
    assert!(message.starts_with("cluster at resources[0]: "));
    let last = message.lines().next_back().unwrap();
    let left: usize = last
        .strip_prefix("and ")
        .and_then(|rest| rest.strip_suffix(" more"))
        .and_then(|count| count.parse().ok())
        .unwrap();
    assert_eq!(message.lines().count() - 1 + left, 100_000);
}

/// S1-10: a resource sent again under a new version is acknowledged; nobody is called, and the
/// object stays the same.
#[test]
fn unchanged_resource_is_acknowledged_and_not_delivered() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    script.request();
    script.changes();
    let held = script.value::<Cluster>("a");

    script.receive(response::<Cluster>("v2", "n2", [cluster("a").any()]));

    let ack = script.request();
    assert_eq!(
        (ack.version_info.as_str(), ack.response_nonce.as_str()),
        ("v2", "n2")
    );
    assert_eq!(script.changes(), []);
    assert!(std::sync::Arc::ptr_eq(&held, &script.value::<Cluster>("a")));
}

/// S1-37: an error says which resource, why, and to which node it happened.
#[test]
fn errors_name_resource_and_node() {
    let mut script = Script::watching::<Cluster>(&["a", "b"]);

    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").invalid().any()],
    ));
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
