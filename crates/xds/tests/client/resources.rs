//! Tests of the effects of a response on resources: deletion, strange types, doubles. The rules
//! differ by type (gRFC A53).

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{cluster, endpoints, listener, routes};
use crowfly_testkit::{Said, Script, over_both, wrapped};
use crowfly_xds::{Changed, Key, Protocol, TroubleReason};

use crate::expected::answer;

const UNKNOWN: &str = "type.googleapis.com/no.such.Type";

/// S1-11: a listener that was there and that the server takes away does not exist any more.
#[test]
fn listener_that_the_server_takes_away_is_deleted() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a", "b"]);
        let [a, b] = ["a", "b"].map(|name| (name, listener(name).rds("r").any()));
        script.tell::<Listener>("v1", "n1", [a, b.clone()]);
        script.asked();
        script.changes();

        script.receive(Said::without::<Listener>(protocol, "v2", "n2", "a", [b]));

        let ack = answer::<Listener>(protocol, &["a", "b"], "v2", "n2");
        assert_eq!(script.asked(), ack);
        let told = [(Key::of::<Listener>("a"), Changed::Data)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.error::<Listener>("a").reason, TroubleReason::Deleted);
        assert_eq!(script.value::<Listener>("b").name, "b");
    });
}

/// S1-11: the last cluster can be deleted too; it comes back when it is sent again.
#[test]
fn last_cluster_is_deleted_and_can_return() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);

        script.receive(Said::without::<Cluster>(protocol, "v2", "n2", "a", []));
        assert_eq!(script.error::<Cluster>("a").reason, TroubleReason::Deleted);

        script.tell::<Cluster>("v3", "n3", [("a", cluster("a").any())]);
        assert_eq!(script.value::<Cluster>("a").name, "a");
    });
}

/// S1-11: a resource that is in the response but not valid is not deleted.
#[test]
fn invalid_listener_is_not_a_deleted_one() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a"]);
        script.tell::<Listener>("v1", "n1", [("a", listener("a").rds("r").any())]);

        let bad = listener("a").rds("r").invalid().any();
        script.tell::<Listener>("v2", "n2", [("a", bad)]);

        assert_eq!(script.value::<Listener>("a").name, "a");
    });
}

/// S1-12: a listener that never came and is left out of a response is waited for: the response may
/// have been on its way before the server heard of the name.
#[test]
fn listener_that_never_came_waits_for_its_deadline() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a", "b"]);
        script.tell::<Listener>("v1", "n1", [("b", listener("b").rds("r").any())]);
        let told = |name| [(Key::of::<Listener>(name), Changed::Data)];
        assert_eq!(script.changes(), told("b"));

        script.advance(Duration::from_millis(14_999));
        assert!(script.read::<Listener>("a").is_none());
        assert_eq!(script.changes(), []);

        script.advance(Duration::from_millis(1));
        assert_eq!(script.changes(), told("a"));
        let reason = script.error::<Listener>("a").reason;
        assert!(matches!(reason, TroubleReason::TimedOut(_)), "{reason:?}");
    });
}

/// S1-13: route configurations and endpoints are not deleted by being left out.
#[test]
fn routes_and_endpoints_left_out_of_a_response_are_kept() {
    over_both(|protocol| {
        let mut script = Script::watching::<RouteConfig>(protocol, &["r"]);
        script.tell::<RouteConfig>("v1", "n1", [("r", routes("r").any())]);
        script.subscribe::<Endpoints>("e");
        script.tell::<Endpoints>("v1", "n2", [("e", endpoints("e").any())]);
        script.changes();

        script.tell::<RouteConfig>("v2", "n3", []);
        script.tell::<Endpoints>("v2", "n4", []);

        assert_eq!(script.changes(), []);
        assert_eq!(script.value::<RouteConfig>("r").name, "r");
        assert_eq!(script.value::<Endpoints>("e").name, "e");
    });
}

/// S1-23: a response of an unknown type is neither acknowledged nor refused, and what follows
/// works.
#[test]
fn response_of_an_unknown_type_is_ignored() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        let said = Said::with_nonce::<Cluster>(protocol, "v1", "n1", [("a", cluster("a").any())]);
        script.receive(said.of_type(UNKNOWN));
        script.no_request();
        assert_eq!(script.changes(), []);

        script.tell::<Cluster>("v1", "n2", [("a", cluster("a").any())]);
        assert_eq!(script.asked().nonce, "n2");
        assert_eq!(script.value::<Cluster>("a").name, "a");
    });
}

/// S1-23: a response of an unknown type does not count as an answer: the stream was silent.
#[test]
fn response_of_an_unknown_type_does_not_make_a_stream_a_good_one() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        let said = Said::with_nonce::<Cluster>(protocol, "v1", "n1", []);
        script.receive(said.of_type(UNKNOWN));

        script.close("gone");

        let reason = script.error::<Cluster>("a").reason;
        assert!(
            matches!(reason, TroubleReason::Connectivity(_)),
            "{reason:?}"
        );
        assert!(!script.take_open());
    });
}

/// S1-24: a wrapped resource of another type is an error of that resource only. In delta each resource is wrapped.
#[test]
fn wrapped_resource_of_another_type_is_one_error() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b"]);

        let resources = [("a", endpoints("a").any()), ("b", cluster("b").any())];
        let resources = resources.map(|(name, any)| match protocol {
            Protocol::Delta => (name, any),
            Protocol::StateOfTheWorld => (name, wrapped(name, any)),
        });
        script.tell::<Cluster>("v1", "n1", resources);

        let (message, _) = script.asked().refused();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("cluster a: expected type"), "{message}");
        assert!(message.contains("ClusterLoadAssignment"), "{message}");
        let reason = script.error::<Cluster>("a").reason;
        assert!(matches!(reason, TroubleReason::Invalid(_)), "{reason:?}");
        assert_eq!(script.value::<Cluster>("b").name, "b");
    });
}

/// Of a name given twice in one response the last counts, as in gRPC C-core, and watchers hear of it
/// once. A bad one before it is reported (gRFC A46: every error is).
#[test]
fn last_of_a_name_given_twice_counts() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        let resources = ["first", "second"].map(|eds| ("a", cluster("a").eds(eds).any()));
        script.tell::<Cluster>("v1", "n1", resources);
        let ack = answer::<Cluster>(protocol, &["a"], "v1", "n1");
        assert_eq!(script.asked(), ack);
        assert_eq!(script.value::<Cluster>("a").eds_name(), Some("second"));
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);

        let resources = [
            ("a", cluster("a").invalid().any()),
            ("a", cluster("a").eds("third").any()),
        ];
        script.tell::<Cluster>("v2", "n2", resources);
        let (message, _) = script.asked().refused();
        assert!(message.contains("cluster a: lb_policy"), "{message}");
        assert_eq!(script.value::<Cluster>("a").eds_name(), Some("third"));
        assert_eq!(script.ambient::<Cluster>("a"), None);
    });
}
