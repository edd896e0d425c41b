//! Tests of every rule of gRFC A6, in simulated time.
//!
//! `Retry` has no I/O and no clock, so each wait is exact and no test waits for it.

use crowfly_model::grpc::route::StatusCodes;
use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// gRFC A6: only the deadline limits the number of such attempts.
#[test]
fn a_call_that_never_left_is_sent_again_until_its_deadline() {
    let start = Instant::now();
    let settings = RetrySettings::default();
    let mut retry = Retry::new(None, &settings, Some(start + Duration::from_secs(10)));
    for second in 0..10 {
        let now = start + Duration::from_secs(second);
        let next = retry.attempt_ended(NEVER_SENT, true, now, 0.5);
        assert_eq!(next, Next::SendAt(now));
    }
    let end = start + Duration::from_secs(10);
    let next = retry.attempt_ended(NEVER_SENT, true, end, 0.5);
    assert_eq!(next, Next::OutOfTime(None));
}

#[test]
fn without_a_deadline_there_is_always_time() {
    let start = Instant::now();
    let settings = RetrySettings::default();
    let mut retry = Retry::new(None, &settings, None);
    for year in 0..100 {
        let now = start + Duration::from_secs(year * 365 * 24 * 60 * 60);
        let next = retry.attempt_ended(NEVER_SENT, true, now, 0.5);
        assert_eq!(next, Next::SendAt(now));
    }
}

/// gRFC A6: a call that the server refused is repeated once. Attempts that never left the client in between do not
/// count.
#[test]
fn a_refused_call_is_sent_again_once() {
    let mut call = Simulated::new(None);
    let again = Next::SendAt(call.now);
    for ended in [NEVER_SENT, REFUSED, NEVER_SENT] {
        assert_eq!(call.ended(ended), again);
    }
    assert_eq!(call.ended(REFUSED), Next::GiveUp(None));
}

#[test]
fn a_refused_call_is_not_sent_after_its_deadline() {
    let now = Instant::now();
    let settings = RetrySettings::default();
    let mut retry = Retry::new(None, &settings, Some(now));
    let next = retry.attempt_ended(REFUSED, true, now, 0.5);
    assert_eq!(next, Next::OutOfTime(None));
}

/// gRFC A6: a call whose request is no longer buffered is committed.
#[test]
fn a_request_that_is_gone_is_not_sent_again() {
    for ended in [NEVER_SENT, REFUSED, status(13), UNPICKED] {
        for policy in [None, Some(policy(3))] {
            let mut call = Simulated::new(policy.as_ref());
            let next = call.retry.attempt_ended(ended, false, call.now, 0.5);
            assert!(matches!(next, Next::GiveUp(_)), "{ended:?}, {policy:?}");
        }
    }
}

/// gRFC A6: a server that may have acted on a request is not asked again, unless a policy says so.
#[test]
fn a_call_that_a_server_may_have_seen_is_not_sent_again() {
    let outcomes = [
        CallOutcome::Cancelled,
        CallOutcome::ConnectionLost,
        CallOutcome::DeadlineExceeded,
        CallOutcome::Invalid,
        CallOutcome::Status(14),
    ];
    for outcome in outcomes {
        let mut call = Simulated::new(None);
        assert_eq!(call.ended(of(outcome)), Next::GiveUp(None), "{outcome:?}");
    }
}

/// S5-07: the number of attempts and the codes are those of the policy (gRFC A6, A44).
#[test]
fn a_policy_repeats_its_codes_so_many_times() {
    let policy = policy(3);
    for ended in [
        status(14),
        status(13),
        UNPICKED,
        of(CallOutcome::ConnectionLost),
    ] {
        let mut call = Simulated::new(Some(&policy));
        assert!(matches!(call.ended(ended), Next::SendAt(_)), "{ended:?}");
        assert_eq!(call.retry.previous_attempts(), 1);
        assert!(matches!(call.ended(ended), Next::SendAt(_)), "{ended:?}");
        assert_eq!(call.retry.previous_attempts(), 2);
        let note = call.gives_up(ended);
        assert_eq!(
            note, "after 3 attempts; the retry policy allows 3",
            "{ended:?}"
        );
    }
}

/// gRFC A6: all other codes are fatal, at any attempt.
#[test]
fn a_code_that_is_not_listed_ends_the_call() {
    let policy = policy(3);
    for code in [0, 1, 2, 3, 4, 5, 8, 16, 17, -1] {
        let mut call = Simulated::new(Some(&policy));
        assert_eq!(call.ended(status(code)), Next::GiveUp(None), "{code}");
        let mut call = Simulated::new(Some(&policy));
        call.ended(status(14));
        assert_eq!(
            call.gives_up(status(code)),
            "after 2 attempts; the retry policy does not list this status"
        );
    }
}

/// gRFC A6: a drop fails the call at once. The call's own deadline, its caller, and a request that HTTP/2 cannot carry
/// also do, even if a policy lists their codes.
#[test]
fn a_policy_does_not_repeat_what_ends_the_call_itself() {
    let all = RetryPolicy {
        max_attempts: 5,
        ..RetryPolicy::on((0..17).collect())
    };
    let dropped = Ended {
        how: How::Dropped,
        pushback: None,
    };
    let fatal = [
        of(CallOutcome::Cancelled),
        of(CallOutcome::DeadlineExceeded),
        of(CallOutcome::Invalid),
    ];
    for ended in fatal.into_iter().chain([dropped]) {
        let mut call = Simulated::new(Some(&all));
        assert_eq!(call.ended(ended), Next::GiveUp(None), "{ended:?}");
        let mut call = Simulated::new(Some(&all));
        call.ended(status(14));
        let note = call.gives_up(ended);
        assert!(note.starts_with("after 2 attempts"), "{note}");
    }
    // The status of a server is another matter.
    let mut call = Simulated::new(Some(&all));
    assert!(matches!(call.ended(status(4)), Next::SendAt(_)));
}

/// gRFC A6: transparent retries count neither as attempts nor for the throttle.
#[test]
fn transparent_retries_do_not_count() {
    let policy = policy(2);
    let settings = throttled(2);
    let mut call = Simulated::with(Some(&policy), &settings);
    let again = Next::SendAt(call.now);
    for ended in [NEVER_SENT, REFUSED, NEVER_SENT] {
        assert_eq!(call.ended(ended), again);
        assert_eq!(call.retry.previous_attempts(), 0);
    }
    // The second refusal is for the policy, and the throttle counts it: 1 token of 2 is left.
    let note = call.gives_up(REFUSED);
    assert_eq!(
        note,
        "after 1 attempt; retries are throttled, because too many calls fail"
    );
}

/// gRFC A6: intervals double up to the longest, with a jitter of plus or minus 0.2.
#[test]
fn intervals_double() {
    let policy = RetryPolicy {
        max_attempts: 5,
        base_interval: Duration::from_millis(100),
        max_interval: Duration::from_millis(300),
        ..RetryPolicy::on([14].into_iter().collect())
    };
    for (random, expected) in [
        (0.0, [80, 160, 240, 240]),
        (0.5, [100, 200, 300, 300]),
        (1.0, [120, 240, 360, 360]),
    ] {
        let mut call = Simulated::new(Some(&policy));
        for millis in expected {
            let next = call.retry.attempt_ended(status(14), true, call.now, random);
            assert_eq!(next, Next::SendAt(call.now + Duration::from_millis(millis)));
        }
    }
}

/// gRFC A6: the server's delay is kept exactly, and the backoff starts again after it.
#[test]
fn a_server_can_ask_for_a_delay() {
    let policy = RetryPolicy {
        max_attempts: 5,
        base_interval: Duration::from_millis(100),
        max_interval: Duration::from_secs(10),
        ..RetryPolicy::on([14].into_iter().collect())
    };
    let mut call = Simulated::new(Some(&policy));
    let second = Pushback::After(Duration::from_secs(1));
    let ends = [None, None, Some(second), None];
    let waits = [100, 200, 1000, 100];
    for (pushback, millis) in ends.into_iter().zip(waits) {
        let how = How::Outcome(CallOutcome::Status(14));
        let next = call.ended(Ended { how, pushback });
        assert_eq!(next, Next::SendAt(call.now + Duration::from_millis(millis)));
    }
    // gRFC A6: the number of attempts counts more than the server's word.
    let how = How::Outcome(CallOutcome::Status(14));
    let note = call.gives_up(Ended {
        how,
        pushback: Some(second),
    });
    assert_eq!(note, "after 5 attempts; the retry policy allows 5");
}

/// gRFC A6: a server can forbid a retry, but not ask for one of a code that is not listed.
#[test]
fn a_server_can_forbid_a_retry() {
    let policy = policy(3);
    let mut call = Simulated::new(Some(&policy));
    assert_eq!(
        call.gives_up(pushed(14, Pushback::Never)),
        "after 1 attempt; the server asked for no retry"
    );
    let mut call = Simulated::new(Some(&policy));
    let soon = Pushback::After(Duration::ZERO);
    assert_eq!(call.ended(pushed(5, soon)), Next::GiveUp(None));
}

/// gRFC A6: the value is a signed integer of 32 bits. Anything else asks for no retry.
#[test]
fn values_of_pushback() {
    let of = |values: &[&'static [u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PUSHBACK, HeaderValue::from_bytes(value).unwrap());
        }
        Pushback::of(&headers)
    };
    let after = |millis| Some(Pushback::After(Duration::from_millis(millis)));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[b"0"]), after(0));
    assert_eq!(of(&[b"1000"]), after(1000));
    assert_eq!(of(&[b"2147483647"]), after(2_147_483_647));
    let never: [&[&'static [u8]]; 8] = [
        &[b"-1"],
        &[b"-2147483648"],
        &[b"2147483648"],
        &[b""],
        &[b"xxx"],
        &[b"1.5"],
        &[b"\xff"],
        &[b"100", b"10"],
    ];
    for values in never {
        assert_eq!(of(values), Some(Pushback::Never), "{values:?}");
    }
}

/// gRFC A6: failures of listed codes and refusals of retries empty the bucket; no other failure does.
#[test]
fn failures_that_the_throttle_counts() {
    let policy = policy(3);
    let never = |code| pushed(code, Pushback::Never);
    let cases = [
        (Some(&policy), status(14), true),
        (Some(&policy), UNPICKED, true),
        (Some(&policy), of(CallOutcome::ConnectionLost), true),
        (Some(&policy), never(14), true),
        (Some(&policy), never(5), true),
        (None, never(5), true),
        (Some(&policy), status(5), false),
        (Some(&policy), of(CallOutcome::DeadlineExceeded), false),
        (Some(&policy), of(CallOutcome::Cancelled), false),
        (None, status(14), false),
    ];
    for (policy, ended, counts) in cases {
        let settings = throttled(1000);
        Simulated::with(policy, &settings).ended(ended);
        let taken = 1_000_000 - settings.throttle.unwrap().tokens();
        assert_eq!(
            taken,
            if counts { 1000 } else { 0 },
            "{policy:?}, {ended:?}"
        );
    }
}

/// gRFC A6: a failure counts even if the call could not be repeated anyway.
#[test]
fn the_throttle_counts_calls_that_are_not_repeated() {
    let policy = policy(3);
    let settings = throttled(1000);
    let mut call = Simulated::with(Some(&policy), &settings);
    call.retry.attempt_ended(status(14), false, call.now, 0.5);
    for _ in 0..3 {
        call.ended(status(14));
    }
    assert_eq!(settings.throttle.unwrap().tokens(), 996_000);
}

/// gRFC A6: a program can turn policies off. Transparent retries are made all the same.
#[test]
fn policies_can_be_off() {
    let policy = policy(3);
    let settings = RetrySettings {
        policies: false,
        ..RetrySettings::default()
    };
    let mut call = Simulated::with(Some(&policy), &settings);
    assert_eq!(call.ended(NEVER_SENT), Next::SendAt(call.now));
    assert_eq!(call.ended(REFUSED), Next::SendAt(call.now));
    assert_eq!(call.ended(status(14)), Next::GiveUp(None));
}

/// gRFC A6: the deadline covers all attempts. A backoff that would go past it is not begun.
#[test]
fn there_is_no_attempt_after_the_deadline() {
    let policy = policy(3);
    let now = Instant::now();
    for (millis, in_time) in [(25, false), (26, true)] {
        let settings = RetrySettings::default();
        let deadline = now + Duration::from_millis(millis);
        let mut retry = Retry::new(Some(&policy), &settings, Some(deadline));
        let next = retry.attempt_ended(status(14), true, now, 0.5);
        let expected = match in_time {
            true => Next::SendAt(now + Duration::from_millis(25)),
            false => Next::OutOfTime(None),
        };
        assert_eq!(next, expected);
    }
    let settings = RetrySettings::default();
    let deadline = now + Duration::from_millis(40);
    let mut retry = Retry::new(Some(&policy), &settings, Some(deadline));
    retry.attempt_ended(status(14), true, now, 0.5);
    let next = retry.attempt_ended(status(14), true, now, 0.5);
    let Next::OutOfTime(Some(note)) = next else {
        panic!("{next:?}");
    };
    assert_eq!(note.to_string(), "after 2 attempts");
}

/// The longest interval that a resource can set does not overflow the clock.
#[test]
fn intervals_have_no_overflow() {
    let policy = RetryPolicy {
        max_attempts: u32::MAX,
        base_interval: Duration::MAX,
        max_interval: Duration::MAX,
        ..RetryPolicy::on([14].into_iter().collect())
    };
    let mut call = Simulated::new(Some(&policy));
    for _ in 0..100 {
        let next = call.retry.attempt_ended(status(14), true, call.now, 1.0);
        assert!(matches!(next, Next::SendAt(at) if at > call.now));
    }
}

proptest! {
    /// gRFC A6: no sequence of ends makes a call break the rules. A call has no more attempts than its policy allows,
    /// none after its deadline, and none once its request is gone. Each wait is within the bounds of the backoff, or
    /// exactly as long as the server says.
    #[test]
    fn any_sequence_of_ends_keeps_the_rules(
        max_attempts in 2..=5_u32,
        base in 1..1000_u64,
        stretch in 1..20_u64,
        deadline in proptest::option::of(0..5000_u64),
        tokens in proptest::option::of(1..20_u32),
        ends in proptest::collection::vec((ends(), proptest::bool::weighted(0.9), 0.0..=1.0), 1..60),
    ) {
        let policy = RetryPolicy {
            max_attempts,
            base_interval: Duration::from_millis(base),
            max_interval: Duration::from_millis(base * stretch),
            ..policy(2)
        };
        let settings = tokens.map_or_else(RetrySettings::default, throttled);
        let start = Instant::now();
        let deadline = deadline.map(|millis| start + Duration::from_millis(millis));
        let mut retry = Retry::new(Some(&policy), &settings, deadline);
        let (mut now, mut retries, mut refusals) = (start, 0, 0);
        for (ended, can_repeat, random) in ends {
            let before = retry.previous_attempts();
            let Next::SendAt(at) = retry.attempt_ended(ended, can_repeat, now, random) else {
                break;
            };
            prop_assert!(can_repeat && at >= now && deadline.is_none_or(|deadline| at < deadline));
            if retry.previous_attempts() == before {
                refusals += u32::from(ended == REFUSED);
                prop_assert!(at == now && (ended == NEVER_SENT || ended == REFUSED));
            } else {
                retries += 1;
                let (least, most) = match ended.pushback {
                    Some(Pushback::After(time)) => (time, time),
                    None => (policy.base_interval.mul_f64(0.799), policy.max_interval.mul_f64(1.201)),
                    Some(Pushback::Never) => panic!("the server asked for no retry"),
                };
                prop_assert!((least..=most).contains(&(at - now)), "{:?}", at - now);
            }
            now = at;
        }
        prop_assert!(retries < max_attempts && refusals <= 1);
        prop_assert!(retry.previous_attempts() <= max_attempts);
    }
}

/// A call in simulated time.
struct Simulated<'a> {
    retry: Retry<'a>,
    now: Instant,
}

impl<'a> Simulated<'a> {
    fn new(policy: Option<&'a RetryPolicy>) -> Self {
        static PLAIN: RetrySettings = RetrySettings {
            policies: true,
            buffer: 0,
            throttle: None,
        };
        Self::with(policy, &PLAIN)
    }

    fn with(policy: Option<&'a RetryPolicy>, settings: &'a RetrySettings) -> Self {
        Self {
            retry: Retry::new(policy, settings, None),
            now: Instant::now(),
        }
    }

    /// An attempt ended, and its request is still there.
    fn ended(&mut self, ended: Ended) -> Next {
        self.retry.attempt_ended(ended, true, self.now, 0.5)
    }

    /// The note with which the call ends after such an attempt.
    fn gives_up(&mut self, ended: Ended) -> String {
        match self.ended(ended) {
            Next::GiveUp(Some(note)) => note.to_string(),
            next => panic!("expected the end of the call, got {next:?}"),
        }
    }
}

fn policy(max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        ..RetryPolicy::on(StatusCodes::from_iter([13, 14]))
    }
}

fn throttled(max_tokens: u32) -> RetrySettings {
    let throttle = RetryThrottle::new(max_tokens, 0.1).unwrap();
    RetrySettings {
        throttle: Some(Arc::new(throttle)),
        ..RetrySettings::default()
    }
}

const fn of(outcome: CallOutcome) -> Ended {
    Ended {
        how: How::Outcome(outcome),
        pushback: None,
    }
}

const fn status(code: i32) -> Ended {
    of(CallOutcome::Status(code))
}

fn pushed(code: i32, pushback: Pushback) -> Ended {
    Ended {
        pushback: Some(pushback),
        ..status(code)
    }
}

fn ends() -> impl Strategy<Value = Ended> {
    let pushback = prop_oneof![
        3 => Just(None),
        1 => (0..100_u64).prop_map(|ms| Some(Pushback::After(Duration::from_millis(ms)))),
        1 => Just(Some(Pushback::Never)),
    ];
    let status = (0..17_i32, pushback).prop_map(|(code, pushback)| Ended {
        pushback,
        ..status(code)
    });
    prop_oneof![
        2 => Just(NEVER_SENT),
        2 => Just(REFUSED),
        2 => Just(UNPICKED),
        2 => Just(of(CallOutcome::ConnectionLost)),
        4 => Just(self::status(14)),
        2 => status,
    ]
}

const NEVER_SENT: Ended = of(CallOutcome::NeverSent);
const REFUSED: Ended = of(CallOutcome::Refused);
const UNPICKED: Ended = Ended {
    how: How::Unpicked,
    pushback: None,
};
