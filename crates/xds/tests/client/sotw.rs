//! Promises of state of the world alone: a request repeats all names, the version that was accepted last and the
//! nonce of the type, and a resource may come with or without a wrapper.

use std::time::Duration;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, RouteConfig};
use crowfly_testkit::builders::{cluster, endpoints, routes};
use crowfly_testkit::{Script, garbled, response, wrapped};
use crowfly_xds::{Protocol, TroubleReason};

/// S1-08: a second watch asks for both names with the current nonce and version; the end of a watch
/// asks for what remains.
#[test]
fn names_are_added_and_removed_on_the_current_nonce() {
    let mut script = watching::<Cluster>(&["a"]);
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

/// S1-21: after the last watch of a type ends, a new one on the same stream goes on with the
/// nonce.
#[test]
fn nonce_outlives_the_last_name_of_a_type() {
    let mut script = watching::<RouteConfig>(&["a"]);
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
    let mut script = watching::<Endpoints>(&["a", "b"]);
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

/// S1-22: a wait that was on when the watch ended and began again ends when it would have.
#[test]
fn deadline_is_kept_when_a_watch_ends_and_begins_before_a_request_went_out() {
    let mut script = watching::<Endpoints>(&["a"]);
    script.advance(Duration::from_secs(10));
    script.hold_sends();
    script.receive(response::<Endpoints>("v1", "n1", []));
    script.request();

    script.unsubscribe::<Endpoints>("a");
    script.subscribe::<Endpoints>("a");
    script.confirm_send();
    script.request();
    script.confirm_send();

    assert_eq!(script.time_to_timeout(), Some(Duration::from_secs(5)));
}

/// S1-27: two responses during a send get one answer, to the newest; it may take a NACK back.
#[test]
fn newest_response_is_the_one_that_is_answered() {
    let mut script = watching::<Cluster>(&["a"]);
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

/// S1-24: a resource in a wrapper is what is in the wrapper.
#[test]
fn wrapped_resource_is_unwrapped() {
    let mut script = watching::<Cluster>(&["a"]);

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
    let mut script = watching::<Cluster>(&["a"]);
    let mut wrapper = wrapped("a", cluster("a").any());
    // Field 6, the time to live, is a message, and no number.
    wrapper.value.extend([0x30, 0x01]);

    script.receive(response::<Cluster>("v1", "n1", [wrapper]));

    assert_eq!(script.request().error_detail, None);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-24: an empty wrapper, and one that cannot be read, are errors too.
#[test]
fn broken_wrappers_are_errors() {
    let mut script = watching::<Cluster>(&["a"]);
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
        TroubleReason::Invalid(_)
    ));
}

/// S1-25: a client that watches everything has asked for a resource without a name as well, and
/// refuses it.
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

fn watching<R: ResourceType>(names: &[&str]) -> Script {
    Script::watching::<R>(Protocol::StateOfTheWorld, names)
}
