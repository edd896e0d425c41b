//! The verdict: a connection may fail only on a backend that was killed, between its death and the switch.
//!
//! A client that is refused does not learn by whom. The kernel does: it counts failures by backend. So
//! the times are the client's, and the addresses are the kernel's.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::tally::Counts;
use crate::peer::Failure;

/// The damage that was done on purpose, and promises that were broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// The death of the backend, and the time from which no connection was sent to it.
    pub(super) outage: Option<Outage>,
    /// Connections while no agent ran.
    pub(super) without_agent: u64,
    /// Connections while no control plane ran.
    pub(super) without_control: u64,
    /// Connections that were reported to the control planes.
    pub(super) reported: u64,
    pub(super) broken: Vec<String>,
}

/// The time in which a killed backend still got connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// The times just before and after the kill, and when it was out of the maps for sure.
    pub(super) killing: u64,
    pub(super) killed: u64,
    pub(super) switched: u64,
}

impl Outage {
    /// True if the connection was sent to backends while the dead one was among them.
    pub(super) fn explains(&self, failure: &Failure) -> bool {
        failure.ended >= self.killing && failure.began <= self.switched
    }

    /// True if the connection was open, or about to be, when the backend died. The kernel counts it as
    /// failed only if it was not open yet.
    pub(super) fn broke(&self, failure: &Failure) -> bool {
        failure.ended >= self.killing && failure.began <= self.killed
    }
}

/// The result. Scripts rely on its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    sent: u64,
    ok: u64,
    failed: u64,
    failed_on_killed_backend: u64,
    ok_without_agent: u64,
    ok_without_control_plane: u64,
    reported: u64,
    by_backend: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl Verdict {
    pub(super) fn new(counts: Counts, findings: Findings) -> Self {
        let (ok, failed) = (counts.ok(), counts.failed());
        let explains = |it: &&Failure| findings.outage.is_some_and(|outage| outage.explains(it));
        let explained = counts.failed.iter().filter(explains).count() as u64;
        let mut wrong = findings.broken;
        if failed > explained {
            let unexplained = failed - explained;
            wrong.push(format!(
                "{unexplained} connections failed that had a healthy backend"
            ));
        }
        Self {
            sent: ok + failed,
            ok,
            failed,
            failed_on_killed_backend: explained,
            ok_without_agent: findings.without_agent,
            ok_without_control_plane: findings.without_control,
            reported: findings.reported,
            by_backend: counts.by_backend,
            errors: counts.failures,
            wrong,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.wrong.is_empty()
    }

    pub(super) fn to_json(&self) -> String {
        // The value holds text and numbers only, so JSON can express it.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent, ok, failed, ..
        } = self;
        writeln!(f, "{sent} connections sent, {ok} ok, {failed} failed")?;
        if !self.is_good() {
            return f.write_str(&self.wrong.join("; "));
        }
        f.write_str("no connection failed but on the backend that was killed, while it was listed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTAGE: Outage = Outage {
        killing: 100,
        killed: 110,
        switched: 200,
    };

    fn failure((began, ended): (u64, u64)) -> Failure {
        Failure { began, ended }
    }

    fn judge(failures: &[(u64, u64)]) -> Verdict {
        let counts = Counts {
            by_backend: BTreeMap::from([("a1".to_owned(), 7)]),
            failures: BTreeMap::from([("refused".to_owned(), failures.len() as u64)]),
            failed: failures.iter().copied().map(failure).collect(),
        };
        let findings = Findings {
            outage: Some(OUTAGE),
            ..Findings::default()
        };
        Verdict::new(counts, findings)
    }

    #[test]
    fn failures_between_the_kill_and_the_switch_are_no_fault() {
        let verdict = judge(&[(90, 105), (150, 151), (199, 230)]);
        assert!(verdict.is_good());
        assert!(
            verdict
                .to_string()
                .starts_with("10 connections sent, 7 ok, 3 failed\n")
        );
        assert!(OUTAGE.broke(&failure((90, 105))));
        assert!(!OUTAGE.broke(&failure((150, 151))));
    }

    #[test]
    fn failures_before_and_after_are() {
        let verdict = judge(&[(80, 99), (150, 151), (201, 202)]);
        assert_eq!(
            verdict.wrong,
            ["2 connections failed that had a healthy backend"]
        );
    }
}
