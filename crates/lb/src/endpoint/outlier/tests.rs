//! Tests of the rule of A50 alone, on given calls. They need no connections and no time, because
//! the rule is a pure function.

use std::time::Duration;

use super::{rule::*, *};
use crate::{FailurePercentageEjection, SuccessRateEjection};

/// A50: `mean - stdev * factor / 1000`. The rates 100, 100, 100, 100 and 0 have a mean of 80 and a
/// standard deviation of 40.
#[test]
fn success_rate_is_compared_with_mean_and_deviation() {
    let hosts = hosts(&[(9, 0), (9, 0), (9, 0), (9, 0), (0, 9)]);
    for (factor, needed) in [(1000, 40.0), (1999, 0.04)] {
        let cause = EjectionCause::SuccessRate { needed };
        let found = judge(&by_success_rate(factor), &hosts, &mut rng());
        let [(4, Verdict::Eject(EjectionCause::SuccessRate { needed: found }))] = found[..] else {
            panic!("expected {cause:?}, got {found:?}");
        };
        assert!((found - needed).abs() < 1e-9, "{found}");
    }
    assert_eq!(judge(&by_success_rate(2000), &hosts, &mut rng()), []);
}

/// Equal endpoints are no outliers, although the mean of their rates is rounded.
#[test]
fn equal_endpoints_are_no_outliers() {
    for succeeded in 0..=97 {
        for count in 1..20 {
            let hosts = hosts(&vec![(succeeded, 97 - succeeded); count]);
            assert_eq!(judge(&by_success_rate(0), &hosts, &mut rng()), []);
        }
    }
}

/// A50: the algorithm ejects if the failure percentage is greater than the threshold.
#[test]
fn as_many_failures_as_the_threshold_are_tolerated() {
    let hosts = hosts(&[(15, 85), (14, 86), (0, 3), (0, 0)]);
    let mut settings = by_failure_percentage(85);
    let verdict = Verdict::Eject(EjectionCause::FailurePercentage { tolerated: 85 });
    assert_eq!(
        judge(&settings, &hosts, &mut rng()),
        [(1, verdict), (2, verdict)]
    );
    settings = by_failure_percentage(100);
    assert_eq!(judge(&settings, &hosts, &mut rng()), []);
}

/// A50: endpoints with too few calls are neither judged nor counted for the minimum of endpoints.
#[test]
fn an_endpoint_needs_calls_to_be_judged() {
    let mut settings = by_failure_percentage(50);
    let rule = settings.failure_percentage.as_mut().unwrap();
    (rule.request_volume, rule.minimum_hosts) = (10, 2);
    let enough = [(0, 10), (10, 0), (0, 9)];
    let too_few = [(0, 10), (9, 0), (0, 9)];
    assert_eq!(judge(&settings, &hosts(&enough), &mut rng()).len(), 1);
    assert_eq!(judge(&settings, &hosts(&too_few), &mut rng()), []);
}

/// A50: the limit is checked before each ejection, and one endpoint may always be ejected. A91: the others
/// are counted as not enforced.
#[test]
fn the_limit_is_checked_before_each_ejection() {
    let all_bad = hosts(&[(0, 1); 10]);
    let ejected = |percent| {
        let settings = OutlierDetection {
            max_ejection_percent: percent,
            ..by_failure_percentage(0)
        };
        let verdicts = judge(&settings, &all_bad, &mut rng());
        assert_eq!(verdicts.len(), 10);
        let spared = Verdict::Spare(
            OutlierRule::FailurePercentage,
            SpareReason::MaxEjectionOverflow,
        );
        let ejected = verdicts.iter().filter(|(_, verdict)| *verdict != spared);
        ejected.count()
    };
    assert_eq!(
        [0, 1, 10, 11, 29, 30, 100].map(ejected),
        [1, 1, 1, 2, 3, 3, 10]
    );
}

/// A50: a random number from 0 to 99 must be less than the enforcement percentage. C-core draws from 1.
#[test]
fn a_share_of_the_outliers_is_ejected() {
    let mut settings = by_failure_percentage(0);
    let one_bad = hosts(&[(0, 1), (1, 0)]);
    let mut rng = rng();
    for percent in [0, 1, 50, 100] {
        let rule = settings.failure_percentage.as_mut().unwrap();
        rule.enforcement_percentage = percent;
        let mut ejected = 0;
        for _ in 0..10_000 {
            match judge(&settings, &one_bad, &mut rng)[..] {
                [(0, Verdict::Eject(_))] => ejected += 1,
                [(0, Verdict::Spare(_, SpareReason::EnforcementPercentage))] => {}
                ref other => panic!("{other:?}"),
            }
        }
        let expected = 100 * i32::try_from(percent).unwrap();
        let is_certain = percent == 0 || percent == 100;
        let tolerance = if is_certain { 0 } else { 250 };
        assert!(
            (ejected - expected).abs() <= tolerance,
            "{percent}: {ejected}"
        );
        assert!(percent != 1 || ejected > 0);
    }
}

/// An endpoint that one rule ejects is not ejected by the other, and one that is ejected is left alone.
#[test]
fn no_endpoint_is_ejected_twice() {
    let settings = OutlierDetection {
        success_rate: by_success_rate(1000).success_rate,
        ..by_failure_percentage(50)
    };
    let mut hosts = hosts(&[(0, 9), (9, 0), (9, 0)]);
    let verdicts = judge(&settings, &hosts, &mut rng());
    assert!(matches!(
        verdicts[..],
        [(0, Verdict::Eject(EjectionCause::SuccessRate { .. }))]
    ));
    hosts[0].is_ejected = true;
    assert_eq!(judge(&settings, &hosts, &mut rng()), []);
}

/// A50: each ejection in a row is longer by the base time, up to the longest.
#[test]
fn ejection_times_grow_up_to_a_limit() {
    let seconds = |base, max, count| {
        let settings = OutlierDetection {
            base_ejection_time: Duration::from_secs(base),
            max_ejection_time: Duration::from_secs(max),
            ..by_failure_percentage(0)
        };
        settings.ejection_time(count).as_secs()
    };
    assert_eq!(
        [1, 2, 3, 4].map(|count| seconds(30, 100, count)),
        [30, 60, 90, 100]
    );
    assert_eq!([1, 2].map(|count| seconds(30, 10, count)), [30, 30]);
    assert_eq!(seconds(u64::MAX, 0, u32::MAX), u64::MAX);
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(7)
}

/// Hosts with calls `(succeeded, failed)`.
fn hosts(calls: &[(u64, u64)]) -> Vec<Host> {
    let hosts = calls.iter().map(|&(succeeded, failed)| Host {
        calls: Settled { succeeded, failed },
        is_ejected: false,
    });
    hosts.collect()
}

/// Every outlier is ejected by its success rate, however few calls it has.
fn by_success_rate(stdev_factor: u32) -> OutlierDetection {
    OutlierDetection {
        success_rate: Some(SuccessRateEjection {
            stdev_factor,
            enforcement_percentage: 100,
            minimum_hosts: 1,
            request_volume: 1,
        }),
        failure_percentage: None,
        ..by_failure_percentage(0)
    }
}

/// Every outlier is ejected by its failures, however few calls it has.
fn by_failure_percentage(threshold: u32) -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 100,
        success_rate: None,
        failure_percentage: Some(FailurePercentageEjection {
            threshold,
            enforcement_percentage: 100,
            minimum_hosts: 1,
            request_volume: 1,
        }),
    }
}
