//! Tests of streams that end (gRFC A57). A stream that brought a response ends without an error to
//! watchers; one that brought nothing does not.

use std::collections::BTreeSet;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{Asked, Script, over_both};
use crowfly_xds::{Changed, DataErrors, Ending, EndingKind, Key, Protocol, TroubleReason};

use crate::expected::{asking, introduction, versions};

/// S1-17: a stream that brought something ends without anybody being told; the next is opened at
/// once and begins with node, names and versions, and without nonces.
#[test]
fn next_stream_takes_up_where_the_last_one_ended() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a", "b"]);
        script.subscribe::<Cluster>("c");
        script.asked();
        script.tell::<Listener>("v1", "n1", [("a", listener("a").rds("r").any())]);
        script.tell::<Cluster>("v2", "n2", [("c", cluster("c").any())]);
        script.asked();
        script.asked();
        script.changes();

        script.close("the server restarts");
        script.open();

        assert_eq!(script.elapsed(), Duration::ZERO);
        assert_eq!(script.changes(), []);
        let [listeners, clusters] = match protocol {
            Protocol::Delta => ["a", "c"],
            Protocol::StateOfTheWorld => ["", ""],
        };
        let expected = Asked {
            held: versions(&[(listeners, "v1")]),
            ..introduction::<Listener>(&["a", "b"])
        };
        assert_eq!(script.asked(), expected);
        let expected = Asked {
            held: versions(&[(clusters, "v2")]),
            ..asking::<Cluster>(&["c"])
        };
        assert_eq!(script.asked(), expected);
        script.no_request();
    });
}

/// S1-17: a NACK that did not go out before the stream ended is not made up for on the next.
#[test]
fn rejection_ends_with_its_stream() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.hold_sends();
        script.subscribe::<Cluster>("b");
        script.asked();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").invalid().any())]);

        script.close("gone");
        script.open();

        assert_eq!(script.asked(), introduction::<Cluster>(&["a", "b"]));
        script.confirm_send();
        script.no_request();
    });
}

/// S1-18: a stream that ends before it brought anything is an error to every watcher, and the next
/// one waits.
#[test]
fn silent_stream_is_an_error_to_every_watcher() {
    over_both(|protocol| {
        let mut script = Script::watching::<Listener>(protocol, &["a", "b"]);
        script.subscribe::<Cluster>("c");

        script.close("deadline exceeded");

        let told: BTreeSet<Key> = script.changes().into_iter().map(|(key, _)| key).collect();
        let [a, b] = ["a", "b"].map(Key::of::<Listener>);
        assert_eq!(told, BTreeSet::from([a, b, Key::of::<Cluster>("c")]));
        let reason = script.error::<Listener>("a").reason;
        assert_eq!(
            reason,
            TroubleReason::Connectivity("deadline exceeded".into())
        );
        assert_eq!(
            script.error::<Cluster>("c").to_string(),
            "cluster c: xDS server: deadline exceeded [node test-node]"
        );
        assert!(!script.take_open(), "the next one waits");
        script.advance(Duration::from_millis(1200));
        assert!(script.take_open());
    });
}

/// S1-18: an attempt that fails before there is a stream is an error as well; what is in use stays, under
/// an ambient error.
#[test]
fn failed_attempt_is_ambient_for_a_resource_in_use() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.close("the server restarts");
        assert!(script.take_open());
        script.changes();

        script.close("connection refused");

        let told = [(Key::of::<Cluster>("a"), Changed::Ambient)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.value::<Cluster>("a").name, "a");
        let ambient = script.ambient::<Cluster>("a").unwrap();
        let reason = TroubleReason::Connectivity("connection refused".into());
        assert_eq!(ambient.reason, reason);
    });
}

/// S1-18: a response heals what a failed stream broke.
#[test]
fn response_after_a_failure_heals() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.close("connection refused");
        script.advance(Duration::from_millis(1200));
        script.open();
        script.asked();
        script.changes();

        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);

        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);
        assert_eq!(script.value::<Cluster>("a").name, "a");
    });
}

/// S1-19: waits grow by 1.6 to 120 s, each within 20 %; a response starts them over.
#[test]
fn backoff_grows_to_its_cap_and_starts_over_after_a_response() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Cluster>("a");
        let mut expected = 1.0_f64;
        for _ in 0..15 {
            fail_and_expect(&mut script, expected);
            expected = (expected * 1.6).min(120.0);
        }
        assert_eq!(expected, 120.0, "the cap was reached");

        script.open();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.close("gone");

        fail_and_expect(&mut script, 1.0);
    });
}

/// S1-19: a stream that opens and ends in silence does not start the waits over.
#[test]
fn open_stream_without_a_response_does_not_reset_the_backoff() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Cluster>("a");
        fail_and_expect(&mut script, 1.0);
        script.open();
        script.close("gone");
        let wait = script.time_to_timeout().unwrap().as_secs_f64();
        assert!((1.28..=1.92).contains(&wait), "{wait}");
    });
}

/// S1-20: a resource that a server does not send again after a restart stays as it is, and is not
/// waited for.
#[test]
fn resource_not_sent_again_after_a_restart_stays() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.asked();
        script.changes();

        script.close("the server restarts");
        script.open();
        script.asked();

        assert_eq!(script.time_to_timeout(), None);
        script.advance(Duration::from_secs(600));
        assert_eq!(script.changes(), []);
        assert_eq!(script.value::<Cluster>("a").name, "a");
        assert_eq!(script.ambient::<Cluster>("a"), None);
    });
}

/// S1-19: a server that answers and hangs up at once, again and again, is not dialled in a tight
/// loop; nobody is told, because it did answer.
#[test]
fn server_that_keeps_hanging_up_is_waited_for() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Cluster>("a");
        script.open();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.changes();

        script.close("hung up");
        script.open();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.close("hung up again");

        assert!(!script.take_open(), "the second end comes too soon");
        let wait = script.time_to_timeout().unwrap().as_secs_f64();
        assert!((0.8..=1.2).contains(&wait), "{wait}");
        assert_eq!(script.changes(), []);
        script.advance(Duration::from_millis(1200));
        script.open();
    });
}

/// S1-18: a response over the size limit would be so again: its end is told although the stream
/// was a good one, and the next one waits.
#[test]
fn response_over_the_limit_is_told_and_waited_for() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b"]);
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        script.changes();
        script.advance(Duration::from_secs(5));

        script.end(Ending {
            reason: "over the limit of 64 bytes".into(),
            kind: EndingKind::TooLarge { type_known: false },
        });

        let told = [
            (Key::of::<Cluster>("a"), Changed::Ambient),
            (Key::of::<Cluster>("b"), Changed::Data),
        ];
        assert_eq!(script.changes(), told);
        let error = script.error::<Cluster>("b").to_string();
        assert!(error.contains("over the limit of 64 bytes"), "{error}");
        assert_eq!(script.value::<Cluster>("a").name, "a");
        assert!(!script.take_open());
        assert!(script.time_to_timeout().unwrap() >= Duration::from_millis(800));
    });
}

/// Fails the attempt that the session asks for, and checks the wait before the next.
fn fail_and_expect(script: &mut Script, seconds: f64) {
    assert!(script.take_open(), "the session asks for a stream");
    script.close("connection refused");
    let wait = script.time_to_timeout().unwrap();
    let range = seconds * 0.8..=seconds * 1.2;
    assert!(
        range.contains(&wait.as_secs_f64()),
        "expected {range:?}, got {wait:?}"
    );
    script.advance(wait);
}
