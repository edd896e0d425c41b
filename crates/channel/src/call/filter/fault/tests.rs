//! The rules of gRFC A33, with numbers that a test chooses, because the share of calls is drawn at random.

use http::HeaderValue;

use super::*;

const ALL: FaultShare = FaultShare {
    numerator: 100,
    denominator: 100,
};

fn delayed(by: DelayBy, share: FaultShare) -> FaultConfig {
    FaultConfig {
        delay: Some(FaultDelay { by, share }),
        ..FaultConfig::default()
    }
}

fn aborted(with: AbortWith, share: FaultShare) -> FaultConfig {
    FaultConfig {
        abort: Some(FaultAbort { with, share }),
        ..FaultConfig::default()
    }
}

fn headers(values: &[(&'static str, &'static str)]) -> HeaderMap {
    let values = values.iter();
    values
        .map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        })
        .collect()
}

/// The number that a call draws to be in this place of `of` places.
fn draw(place: u64, of: u64) -> u64 {
    u64::MAX / of * place + u64::MAX / of / 2
}

/// Decides with the same number for every draw.
fn decide(config: &FaultConfig, headers: &HeaderMap, draw: u64) -> Injection {
    Injection::decide(config, headers, || draw)
}

/// gRFC A33: a share is a numerator of 100, 10,000 or a million.
#[test]
fn a_share_of_calls_gets_the_fault() {
    for denominator in [100, 10_000, 1_000_000] {
        let share = FaultShare {
            numerator: 30,
            denominator,
        };
        let config = aborted(AbortWith::Grpc(14), share);
        for (place, expected) in [(0, true), (29, true), (30, false), (99, false)] {
            let injection = decide(&config, &HeaderMap::new(), draw(place, denominator.into()));
            assert_eq!(
                injection.abort.is_some(),
                expected,
                "{place} of {denominator}"
            );
        }
    }
    let none = FaultShare {
        numerator: 0,
        denominator: 100,
    };
    assert!(decide(&aborted(AbortWith::Grpc(14), none), &HeaderMap::new(), 0).is_none());
    assert!(
        !decide(
            &aborted(AbortWith::Grpc(14), ALL),
            &HeaderMap::new(),
            u64::MAX
        )
        .is_none()
    );
}

/// gRFC A33: every fault has a number of its own, so that a call may get either, both or none.
#[test]
fn faults_are_independent() {
    let half = FaultShare {
        numerator: 50,
        denominator: 100,
    };
    let time = Duration::from_secs(1);
    let config = FaultConfig {
        delay: delayed(DelayBy::Fixed(time), half).delay,
        abort: aborted(AbortWith::Grpc(14), half).abort,
        max_active: None,
    };
    let (hit, miss) = (0, u64::MAX);
    for (numbers, delay, abort) in [
        ([hit, hit], Some(time), Some(Code::Unavailable)),
        ([hit, miss], Some(time), None),
        ([miss, hit], None, Some(Code::Unavailable)),
        ([miss, miss], None, None),
    ] {
        let mut numbers = numbers.into_iter();
        let injection = Injection::decide(&config, &HeaderMap::new(), || numbers.next().unwrap());
        assert_eq!(injection, Injection { delay, abort });
    }
}

/// gRFC A33: an HTTP status becomes the gRPC status of such a response. 200 is UNKNOWN; a gRPC status of OK stays OK.
#[test]
fn the_status_of_an_abort() {
    for (with, expected) in [
        (AbortWith::Http(200), Code::Unknown),
        (AbortWith::Http(400), Code::Internal),
        (AbortWith::Http(401), Code::Unauthenticated),
        (AbortWith::Http(403), Code::PermissionDenied),
        (AbortWith::Http(404), Code::Unimplemented),
        (AbortWith::Http(429), Code::Unavailable),
        (AbortWith::Http(502), Code::Unavailable),
        (AbortWith::Http(503), Code::Unavailable),
        (AbortWith::Http(504), Code::Unavailable),
        (AbortWith::Http(599), Code::Unknown),
        (AbortWith::Grpc(0), Code::Ok),
        (AbortWith::Grpc(16), Code::Unauthenticated),
    ] {
        let injection = decide(&aborted(with, ALL), &HeaderMap::new(), 0);
        assert_eq!(injection.abort, Some(expected), "{with:?}");
    }
}

/// gRFC A33: headers count only if the configuration says so.
#[test]
fn headers_do_not_change_fixed_faults() {
    let asked = headers(&[
        (DELAY, "1"),
        (DELAY_PERCENTAGE, "0"),
        (ABORT_GRPC, "5"),
        (ABORT_PERCENTAGE, "0"),
    ]);
    let time = Duration::from_secs(1);
    let delayed = decide(&delayed(DelayBy::Fixed(time), ALL), &asked, 0);
    assert_eq!(delayed.delay, Some(time));
    let aborted = decide(&aborted(AbortWith::Grpc(14), ALL), &asked, 0);
    assert_eq!(aborted.abort, Some(Code::Unavailable));
    assert!(decide(&FaultConfig::default(), &asked, 0).is_none());
}

/// gRFC A33: a header has the delay in milliseconds. One that is no such number is ignored.
#[test]
fn a_header_sets_the_delay() {
    let config = delayed(DelayBy::Header, ALL);
    let delay = |values: &[_]| decide(&config, &headers(values), 0).delay;
    assert_eq!(delay(&[(DELAY, "53")]), Some(Duration::from_millis(53)));
    for nothing in ["", "soon", "-1", "1.5", "0", "99999999999999999999"] {
        assert_eq!(delay(&[(DELAY, nothing)]), None, "{nothing:?}");
    }
    assert_eq!(delay(&[]), None);
    // Any valid value will do.
    let two = [(DELAY, "soon"), (DELAY, "7")];
    assert_eq!(delay(&two), Some(Duration::from_millis(7)));
}

/// gRFC A33: a header has the status of the abort, as HTTP's or as gRPC's. An invalid one is ignored.
#[test]
fn a_header_sets_the_status() {
    let config = aborted(AbortWith::Header, ALL);
    let abort = |values: &[_]| decide(&config, &headers(values), 0).abort;
    assert_eq!(abort(&[(ABORT_GRPC, "3")]), Some(Code::InvalidArgument));
    assert_eq!(abort(&[(ABORT_GRPC, "0")]), Some(Code::Ok));
    assert_eq!(abort(&[(ABORT_HTTP, "503")]), Some(Code::Unavailable));
    assert_eq!(abort(&[(ABORT_HTTP, "200")]), Some(Code::Unknown));
    let both = [(ABORT_GRPC, "3"), (ABORT_HTTP, "401")];
    assert_eq!(abort(&both), Some(Code::Unauthenticated));
    let bad_http = [(ABORT_GRPC, "3"), (ABORT_HTTP, "20")];
    assert_eq!(abort(&bad_http), Some(Code::InvalidArgument));
    for (name, nothing) in [
        (ABORT_GRPC, "17"),
        (ABORT_GRPC, "-1"),
        (ABORT_GRPC, "UNAVAILABLE"),
        (ABORT_HTTP, "199"),
        (ABORT_HTTP, "600"),
        (ABORT_HTTP, "70000"),
    ] {
        assert_eq!(abort(&[(name, nothing)]), None, "{name}: {nothing}");
    }
    assert_eq!(abort(&[]), None);
}

/// gRFC A33: a header has the numerator of the share, up to the configured one. An invalid one is ignored.
#[test]
fn a_header_lowers_the_share() {
    let share = FaultShare {
        numerator: 50,
        denominator: 100,
    };
    let delays = delayed(DelayBy::Header, share);
    let aborts = aborted(AbortWith::Header, share);
    for (percentage, limit) in [
        ("0", 0),
        ("20", 20),
        ("50", 50),
        ("80", 50),
        ("-1", 50),
        ("many", 50),
    ] {
        let asked = headers(&[
            (DELAY, "10"),
            (DELAY_PERCENTAGE, percentage),
            (ABORT_GRPC, "14"),
            (ABORT_PERCENTAGE, percentage),
        ]);
        for place in 0..100 {
            let number = draw(place, 100);
            let is_delayed = decide(&delays, &asked, number).delay.is_some();
            let is_aborted = decide(&aborts, &asked, number).abort.is_some();
            let expected = place < limit;
            assert_eq!(
                (is_delayed, is_aborted),
                (expected, expected),
                "{percentage}"
            );
        }
    }
}

/// gRFC A33: only as many calls have faults at a time as the configuration allows, over all configurations. A call
/// whose faults are over makes room for another.
#[test]
fn active_faults_are_limited() {
    let active = ActiveFaults(AtomicU32::new(0));
    assert!(active.begin(Some(0)).is_none());
    let one = active.begin(Some(2));
    let two = active.begin(None);
    assert!(one.is_some() && two.is_some());
    assert!(active.begin(Some(2)).is_none());
    assert!(active.begin(Some(3)).is_some());
    drop(one);
    assert!(active.begin(Some(2)).is_some());
    drop(two);
    assert_eq!(active.0.into_inner(), 0);
}

fn fault(config: FaultConfig) -> Fault {
    Fault::new(Arc::new(config), "fault", "virtual host all")
}

/// gRFC A33: a call is delayed first, and then aborted. The status names the filter and the route.
#[tokio::test(start_paused = true)]
async fn a_call_is_delayed_and_then_aborted() {
    let time = Duration::from_secs(5);
    let config = FaultConfig {
        delay: delayed(DelayBy::Fixed(time), ALL).delay,
        ..aborted(AbortWith::Grpc(8), ALL)
    };
    let start = tokio::time::Instant::now();
    let (fault, headers) = (fault(config), HeaderMap::new());
    let injected = fault.inject(&headers, Deadline::default()).await;
    let status = injected.unwrap_err();
    assert_eq!(start.elapsed(), time);
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::ResourceExhausted,
            "Fault injected by filter fault (virtual host all)"
        )
    );
}

/// gRFC A33: a delay is part of the time of a call, so the deadline of the call ends it.
#[tokio::test(start_paused = true)]
async fn a_delay_ends_with_the_deadline() {
    let config = delayed(DelayBy::Fixed(Duration::from_secs(3600)), ALL);
    let fault = fault(config);
    let start = tokio::time::Instant::now();
    let deadline = Deadline::of(&headers(&[("grpc-timeout", "2S")]), start).unwrap();
    let status = fault.inject(&HeaderMap::new(), deadline).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::DeadlineExceeded,
            "the call's 2s ended while waiting for the end of a delay \
             that filter fault (virtual host all) injected"
        )
    );
}
