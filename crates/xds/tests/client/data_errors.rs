//! Tests of errors in the data under both sets of rules: those of gRFC A53 and A57, and those of
//! gRFC A88.

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints, listener};
use crowfly_testkit::{Said, Script, over_both, report};
use crowfly_xds::{Changed, DataErrors, Key, Protocol, ResourceStatus, TroubleReason};
use envoy_types::pb::google::protobuf::Any;

use crate::expected::answer;

const CLASSIC: DataErrors = DataErrors::Classic {
    ignore_deletion: false,
};
const IGNORING: DataErrors = DataErrors::Classic {
    ignore_deletion: true,
};
const UNIFORM: DataErrors = DataErrors::Uniform {
    fail: false,
    timer_is_transient: false,
};
const FAILING: DataErrors = DataErrors::Uniform {
    fail: true,
    timer_is_transient: false,
};
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const UNAVAILABLE: i32 = 14;

/// S1-11: a deleted listener does not exist, where deletion is honoured: by default in the classic
/// mode, and with `fail_on_data_errors` in that of gRFC A88.
#[test]
fn deleted_listener_does_not_exist() {
    over_both_in(&[CLASSIC, FAILING], |protocol, mode| {
        let mut script = holding_a_listener(protocol, mode);

        script.receive(deletion(protocol, "n2"));

        assert_eq!(script.asked().refusal, None, "it is no NACK");
        assert_eq!(script.changes(), told(Changed::Data));
        assert_eq!(script.error::<Listener>("a").reason, TroubleReason::Deleted);
        assert_eq!(state(&script), ResourceStatus::DoesNotExist);
    });
}

/// S1-11, S1-28: under gRFC A88 a deleted listener stays in use by default; its watcher hears once that
/// it was deleted, and again when it is back.
#[test]
fn deletion_is_ambient_by_default_under_uniform_handling() {
    over_both(|protocol| {
        let mut script = holding_a_listener(protocol, UNIFORM);

        for nonce in ["n2", "n3"] {
            script.receive(deletion(protocol, nonce));
        }

        assert_eq!(script.changes(), told(Changed::Ambient), "it is said once");
        assert_eq!(script.value::<Listener>("a").name, "a");
        let ambient = script.ambient::<Listener>("a").unwrap();
        assert_eq!(ambient.reason, TroubleReason::Deleted);
        assert_eq!(state(&script), ResourceStatus::DoesNotExist);

        script.tell::<Listener>("v3", "n4", [good()]);
        let healed = told(Changed::Ambient);
        assert_eq!(script.changes(), healed, "the trouble is over");
        assert_eq!(script.ambient::<Listener>("a"), None);
        assert_eq!(state(&script), ResourceStatus::Acked);
    });
}

/// S1-28: with `ignore_resource_deletion` a deleted listener stays in use and nobody hears of it,
/// neither when it goes nor when it is back.
#[test]
fn ignored_deletion_is_no_event() {
    over_both(|protocol| {
        let mut script = holding_a_listener(protocol, IGNORING);

        for nonce in ["n2", "n3"] {
            script.receive(deletion(protocol, nonce));
            assert_eq!(script.asked().refusal, None);
        }
        assert_eq!(script.changes(), []);
        assert_eq!(script.value::<Listener>("a").name, "a");
        assert_eq!(script.ambient::<Listener>("a"), None);

        script.tell::<Listener>("v3", "n4", [good()]);
        assert_eq!(script.changes(), []);
        let other = listener("a").rds("other").any();
        script.tell::<Listener>("v4", "n5", [("a", other)]);
        assert_eq!(script.changes(), told(Changed::Data), "it is still watched");
    });
}

/// S1-28: a resource that never came cannot be kept, so it does not exist when its time is up.
#[test]
fn ignoring_deletion_does_not_make_a_resource_exist() {
    over_both_in(&[IGNORING, UNIFORM], |protocol, mode| {
        let mut script = Script::with(protocol, mode);
        script.subscribe::<Listener>("a");
        script.open();
        script.asked();
        script.tell::<Listener>("v1", "n1", []);

        script.advance(Duration::from_secs(15));

        let reason = script.error::<Listener>("a").reason;
        assert_eq!(reason, TroubleReason::TimedOut(Duration::from_secs(15)));
    });
}

/// S1-29: with `fail_on_data_errors` a bad update takes the good resource away; the NACK is as
/// always.
#[test]
fn bad_update_takes_the_resource_away_if_so_told() {
    over_both(|protocol| {
        let mut script = holding_a_listener(protocol, FAILING);

        script.tell::<Listener>("v2", "n2", [bad()]);

        let (_, nack) = script.asked().refused();
        assert_eq!(nack, answer::<Listener>(protocol, &["a"], "v1", "n2"));
        assert_eq!(script.changes(), told(Changed::Data));
        let error = script.error::<Listener>("a");
        assert!(matches!(error.reason, TroubleReason::Invalid(_)), "{error}");
        assert!(error.to_string().ends_with("[node test-node]"), "{error}");
        assert_eq!(state(&script), ResourceStatus::Nacked);

        script.tell::<Listener>("v3", "n3", [good()]);
        assert_eq!(script.changes(), told(Changed::Data), "a good one heals");
        assert_eq!(script.value::<Listener>("a").name, "a");
    });
}

/// S1-29: without it a bad update is ambient, in both modes.
#[test]
fn bad_update_is_ambient_otherwise() {
    over_both_in(&[CLASSIC, IGNORING, UNIFORM], |protocol, mode| {
        let mut script = holding_a_listener(protocol, mode);

        script.tell::<Listener>("v2", "n2", [bad()]);

        assert_eq!(script.changes(), told(Changed::Ambient));
        assert_eq!(script.value::<Listener>("a").name, "a");
        assert_eq!(state(&script), ResourceStatus::Nacked);
    });
}

/// S1-29: a server out of reach takes nothing away in any mode: that is no data error.
#[test]
fn connectivity_never_takes_a_resource_away() {
    over_both_in(&[CLASSIC, IGNORING, UNIFORM, FAILING], |protocol, mode| {
        let mut script = holding_a_listener(protocol, mode);
        script.advance(Duration::from_secs(60));

        script.close("gone");
        script.close("connection refused");

        assert_eq!(script.value::<Listener>("a").name, "a");
        let ambient = script.ambient::<Listener>("a").unwrap();
        assert!(matches!(ambient.reason, TroubleReason::Connectivity(_)));
    });
}

/// S1-30: a reported NOT_FOUND ends the wait and is told at once under gRFC A88, with the server's
/// words; the response is acknowledged.
#[test]
fn reported_error_ends_the_wait() {
    over_both_in(&[UNIFORM, FAILING], |protocol, mode| {
        let mut script = waiting_for_endpoints(protocol, mode);

        script.receive(reporting(protocol, "n1", NOT_FOUND));

        let ack = answer::<Endpoints>(protocol, &["a"], "v2", "n1");
        assert_eq!(script.asked(), ack);
        let told = [(Key::of::<Endpoints>("a"), Changed::Data)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.time_to_timeout(), None);
        let error = script.error::<Endpoints>("a").to_string();
        assert_eq!(
            error,
            "endpoints a: the server reports status 5: because [node test-node]"
        );
        let entry = script.cache().entry(&Key::of::<Endpoints>("a")).unwrap();
        assert_eq!(entry.state(), ResourceStatus::ReceivedError);
    });
}

/// S1-30: in the classic mode such reports are not read, and the timer decides.
#[test]
fn reported_error_is_not_read_in_classic_mode() {
    over_both(|protocol| {
        let mut script = waiting_for_endpoints(protocol, CLASSIC);

        script.receive(reporting(protocol, "n1", NOT_FOUND));

        assert_eq!(script.changes(), []);
        assert_eq!(script.time_to_timeout(), Some(Duration::from_secs(15)));
    });
}

/// S1-30: a report in place of a resource in use is ambient by default.
#[test]
fn reported_error_is_ambient_for_a_resource_in_use() {
    over_both(|protocol| {
        let mut script = waiting_for_endpoints(protocol, UNIFORM);
        script.tell::<Endpoints>("v1", "n1", [("a", endpoints("a").any())]);
        script.changes();

        script.receive(reporting(protocol, "n2", PERMISSION_DENIED));

        let told = [(Key::of::<Endpoints>("a"), Changed::Ambient)];
        assert_eq!(script.changes(), told);
        assert_eq!(script.value::<Endpoints>("a").name, "a");
    });
}

/// S1-30: with `fail_on_data_errors` only codes that speak about the resource take it away.
#[test]
fn only_data_errors_take_a_resource_away() {
    over_both(|protocol| {
        for (code, taken) in [
            (NOT_FOUND, true),
            (PERMISSION_DENIED, true),
            (UNAVAILABLE, false),
        ] {
            let mut script = waiting_for_endpoints(protocol, FAILING);
            script.tell::<Endpoints>("v1", "n1", [("a", endpoints("a").any())]);

            script.receive(reporting(protocol, "n2", code));

            let read = script.read::<Endpoints>("a").unwrap();
            assert_eq!(read.is_err(), taken, "status {code}");
        }
    });
}

/// S1-30: a cluster with an error in its place is not also deleted for being absent.
#[test]
fn reported_resource_is_not_absent() {
    over_both(|protocol| {
        let mut script = Script::with(protocol, UNIFORM);
        script.subscribe::<Cluster>("a");
        script.open();
        script.tell::<Cluster>("v1", "n1", [("a", cluster("a").any())]);
        let said = Said::with_nonce::<Cluster>(protocol, "v2", "n2", []);

        script.receive(said.reporting([report("a", UNAVAILABLE, "later")]));

        let ambient = script.ambient::<Cluster>("a").unwrap();
        assert!(
            matches!(ambient.reason, TroubleReason::Reported { .. }),
            "{ambient}"
        );
    });
}

/// S1-14: with the timer feature of gRFC A88 the wait is 30 s, and its end means a slow server and
/// not that the resource does not exist; a later response heals.
#[test]
fn timer_can_mean_a_slow_server() {
    over_both(|protocol| {
        let mode = DataErrors::Uniform {
            fail: false,
            timer_is_transient: true,
        };
        let mut script = waiting_for_endpoints(protocol, mode);

        script.advance(Duration::from_millis(29_999));
        assert_eq!(script.changes(), []);
        script.advance(Duration::from_millis(1));

        let reason = script.error::<Endpoints>("a").reason;
        assert_eq!(reason, TroubleReason::Slow(Duration::from_secs(30)));
        let entry = script.cache().entry(&Key::of::<Endpoints>("a")).unwrap();
        assert_eq!(entry.state(), ResourceStatus::TimedOut);
        script.tell::<Endpoints>("v1", "n1", [("a", endpoints("a").any())]);
        assert_eq!(script.value::<Endpoints>("a").name, "a");
    });
}

/// S1-14: without the feature, gRFC A88 leaves the timer as it was.
#[test]
fn timer_is_as_ever_without_the_feature() {
    over_both(|protocol| {
        let mut script = waiting_for_endpoints(protocol, UNIFORM);

        script.advance(Duration::from_secs(15));

        let reason = script.error::<Endpoints>("a").reason;
        assert_eq!(reason, TroubleReason::TimedOut(Duration::from_secs(15)));
    });
}

/// Runs a test over each protocol, in each of the modes.
fn over_both_in(modes: &[DataErrors], test: impl Fn(Protocol, DataErrors)) {
    over_both(|protocol| {
        for mode in modes {
            println!("in {mode:?}");
            test(protocol, *mode);
        }
    });
}

fn holding_a_listener(protocol: Protocol, mode: DataErrors) -> Script {
    let mut script = Script::with(protocol, mode);
    script.subscribe::<Listener>("a");
    script.open();
    script.asked();
    script.tell::<Listener>("v1", "n1", [good()]);
    script.asked();
    script.changes();
    script
}

fn waiting_for_endpoints(protocol: Protocol, mode: DataErrors) -> Script {
    let mut script = Script::with(protocol, mode);
    script.subscribe::<Endpoints>("a");
    script.open();
    script.asked();
    script
}

fn good() -> (&'static str, Any) {
    ("a", listener("a").rds("r").any())
}

fn bad() -> (&'static str, Any) {
    ("a", listener("a").rds("r").invalid().any())
}

fn deletion(protocol: Protocol, nonce: &str) -> Said {
    Said::without::<Listener>(protocol, "v2", nonce, "a", [])
}

fn reporting(protocol: Protocol, nonce: &str, code: i32) -> Said {
    let said = Said::with_nonce::<Endpoints>(protocol, "v2", nonce, []);
    said.reporting([report("a", code, "because")])
}

fn told(changed: Changed) -> [(Key, Changed); 1] {
    [(Key::of::<Listener>("a"), changed)]
}

fn state(script: &Script) -> ResourceStatus {
    let entry = script.cache().entry(&Key::of::<Listener>("a"));
    entry.unwrap().state()
}
