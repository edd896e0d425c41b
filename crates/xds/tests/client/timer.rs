//! Tests of the does-not-exist timer (gRFC A27, A57). In state of the world a server cannot say
//! that a route does not exist, so the client concludes it after a time.

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints, listener};
use crowfly_testkit::{Script, over_both};
use crowfly_xds::{Changed, DataErrors, Key, TroubleReason};

const TIMEOUT: Duration = Duration::from_secs(15);

/// S1-14: a resource that is not sent in 15 s does not exist. That is said once, and a later
/// response heals.
#[test]
fn resource_that_never_comes_does_not_exist_until_it_does() {
    over_both(|protocol| {
        let mut script = Script::watching::<Endpoints>(protocol, &["a"]);
        let told = [(Key::of::<Endpoints>("a"), Changed::Data)];

        script.advance(TIMEOUT - Duration::from_millis(1));
        assert_eq!(script.changes(), []);
        script.advance(Duration::from_millis(1));
        assert_eq!(script.changes(), told);
        let reason = script.error::<Endpoints>("a").reason;
        assert_eq!(reason, TroubleReason::TimedOut(TIMEOUT));

        script.advance(Duration::from_secs(600));
        assert_eq!(script.changes(), [], "it is said once");

        script.tell::<Endpoints>("v1", "n1", [("a", endpoints("a").any())]);
        assert_eq!(script.changes(), told);
        assert_eq!(script.value::<Endpoints>("a").name, "a");
    });
}

/// S1-14: a resource that came in time is not given up, and neither is one that came but is bad.
#[test]
fn resource_that_came_is_not_given_up() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a", "b"]);
        let resources = [
            ("a", cluster("a").any()),
            ("b", cluster("b").invalid().any()),
        ];
        script.tell::<Cluster>("v1", "n1", resources);

        script.advance(TIMEOUT * 2);

        assert_eq!(script.value::<Cluster>("a").name, "a");
        let reason = script.error::<Cluster>("b").reason;
        assert!(matches!(reason, TroubleReason::Invalid(_)), "{reason:?}");
    });
}

/// S1-14: each name has its own 15 s, from when it was asked for.
#[test]
fn each_name_has_its_own_deadline() {
    over_both(|protocol| {
        let mut script = Script::watching::<Cluster>(protocol, &["a"]);
        script.advance(Duration::from_secs(5));
        script.subscribe::<Cluster>("b");

        script.advance(Duration::from_secs(10));
        assert_eq!(script.changes(), [(Key::of::<Cluster>("a"), Changed::Data)]);

        script.advance(Duration::from_secs(5));
        assert_eq!(script.changes(), [(Key::of::<Cluster>("b"), Changed::Data)]);
    });
}

/// S1-15: the timer does not run before the request has gone out.
#[test]
fn timer_starts_when_the_send_completes() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.hold_sends();
        script.subscribe::<Listener>("a");
        script.open();
        script.asked();

        script.advance(Duration::from_secs(60));
        assert_eq!(script.time_to_timeout(), None);
        assert!(script.read::<Listener>("a").is_none());

        script.confirm_send();
        assert_eq!(script.time_to_timeout(), Some(TIMEOUT));
    });
}

/// S1-15: a response that overtakes the news that its request went out leaves nothing to wait for.
#[test]
fn timer_does_not_start_for_what_came_before_the_send_completed() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.hold_sends();
        script.subscribe::<Listener>("a");
        script.open();
        script.asked();
        script.tell::<Listener>("v1", "n1", [("a", listener("a").rds("r").any())]);

        script.confirm_send();

        assert_eq!(script.time_to_timeout(), None);
    });
}

/// S1-15: the timer does not run while there is no stream.
#[test]
fn timer_does_not_run_while_disconnected() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, DataErrors::default());
        script.subscribe::<Listener>("a");

        script.advance(Duration::from_secs(600));

        assert_eq!(script.time_to_timeout(), None);
        assert!(script.read::<Listener>("a").is_none());
    });
}

/// S1-16: the end of a stream stops the timer; on the next stream it runs for its full time.
#[test]
fn timer_starts_anew_on_the_next_stream() {
    over_both(|protocol| {
        let mut script = Script::watching::<Endpoints>(protocol, &["a", "b"]);
        script.tell::<Endpoints>("v1", "n1", [("b", endpoints("b").any())]);
        script.asked();
        script.advance(Duration::from_secs(10));

        script.close("gone");
        assert_eq!(script.time_to_timeout(), None);
        script.open();
        assert_eq!(script.asked().names, ["a", "b"]);

        assert_eq!(script.time_to_timeout(), Some(TIMEOUT));
        script.advance(TIMEOUT);
        let reason = script.error::<Endpoints>("a").reason;
        assert!(matches!(reason, TroubleReason::TimedOut(_)), "{reason:?}");
    });
}

/// The end of a watch ends its wait.
#[test]
fn timer_stops_with_the_watch() {
    over_both(|protocol| {
        let mut script = Script::watching::<Endpoints>(protocol, &["a"]);

        script.unsubscribe::<Endpoints>("a");

        assert_eq!(script.time_to_timeout(), None);
    });
}
