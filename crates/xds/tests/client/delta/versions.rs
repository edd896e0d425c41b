//! Tests of the versions that a delta stream begins with. A server does not send a resource again
//! in the version that it is told.

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{Script, delta, removed, report};
use crowfly_xds::{Changed, DataErrors, Key, Protocol};

use super::watching;
use crate::expected::versions;

/// S1-17: the version of a resource is that of what is in use, and not that of a refused update.
#[test]
fn refused_version_is_not_held() {
    let mut script = watching::<Cluster>(&["a", "b", "c"]);
    let resources = [
        ("a", "1", cluster("a").any()),
        ("b", "7", cluster("b").any()),
    ];
    script.receive(delta::<Cluster>("n1", resources));
    let bad = cluster("a").invalid().any();
    script.receive(delta::<Cluster>("n2", [("a", "2", bad)]));
    script.close("the server restarts");
    while script.take_request().is_some() {}

    script.open();

    let first = script.asked();
    assert_eq!(first.names, ["a", "b", "c"]);
    assert_eq!(first.held, versions(&[("a", "1"), ("b", "7")]));
}

/// S1-29, S1-30: a data error that takes a resource away takes its version away, or the server would not send it
/// again: a bad update, and a report in its place.
#[test]
fn resource_that_a_data_error_took_away_has_no_version() {
    let failing = DataErrors::Uniform {
        fail: true,
        timer_is_transient: false,
    };
    let bad = listener("a").rds("r").invalid().any();
    let bad = delta::<Listener>("n2", [("a", "2", bad)]);
    let mut reported = delta::<Listener>("n2", []);
    reported.resource_errors = vec![report("a", 7, "not yours")];
    for error in [bad, reported] {
        let mut script = Script::with(Protocol::Delta, failing);
        script.subscribe::<Listener>("a");
        script.open();
        let good = listener("a").rds("r").any();
        script.receive(delta::<Listener>("n1", [("a", "1", good)]));
        script.receive(error);
        assert!(script.read::<Listener>("a").unwrap().is_err());
        while script.take_request().is_some() {}

        script.advance(Duration::from_secs(60));
        script.close("gone");
        script.open();

        let first = script.asked();
        assert_eq!(first.names, ["a"]);
        assert_eq!(first.held, versions(&[]));
    }
}

/// S1-17: resources that the server removed or that no watch wants any more are not among the
/// versions.
#[test]
fn what_is_not_held_has_no_version() {
    let mut script = watching::<Cluster>(&["a", "b", "c"]);
    let resources = ["a", "b", "c"].map(|name| (name, "1", cluster(name).any()));
    script.receive(delta::<Cluster>("n1", resources));
    script.receive(removed::<Cluster>("n2", &["a"]));
    script.unsubscribe::<Cluster>("b");
    script.close("gone");
    while script.take_request().is_some() {}

    script.open();

    let first = script.asked();
    assert_eq!(first.names, ["a", "c"]);
    assert_eq!(first.held, versions(&[("c", "1")]));
}

/// S1-17: a wildcard's resources have their versions on the next stream, though none is named.
#[test]
fn wildcard_resources_have_versions_on_the_next_stream() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.open();
    script.delta_request();
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.delta_request();

    script.close("gone");
    script.open();

    let first = script.asked();
    assert_eq!(first.names, ["*"]);
    assert_eq!(first.held, versions(&[("a", "1")]));
}

/// S1-18: the first word of the server ends the trouble of what a wildcard brought, too, which in
/// delta it does not send again.
#[test]
fn response_ends_the_trouble_of_what_a_wildcard_brought() {
    let mut script = Script::with(Protocol::Delta, DataErrors::default());
    script.subscribe_all::<Cluster>();
    script.open();
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.close("the server restarts");
    script.close("connection refused");
    assert!(script.ambient::<Cluster>("a").is_some());
    script.advance(Duration::from_millis(1200));
    script.open();
    script.changes();

    script.receive(delta::<Cluster>("n1", []));

    let healed = [(Key::of::<Cluster>("a"), Changed::Ambient)];
    assert_eq!(script.changes(), healed);
    assert_eq!(script.ambient::<Cluster>("a"), None);
}

/// S1-20: a first response without resources says that nothing changed since the versions of the request.
#[test]
fn empty_response_after_a_restart_changes_nothing() {
    let mut script = watching::<Cluster>(&["a"]);
    script.receive(delta::<Cluster>("n1", [("a", "1", cluster("a").any())]));
    script.changes();

    script.close("the server restarts");
    script.open();
    script.receive(delta::<Cluster>("n1", []));

    assert_eq!(script.time_to_timeout(), None);
    script.advance(Duration::from_secs(600));
    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<Cluster>("a").name, "a");
}
