//! What a response does to resources: absence, wrappers, strangers.

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{cluster, endpoints, listener, routes};
use crowfly_testkit::{Script, garbled, response, wrapped};
use crowfly_xds::{Changed, Key, Reason};

/// S1-11: a listener that was there and is left out of a response does not exist any more.
#[test]
fn listener_left_out_of_a_response_is_deleted() {
    let mut script = Script::watching::<Listener>(&["a", "b"]);
    let both = [listener("a").rds("r").any(), listener("b").rds("r").any()];
    script.receive(response::<Listener>("v1", "n1", both));
    script.changes();

    script.receive(response::<Listener>(
        "v2",
        "n2",
        [listener("b").rds("r").any()],
    ));

    assert_eq!(
        script.changes(),
        [(Key::of::<Listener>("a"), Changed::Data)]
    );
    assert_eq!(script.error::<Listener>("a").reason, Reason::Deleted);
    assert_eq!(script.value::<Listener>("b").name, "b");
}

/// S1-11: the same holds for clusters, also for the last one; it comes back when it is sent again.
#[test]
fn last_cluster_is_deleted_by_an_empty_response_and_can_return() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    script.receive(response::<Cluster>("v1", "n1", [cluster("a").any()]));

    script.receive(response::<Cluster>("v2", "n2", []));
    assert_eq!(script.error::<Cluster>("a").reason, Reason::Deleted);

    script.receive(response::<Cluster>("v3", "n3", [cluster("a").any()]));
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-11: a resource that is in the response but not valid is not deleted.
#[test]
fn invalid_listener_is_not_a_deleted_one() {
    let mut script = Script::watching::<Listener>(&["a"]);
    script.receive(response::<Listener>(
        "v1",
        "n1",
        [listener("a").rds("r").any()],
    ));

    script.receive(response::<Listener>(
        "v2",
        "n2",
        [listener("a").rds("r").invalid().any()],
    ));

    assert_eq!(script.value::<Listener>("a").name, "a");
}

/// S1-12: a listener that never came and is left out of a response is waited for: the response may
/// have been on its way before the server heard of the name.
#[test]
fn listener_that_never_came_waits_for_its_deadline() {
    let mut script = Script::watching::<Listener>(&["a", "b"]);
    script.receive(response::<Listener>(
        "v1",
        "n1",
        [listener("b").rds("r").any()],
    ));
    assert_eq!(
        script.changes(),
        [(Key::of::<Listener>("b"), Changed::Data)]
    );

    script.advance(std::time::Duration::from_millis(14_999));
    assert!(script.read::<Listener>("a").is_none());
    assert_eq!(script.changes(), []);

    script.advance(std::time::Duration::from_millis(1));
    assert_eq!(
        script.changes(),
        [(Key::of::<Listener>("a"), Changed::Data)]
    );
    assert!(matches!(
        script.error::<Listener>("a").reason,
        Reason::TimedOut(_)
    ));
}

/// S1-13: route configurations and endpoints are not deleted by being left out.
#[test]
fn routes_and_endpoints_left_out_of_a_response_are_kept() {
    let mut script = Script::watching::<RouteConfig>(&["r"]);
    script.receive(response::<RouteConfig>("v1", "n1", [routes("r").any()]));
    script.subscribe::<Endpoints>("e");
    script.receive(response::<Endpoints>("v1", "n2", [endpoints("e").any()]));
    script.changes();

    script.receive(response::<RouteConfig>("v2", "n3", []));
    script.receive(response::<Endpoints>("v2", "n4", []));

    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<RouteConfig>("r").name, "r");
    assert_eq!(script.value::<Endpoints>("e").name, "e");
}

/// S1-23: a response of an unknown type is neither acknowledged nor refused, and what follows
/// works.
#[test]
fn response_of_an_unknown_type_is_ignored() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    let mut unknown = response::<Cluster>("v1", "n1", []);
    unknown.type_url = "type.googleapis.com/no.such.Type".to_owned();
    script.receive(unknown);
    script.no_request();
    assert_eq!(script.changes(), []);

    script.receive(response::<Cluster>("v1", "n2", [cluster("a").any()]));
    assert_eq!(script.request().response_nonce, "n2");
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-24: a resource in a wrapper is what is in the wrapper.
#[test]
fn wrapped_resource_is_unwrapped() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    script.receive(response::<Cluster>(
        "v1",
        "n1",
        [wrapped("a", cluster("a").eds("e").any())],
    ));

    assert_eq!(script.request().error_detail, None);
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("e"));
}

/// S1-24: a field of the wrapper that is of another wire type is unknown, as protobuf has it.
#[test]
fn wrapper_with_a_field_of_another_type_is_unwrapped() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    let mut wrapper = wrapped("a", cluster("a").any());
    // Field 6, the time to live, is a message, and no number.
    wrapper.value.extend([0x30, 0x01]);

    script.receive(response::<Cluster>("v1", "n1", [wrapper]));

    assert_eq!(script.request().error_detail, None);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-24: a wrapped resource of another type is an error of that resource only.
#[test]
fn wrapped_resource_of_another_type_is_one_error() {
    let mut script = Script::watching::<Cluster>(&["a", "b"]);

    let resources = [
        wrapped("a", endpoints("a").any()),
        wrapped("b", cluster("b").any()),
    ];
    script.receive(response::<Cluster>("v1", "n1", resources));

    let message = script.request().error_detail.unwrap().message;
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("cluster a: expected type"), "{message}");
    assert!(message.contains("ClusterLoadAssignment"), "{message}");
    assert!(matches!(
        script.error::<Cluster>("a").reason,
        Reason::Invalid(_)
    ));
    assert_eq!(script.value::<Cluster>("b").name, "b");
}

/// S1-24: an empty wrapper, and one that cannot be read, are errors too.
#[test]
fn broken_wrappers_are_errors() {
    let mut script = Script::watching::<Cluster>(&["a"]);
    let mut empty = wrapped("a", cluster("a").any());
    // What is left is the name alone: field 3, one byte long.
    empty.value = vec![0x1a, 1, b'a'];
    let mut unreadable = wrapped("a", cluster("a").any());
    unreadable.value = garbled::<Cluster>().value;

    script.receive(response::<Cluster>("v1", "n1", [empty, unreadable]));

    let message = script.request().error_detail.unwrap().message;
    assert_eq!(message.lines().count(), 2, "{message}");
    assert!(matches!(
        script.error::<Cluster>("a").reason,
        Reason::Invalid(_)
    ));
}

/// S1-25: a resource nobody asked for is acknowledged and ignored.
#[test]
fn unrequested_resource_is_acknowledged_and_ignored() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    let resources = [cluster("a").any(), cluster("stranger").any()];
    script.receive(response::<Cluster>("v1", "n1", resources));

    let ack = script.request();
    assert_eq!(ack.version_info, "v1");
    assert_eq!(ack.error_detail, None);
    assert_eq!(ack.resource_names, ["a"]);
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
    assert!(script.read::<Cluster>("stranger").is_none());
}

/// S1-25: nothing about a resource nobody asked for is judged: neither what is in it, nor that it comes
/// twice, nor that its name is empty.
#[test]
fn unrequested_resources_are_not_judged() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    let resources = [
        cluster("stranger").any(),
        cluster("stranger").any(),
        cluster("stranger").invalid().any(),
        cluster("").any(),
        cluster("a").any(),
    ];
    script.receive(response::<Cluster>("v1", "n1", resources));

    let ack = script.request();
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("v1", None));
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
}

/// S1-25: who watches everything has asked for what has no name as well, and refuses it.
#[test]
fn resource_without_a_name_is_refused_under_a_wildcard() {
    let mut script = Script::new();
    script.subscribe_all::<Cluster>();
    script.open();
    script.request();

    script.receive(response::<Cluster>("v1", "n1", [cluster("").any()]));

    let message = script.request().error_detail.unwrap().message;
    assert!(
        message.contains("cluster at resources[0]: name: "),
        "{message}"
    );
}

/// Of a name given twice in one response the last counts, as in gRPC C-core, and watchers hear of it
/// once. A bad one before it is reported (gRFC A46: every error is).
#[test]
fn last_of_a_name_given_twice_counts() {
    let mut script = Script::watching::<Cluster>(&["a"]);

    let resources = [
        cluster("a").eds("first").any(),
        cluster("a").eds("second").any(),
    ];
    script.receive(response::<Cluster>("v1", "n1", resources));
    let ack = script.request();
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("v1", None));
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("second"));
    assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);

    let resources = [
        cluster("a").invalid().any(),
        cluster("a").eds("third").any(),
    ];
    script.receive(response::<Cluster>("v2", "n2", resources));
    let message = script.request().error_detail.unwrap().message;
    assert!(message.contains("cluster a: lb_policy"), "{message}");
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("third"));
    assert_eq!(script.ambient::<Cluster>("a"), None);
}
