//! Resources that go, never come, or come in a strange form on a delta stream.

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints, listener};
use crowfly_testkit::{Script, delta, removed, report};
use crowfly_xds::{Changed, DataErrors, Key, Protocol, Reason, State};
use envoy_types::pb::envoy::service::discovery::v3::Resource;
use envoy_types::pb::google::protobuf;

/// S1-11: a resource of any type that the server removes is gone: here that is said, and not
/// concluded from absence.
#[test]
fn removed_resource_does_not_exist() {
    let (mut script, _) = Script::watching_delta::<Endpoints>(&["a"]);
    script.receive_delta(delta::<Endpoints>("n1", [("a", "1", endpoints("a").any())]));
    script.delta_request();
    script.changes();

    script.receive_delta(removed::<Endpoints>("n2", &["a"]));

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n2", None)
    );
    let told = [(Key::of::<Endpoints>("a"), Changed::Data)];
    assert_eq!(script.changes(), told);
    assert_eq!(script.error::<Endpoints>("a").reason, Reason::Deleted);
}

/// S1-12: a name that never came is known not to exist as soon as the server says so, and is no
/// longer waited for.
#[test]
fn removal_of_what_never_came_ends_the_wait() {
    let (mut script, _) = Script::watching_delta::<Listener>(&["a"]);

    script.receive_delta(removed::<Listener>("n1", &["a", "stranger"]));

    assert_eq!(script.error::<Listener>("a").reason, Reason::Deleted);
    assert_eq!(script.time_to_timeout(), None);
    assert!(script.read::<Listener>("stranger").is_none());
}

/// S1-13: what a response does not mention stays, of whichever type.
#[test]
fn unmentioned_resources_stay() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.changes();

    script.receive_delta(delta::<Cluster>("n2", [("b", "1", cluster("b").any())]));

    assert_eq!(script.changes(), [(Key::of::<Cluster>("b"), Changed::Data)]);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-14: what is not sent in 15 s does not exist; a later response heals.
#[test]
fn resource_that_never_comes_does_not_exist_until_it_does() {
    let (mut script, _) = Script::watching_delta::<Endpoints>(&["a"]);

    script.advance(Duration::from_millis(14_999));
    assert_eq!(script.changes(), []);
    script.advance(Duration::from_millis(1));
    let reason = script.error::<Endpoints>("a").reason;
    assert_eq!(reason, Reason::TimedOut(Duration::from_secs(15)));
    script.advance(Duration::from_secs(600));
    assert_eq!(script.changes().len(), 1, "it is said once");

    script.receive_delta(delta::<Endpoints>("n1", [("a", "1", endpoints("a").any())]));
    assert_eq!(script.value::<Endpoints>("a").name, "a");
}

/// S1-15: the timer does not run before the request has gone out.
#[test]
fn timer_starts_when_the_send_completes() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.hold_sends();
    script.subscribe::<Listener>("a");
    script.open();
    script.delta_request();

    script.advance(Duration::from_secs(60));
    assert_eq!(script.time_to_timeout(), None);

    script.confirm_send();
    assert_eq!(script.time_to_timeout(), Some(Duration::from_secs(15)));
}

/// S1-16: the end of a stream stops the timer; on the next stream it runs for its full time.
#[test]
fn timer_starts_anew_on_the_next_stream() {
    let (mut script, _) = Script::watching_delta::<Endpoints>(&["a", "b"]);
    script.receive_delta(delta::<Endpoints>("n1", [("b", "1", endpoints("b").any())]));
    script.advance(Duration::from_secs(10));

    script.close("gone");
    assert_eq!(script.time_to_timeout(), None);
    script.open();

    assert_eq!(script.time_to_timeout(), Some(Duration::from_secs(15)));
}

/// A heartbeat, which has a TTL and no resource, is acknowledged and changes nothing.
#[test]
fn heartbeat_changes_nothing() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);
    script.receive_delta(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();
    script.changes();

    let mut heartbeat = delta::<Cluster>("n2", []);
    heartbeat.resources.push(Resource {
        name: "a".to_owned(),
        version: "1".to_owned(),
        ttl: Some(protobuf::Duration::default()),
        ..Resource::default()
    });
    script.receive_delta(heartbeat);

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n2", None)
    );
    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}

/// S1-24: a message of another type in a wrapper is that resource's error alone.
#[test]
fn wrong_type_in_a_wrapper_is_one_error() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a", "b"]);

    let resources = [
        ("a", "1", endpoints("a").any()),
        ("b", "1", cluster("b").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", resources));

    let message = script.delta_request().error_detail.unwrap().message;
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("cluster a: expected type"), "{message}");
    assert_eq!(script.value::<Cluster>("b").name, "b");
}

/// Of a name given twice in one response the last counts, as in gRPC C-core.
#[test]
fn last_of_a_name_given_twice_counts() {
    let (mut script, _) = Script::watching_delta::<Cluster>(&["a"]);

    let resources = [
        ("a", "1", cluster("a").eds("first").any()),
        ("a", "2", cluster("a").eds("second").any()),
    ];
    script.receive_delta(delta::<Cluster>("n1", resources));

    assert_eq!(script.delta_request().error_detail, None);
    assert_eq!(script.value::<Cluster>("a").eds_name(), Some("second"));
}

/// S1-28: with `ignore_resource_deletion` a removed resource stays in use, and nobody is told.
#[test]
fn ignored_removal_leaves_the_resource() {
    let mut script = watching_in_mode(DataErrors::Classic {
        ignore_deletion: true,
    });

    script.receive_delta(removed::<Listener>("n2", &["a"]));

    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<Listener>("a").name, "a");
}

/// S1-28: under gRFC A88 a removed resource stays in use by default, under an ambient error.
#[test]
fn removal_is_ambient_by_default_under_uniform_handling() {
    let mut script = watching_in_mode(UNIFORM);

    script.receive_delta(removed::<Listener>("n2", &["a"]));

    let told = [(Key::of::<Listener>("a"), Changed::Ambient)];
    assert_eq!(script.changes(), told);
    assert_eq!(script.value::<Listener>("a").name, "a");
    let ambient = script.ambient::<Listener>("a").unwrap();
    assert_eq!(ambient.reason, Reason::Deleted);
}

/// S1-29: with `fail_on_data_errors` a bad update takes the resource away, and the server is not
/// told on the next stream that it is held.
#[test]
fn bad_update_takes_the_resource_away_if_so_told() {
    let mut script = watching_in_mode(DataErrors::Uniform {
        fail: true,
        timer_is_transient: false,
    });

    let bad = listener("a").rds("r").invalid().any();
    script.receive_delta(delta::<Listener>("n2", [("a", "2", bad)]));

    assert!(script.delta_request().error_detail.is_some());
    let reason = script.error::<Listener>("a").reason;
    assert!(matches!(reason, Reason::Invalid(_)), "{reason:?}");

    script.advance(Duration::from_secs(60));
    script.close("gone");
    script.open();
    let first = script.delta_request();
    assert_eq!(first.resource_names_subscribe, ["a"]);
    assert!(
        first.initial_resource_versions.is_empty(),
        "{:?}",
        first.initial_resource_versions
    );
}

/// S1-30: a reported NOT_FOUND ends the wait and is told at once; a report that drops a resource
/// drops its version.
#[test]
fn reported_error_ends_the_wait() {
    let mut script = watching_in_mode(DataErrors::Uniform {
        fail: true,
        timer_is_transient: false,
    });
    script.subscribe::<Listener>("b");
    script.delta_request();

    let mut response = delta::<Listener>("n2", []);
    response.resource_errors = vec![report("a", 7, "not yours"), report("b", 5, "no such")];
    script.receive_delta(response);

    let ack = script.delta_request();
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n2", None)
    );
    assert_eq!(script.time_to_timeout(), None);
    let error = script.error::<Listener>("b").to_string();
    assert!(error.contains("status 5: no such"), "{error}");
    let entry = script.cache().entry(&Key::of::<Listener>("b")).unwrap();
    assert_eq!(entry.state(), State::ReceivedError);
    assert!(matches!(
        script.error::<Listener>("a").reason,
        Reason::Reported { code: 7, .. }
    ));

    script.close("gone");
    script.open();
    let versions = script.delta_request().initial_resource_versions;
    assert!(versions.is_empty(), "{versions:?}");
}

const UNIFORM: DataErrors = DataErrors::Uniform {
    fail: false,
    timer_is_transient: false,
};

/// A client that has listener `a`.
fn watching_in_mode(data_errors: DataErrors) -> Script {
    let mut script = Script::with(Protocol::Delta, data_errors);
    script.subscribe::<Listener>("a");
    script.open();
    script.delta_request();
    let good = listener("a").rds("r").any();
    script.receive_delta(delta::<Listener>("n1", [("a", "1", good)]));
    script.delta_request();
    script.changes();
    script
}
