//! Tests of requests, ACKs and NACKs. A server matches them with its responses by their nonces.

use std::sync::Arc;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{Script, garbled, over_both};
use crowfly_xds::{Changed, DataErrors, Key, Protocol, TroubleReason};

use crate::expected::{answer, asking, introduction};

/// S1-01: one watch makes exactly one request, with the node, no version, no nonce and one name.
#[test]
fn first_request_introduces_the_node_and_names_one_resource() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Listener>("a");
        script.no_request();

        script.open();

        assert_eq!(script.protocol(), Some(protocol));
        let request = script.asked();
        assert_eq!(request, introduction::<Listener>(&["a"]));
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        assert_eq!(request.type_url, url);
        script.no_request();
    });
}

/// S1-01: the second type on a stream does not introduce the node again.
#[test]
fn only_the_first_request_of_a_stream_has_the_node() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Listener>("a");
        script.subscribe::<Cluster>("c");

        script.open();

        assert_eq!(script.asked(), introduction::<Listener>(&["a"]));
        assert_eq!(script.asked(), asking::<Cluster>(&["c"]));
        script.no_request();
    });
}

/// S1-02: a valid response is acknowledged with its nonce, without node and error. In state of the world the ACK has
/// version and names, and in delta nothing else.
#[test]
fn valid_response_is_acknowledged() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a"]);

        script.tell::<Listener>("v1", "n1", [("a", listener("a").rds("r").any())]);

        let ack = answer::<Listener>(protocol, &["a"], "v1", "n1");
        assert_eq!(script.asked(), ack);
        script.no_request();
        let told = [(Key::of::<Listener>("a"), Changed::Data)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.value::<Listener>("a").name, "a");
    });
}

/// S1-03: a first response that is not valid is refused with its nonce and no version; the error
/// names the resource, and its watcher hears of it.
#[test]
fn first_response_can_be_refused() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").invalid().any())]);

        let (reason, nack) = script.asked().refused();
        assert_eq!(nack, answer::<Cluster>(protocol, &["a"], "", "n1"));
        assert!(reason.contains("cluster a: lb_policy"), "{reason}");
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
        let reason = script.error::<Cluster>("a").reason;
        assert!(matches!(reason, TroubleReason::Invalid(_)), "{reason:?}");
    });
}

/// S1-04: a bad update is refused with the version in use; the watcher keeps the resource and
/// hears of an ambient error.
#[test]
fn refused_update_leaves_the_accepted_version_in_use() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").eds("good").any())]);
        script.asked();
        script.changes();

        script.tell::<Cluster>("v2", "n2", [("a", cluster("a").invalid().any())]);

        let (_, nack) = script.asked().refused();
        assert_eq!(nack, answer::<Cluster>(protocol, &["a"], "v1", "n2"));
        let told = [(Key::of::<Cluster>("a"), Changed::Ambient)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.value::<Cluster>("a").eds_name(), Some("good"));
        let ambient = script.ambient::<Cluster>("a").unwrap();
        assert!(matches!(ambient.reason, TroubleReason::Invalid(_)));
    });
}

/// S1-05: a good update after a bad one is acknowledged and delivered.
#[test]
fn good_update_after_a_refused_one_is_taken() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.tell::<Cluster>("v2", "n2", [("a", cluster("a").invalid().any())]);
        script.asked();
        script.asked();
        script.changes();

        script.tell::<Cluster>("v3", "n3", [("a", cluster("a").eds("new").any())]);

        let ack = answer::<Cluster>(protocol, &["a"], "v3", "n3");
        assert_eq!(script.asked(), ack);
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
        assert_eq!(script.value::<Cluster>("a").eds_name(), Some("new"));
        assert_eq!(script.ambient::<Cluster>("a"), None);
    });
}

/// S1-05: an update that takes a bad one back to what is in use ends the ambient error.
#[test]
fn return_to_the_resource_in_use_ends_the_ambient_error() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        let held = script.value::<Cluster>("a");
        script.tell::<Cluster>("v2", "n2", [("a", cluster("a").invalid().any())]);
        script.changes();

        script.tell::<Cluster>("v3", "n3", [("a", cluster("a").any())]);

        let told = [(Key::of::<Cluster>("a"), Changed::Ambient)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.ambient::<Cluster>("a"), None);
        assert!(Arc::ptr_eq(&held, &script.value::<Cluster>("a")));
    });
}

/// S1-06: in a partly valid response the good resource is delivered and one NACK lists the bad.
#[test]
fn valid_part_of_a_refused_response_is_used() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b"]);

        let resources = [
            ("a", cluster("a").any()),
            ("b", cluster("b").invalid().any()),
        ];
        script.tell::<Cluster>("v1", "n1", resources);

        let (reason, _) = script.asked().refused();
        assert!(reason.contains("cluster b"), "{reason}");
        assert!(!reason.contains("cluster a"), "{reason}");
        script.no_request();
        assert_eq!(script.value::<Cluster>("a").name, "a");
        let reason = script.error::<Cluster>("b").reason;
        assert!(matches!(reason, TroubleReason::Invalid(_)), "{reason:?}");
    });
}

/// S1-07: the NACK lists every bad resource. One that cannot be read has its name from the wrapper in delta, so that
/// its watcher hears of it, and in state of the world its place in the response.
#[test]
fn every_bad_resource_is_reported() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b", "c", "d"]);

        let resources = [
            ("a", cluster("a").invalid().any()),
            ("d", garbled::<Cluster>()),
            ("b", cluster("b").any()),
            ("c", cluster("c").invalid().any()),
        ];
        script.tell::<Cluster>("v1", "n1", resources);

        let (message, _) = script.asked().refused();
        let (unreadable, is_told) = match protocol {
            Protocol::Delta => ("cluster d: cannot be decoded", true),
            Protocol::StateOfTheWorld => ("cluster at resources[1]: ", false),
        };
        for bad in ["cluster a: ", unreadable, "cluster c: "] {
            assert!(message.contains(bad), "{bad} is not in {message}");
        }
        assert!(!message.contains("cluster b"), "{message}");
        let reason = script
            .read::<Cluster>("d")
            .map(|read| read.unwrap_err().reason);
        assert_eq!(reason.is_some(), is_told, "{reason:?}");
        assert!(
            matches!(reason, None | Some(TroubleReason::Invalid(_))),
            "{reason:?}"
        );
    });
}

/// S1-07: a NACK stays within what a server accepts, however many errors there are, and says how
/// many it leaves out.
#[test]
fn nack_is_of_bounded_size() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);

        let resources = (0..100_000).map(|_| ("a", garbled::<Cluster>()));
        script.tell::<Cluster>("v1", "n1", resources);

        let (message, _) = script.asked().refused();
        assert!(message.len() < 1 << 20, "{} bytes", message.len());
        let first = match protocol {
            Protocol::Delta => "cluster a: ",
            Protocol::StateOfTheWorld => "cluster at resources[0]: ",
        };
        assert!(message.starts_with(first));
        let last = message.lines().next_back().unwrap();
        let left: usize = last
            .strip_prefix("and ")
            .and_then(|rest| rest.strip_suffix(" more"))
            .and_then(|count| count.parse().ok())
            .unwrap();
        assert_eq!(message.lines().count() - 1 + left, 100_000);
    });
}

/// S1-10: a resource sent again under a new version is acknowledged; nobody is called, and the
/// object stays the same.
#[test]
fn unchanged_resource_is_acknowledged_and_not_delivered() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.asked();
        script.changes();
        let held = script.value::<Cluster>("a");

        script.tell::<Cluster>("v2", "n2", [("a", cluster("a").any())]);

        let ack = answer::<Cluster>(protocol, &["a"], "v2", "n2");
        assert_eq!(script.asked(), ack);
        assert_eq!(script.changes(), []);
        assert!(Arc::ptr_eq(&held, &script.value::<Cluster>("a")));
    });
}

/// S1-37: an error says which resource, why, and to which node it happened.
#[test]
fn errors_name_resource_and_node() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b"]);

        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").invalid().any())]);
        script.advance(Duration::from_secs(15));

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
    });
}
