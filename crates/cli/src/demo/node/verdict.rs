//! The verdict: a connection may fail only on a backend that was killed and still listed.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::tally::Counts;

/// The damage that was done on purpose, and promises that were broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Connections that failed while a killed backend was listed still.
    pub(super) on_killed: u64,
    /// Connections while no agent ran.
    pub(super) without_agent: u64,
    pub(super) broken: Vec<String>,
}

/// The result. Scripts rely on its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    sent: u64,
    ok: u64,
    failed: u64,
    failed_on_killed_backend: u64,
    ok_without_agent: u64,
    by_backend: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl Verdict {
    pub(super) fn new(counts: Counts, findings: Findings) -> Self {
        let (ok, failed) = (counts.ok(), counts.failed());
        let mut wrong = findings.broken;
        if failed > findings.on_killed {
            let unexplained = failed - findings.on_killed;
            wrong.push(format!(
                "{unexplained} connections failed that had a healthy backend"
            ));
        }
        Self {
            sent: ok + failed,
            ok,
            failed,
            failed_on_killed_backend: findings.on_killed,
            ok_without_agent: findings.without_agent,
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

    fn judge(failed: u64, on_killed: u64) -> Verdict {
        let counts = Counts {
            by_backend: BTreeMap::from([("a1".to_owned(), 7)]),
            failures: BTreeMap::from([("refused".to_owned(), failed)]),
        };
        let findings = Findings {
            on_killed,
            ..Findings::default()
        };
        Verdict::new(counts, findings)
    }

    #[test]
    fn failures_on_a_killed_backend_are_no_fault() {
        let verdict = judge(3, 3);
        assert!(verdict.is_good());
        assert!(
            verdict
                .to_string()
                .starts_with("10 connections sent, 7 ok, 3 failed\n")
        );
    }

    #[test]
    fn other_failures_are() {
        let verdict = judge(3, 1);
        assert_eq!(
            verdict.wrong,
            ["2 connections failed that had a healthy backend"]
        );
    }
}
