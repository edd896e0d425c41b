//! The rule of A50: it finds the outliers at the end of an interval, and the ones among them that
//! are ejected.
//!
//! It is a pure function of the calls of one interval, so that tests need neither connections nor time.

use super::EjectionCause;
use crate::{
    FailurePercentageEjection, OutlierDetection, OutlierRule, SpareReason, SuccessRateEjection,
    endpoint::ready::Settled,
};

/// One endpoint at the end of an interval.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Host {
    /// The calls that ended in the interval.
    pub(super) calls: Settled,
    pub(super) is_ejected: bool,
}

/// The verdict on an outlier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Verdict {
    Eject(EjectionCause),
    Spare(OutlierRule, SpareReason),
}

/// The outliers among `hosts`, by their indices, in the order in which they were found. `hosts` are all
/// endpoints of the cluster, because a percentage of them may be ejected.
///
/// Ejected endpoints count for mean, deviation and minimum like others, because calls of sessions may still
/// go to them. They are not ejected again, because that would count them twice.
pub(super) fn judge(
    settings: &OutlierDetection,
    hosts: &[Host],
    rng: &mut fastrand::Rng,
) -> Vec<(usize, Verdict)> {
    let mut round = Round {
        settings,
        hosts,
        ejected: hosts.iter().map(|host| host.is_ejected).collect(),
        count: hosts.iter().filter(|host| host.is_ejected).count(),
        verdicts: Vec::new(),
    };
    if let Some(rule) = &settings.success_rate {
        round.by_success_rate(*rule, rng);
    }
    if let Some(rule) = &settings.failure_percentage {
        round.by_failure_percentage(*rule, rng);
    }
    round.verdicts
}

/// Returns whether any endpoint had enough calls to be judged by one of the rules.
pub(super) fn has_candidates(settings: &OutlierDetection, calls: &[Settled]) -> bool {
    let volumes = [
        settings.success_rate.map(|rule| rule.request_volume),
        settings.failure_percentage.map(|rule| rule.request_volume),
    ];
    let volumes = volumes.into_iter().flatten();
    volumes.min().is_some_and(|volume| {
        let mut calls = calls.iter();
        calls.any(|calls| is_enough(*calls, volume))
    })
}

/// The state of one look at all endpoints.
struct Round<'a> {
    settings: &'a OutlierDetection,
    hosts: &'a [Host],
    /// The endpoints that are ejected by now, and their number.
    ejected: Vec<bool>,
    count: usize,
    verdicts: Vec<(usize, Verdict)>,
}

impl Round<'_> {
    fn by_success_rate(&mut self, rule: SuccessRateEjection, rng: &mut fastrand::Rng) {
        let Some(rates) = self.candidates(rule.request_volume, rule.minimum_hosts) else {
            return;
        };
        let count = rates.len() as f64;
        let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
        let squares = rates.iter().map(|(_, rate)| (rate - mean).powi(2));
        let stdev = (squares.sum::<f64>() / count).sqrt();
        let needed = mean - stdev * (f64::from(rule.stdev_factor) / 1000.0);
        let cause = EjectionCause::SuccessRate { needed };
        for (index, rate) in rates {
            if rate < needed - ROUNDING {
                self.decide(index, cause, rule.enforcement_percentage, rng);
            }
        }
    }

    fn by_failure_percentage(&mut self, rule: FailurePercentageEjection, rng: &mut fastrand::Rng) {
        let Some(rates) = self.candidates(rule.request_volume, rule.minimum_hosts) else {
            return;
        };
        let tolerated = rule.threshold;
        let cause = EjectionCause::FailurePercentage { tolerated };
        for (index, rate) in rates {
            // A50 says "at least" where it describes the field, and "more than" in the algorithm. Every
            // implementation does the latter.
            if 100.0 - rate > f64::from(tolerated) + ROUNDING {
                self.decide(index, cause, rule.enforcement_percentage, rng);
            }
        }
    }

    /// The endpoints with enough calls, each with the percentage of calls that succeeded; `None` if they are
    /// too few.
    fn candidates(&self, volume: u32, minimum_hosts: u32) -> Option<Vec<(usize, f64)>> {
        let hosts = self.hosts.iter().enumerate();
        let candidates = hosts.filter(|(_, host)| is_enough(host.calls, volume));
        let rate = |calls: Settled| 100.0 * calls.succeeded as f64 / total(calls) as f64;
        let rates: Vec<_> = candidates
            .map(|(index, host)| (index, rate(host.calls)))
            .collect();
        (!rates.is_empty() && rates.len() as u64 >= u64::from(minimum_hosts)).then_some(rates)
    }

    /// Decides about an outlier. The limit comes first, as in A50; one endpoint may always be ejected.
    fn decide(
        &mut self,
        index: usize,
        cause: EjectionCause,
        enforcement: u32,
        rng: &mut fastrand::Rng,
    ) {
        if self.ejected[index] {
            return;
        }
        let limit = u64::from(self.settings.max_ejection_percent) * self.hosts.len() as u64;
        let verdict = if self.count > 0 && 100 * self.count as u64 >= limit {
            Verdict::Spare(cause.rule(), SpareReason::MaxEjectionOverflow)
        } else if rng.u32(0..100) >= enforcement {
            Verdict::Spare(cause.rule(), SpareReason::EnforcementPercentage)
        } else {
            self.ejected[index] = true;
            self.count += 1;
            Verdict::Eject(cause)
        };
        self.verdicts.push((index, verdict));
    }
}

/// The error of arithmetic on percentages, which must not make an outlier of an endpoint that is like all
/// others.
const ROUNDING: f64 = 1e-9;

fn total(calls: Settled) -> u64 {
    calls.succeeded + calls.failed
}

/// An endpoint without calls has no success rate, even if a rule asks for no calls.
fn is_enough(calls: Settled, volume: u32) -> bool {
    total(calls) >= u64::from(volume).max(1)
}
