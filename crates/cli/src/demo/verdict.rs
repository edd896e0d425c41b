//! The verdict on a demo, which gives its exit code. A demo fails if any call failed, or if more
//! calls were lost than a kill explains.

use std::fmt;

use super::runner::Findings;
use crate::load::{Report, Stats};

/// The list of problems; empty if there are none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    wrong: Vec<String>,
}

impl Verdict {
    pub(super) fn new(report: &Report, stats: &Stats, findings: &Findings) -> Self {
        let mut wrong = findings.broken.clone();
        for (code, error) in &report.errors {
            wrong.push(format!(
                "{} failed with {code}: {}",
                calls(error.count),
                error.first
            ));
        }
        if report.lost_in_flight > findings.at_risk {
            wrong.push(format!(
                "{} lost in flight, but at most {} can have been open on a backend that was killed",
                calls(report.lost_in_flight),
                findings.at_risk
            ));
        }
        let on_killed: u64 = findings
            .killed
            .iter()
            .map(|&addr| stats.lost_on(addr))
            .sum();
        if report.lost_in_flight > on_killed {
            let elsewhere = report.lost_in_flight - on_killed;
            wrong.push(format!(
                "{} lost on backends that were not killed",
                calls(elsewhere)
            ));
        }
        Self { wrong }
    }

    pub(super) fn is_good(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            return f
                .write_str("no call failed, and none was lost but on the backend that was killed");
        }
        f.write_str(&self.wrong.join("; "))
    }
}

fn calls(count: u64) -> String {
    if count == 1 {
        "1 call".to_owned()
    } else {
        format!("{count} calls")
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use tonic::Code;

    use super::*;
    use crate::load::Outcome;

    fn judge(outcomes: impl IntoIterator<Item = Outcome>, at_risk: u64) -> String {
        let stats = Stats::new();
        for outcome in outcomes {
            stats.sent();
            stats.ended(outcome, Duration::from_millis(1));
        }
        let findings = Findings {
            at_risk,
            killed: vec![addr(1)],
            broken: Vec::new(),
        };
        Verdict::new(&stats.report(), &stats, &findings).to_string()
    }

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn lost(port: u16) -> Outcome {
        Outcome::LostInFlight {
            server: Some(addr(port)),
        }
    }

    #[test]
    fn calls_open_on_the_killed_backend_may_be_lost() {
        assert_eq!(
            judge([lost(1), lost(1)], 2),
            "no call failed, and none was lost but on the backend that was killed"
        );
    }

    #[test]
    fn more_lost_calls_than_open_ones_are_wrong() {
        assert_eq!(
            judge([lost(1), lost(1)], 1),
            "2 calls lost in flight, but at most 1 can have been open on a backend that was killed"
        );
    }

    #[test]
    fn calls_lost_on_a_backend_that_drained_are_wrong() {
        assert_eq!(
            judge([lost(1), lost(2)], 9),
            "1 call lost on backends that were not killed"
        );
    }

    #[test]
    fn errors_are_wrong() {
        let failed = Outcome::Failed {
            code: Code::Unavailable,
            message: "no route".to_owned(),
        };
        assert_eq!(
            judge([failed], 0),
            "1 call failed with UNAVAILABLE: no route"
        );
    }
}
