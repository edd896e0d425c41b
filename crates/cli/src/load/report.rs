//! The report on a load: JSON for scripts, text for people.
//!
//! The report is a value apart from the live counters, because the demo also reads it while calls
//! go on.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde::Serialize;

/// The numbers of calls by result. Scripts rely on its JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The number of calls started.
    pub sent: u64,
    /// The number of calls answered with OK.
    pub ok: u64,
    /// The number of calls whose connection broke after they were sent; not among the errors.
    pub lost_in_flight: u64,
    /// All other failures, by the name of their status code.
    pub errors: BTreeMap<&'static str, ErrorCount>,
    /// Calls answered with OK, by the name of the server.
    pub by_backend: BTreeMap<String, u64>,
    /// The latency of calls answered with OK, from sending to the whole response; `None` if there
    /// was none.
    pub latency_us: Option<Latency>,
    /// The sessions that the calls belonged to; `None` if they belonged to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionCounts>,
    /// The time since the generator started.
    #[serde(skip)]
    pub elapsed: Duration,
}

/// Failures with one status code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    /// The number of failures.
    pub count: u64,
    /// The message of the first failure.
    pub first: String,
}

/// Sessions, by the servers that answered their calls. Each session is in one of the three groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionCounts {
    /// All calls that were answered were answered by one server.
    pub stayed: usize,
    /// A call was answered by another server than the one before.
    pub moved: usize,
    /// No call was answered.
    pub unanswered: usize,
    /// The number of moves, of all sessions.
    pub moves: u64,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The slowest call.
    pub max: u64,
}

impl Latency {
    /// The percentiles of the recorded latencies, if there are any.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            p50: histogram.value_at_quantile(0.50),
            p90: histogram.value_at_quantile(0.90),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        })
    }
}

impl Report {
    /// The report as one line of JSON.
    pub fn to_json(&self) -> String {
        // The value holds text and numbers only, so JSON can express it.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// True if at least one call was sent, and every call was answered with OK.
    pub fn is_good(&self) -> bool {
        self.ok > 0 && self.failed() == 0 && self.lost_in_flight == 0
    }

    /// The number of calls that ended in an error, over all codes.
    pub fn failed(&self) -> u64 {
        self.errors.values().map(|error| error.count).sum()
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let rate = if seconds > 0.0 {
            self.sent as f64 / seconds
        } else {
            0.0
        };
        write!(
            f,
            "sent {}  ok {}  lost in flight {}  errors {}  ({seconds:.1} s, {rate:.0}/s)",
            self.sent,
            self.ok,
            self.lost_in_flight,
            self.failed()
        )?;
        if let Some(Latency { p50, p90, p99, max }) = self.latency_us {
            let [p50, p90, p99, max] = [p50, p90, p99, max].map(millis);
            write!(f, "\nlatency  p50 {p50}  p90 {p90}  p99 {p99}  max {max}")?;
        }
        if let Some(sessions) = self.sessions {
            let SessionCounts {
                stayed,
                moved,
                unanswered,
                moves,
            } = sessions;
            write!(
                f,
                "\nsessions  stayed {stayed}  moved {moved} ({moves} moves)  unanswered {unanswered}"
            )?;
        }
        let width = self.by_backend.keys().map(String::len).max().unwrap_or(0);
        for (name, count) in &self.by_backend {
            let share = 100.0 * *count as f64 / self.ok.max(1) as f64;
            write!(f, "\n  {name:width$}  {count:>9}  {share:5.1} %")?;
        }
        for (code, ErrorCount { count, first }) in &self.errors {
            write!(f, "\n  {code}  {count}  first: {first}")?;
        }
        Ok(())
    }
}

fn millis(micros: u64) -> String {
    format!("{:.2} ms", micros as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let unavailable = ErrorCount {
            count: 1,
            first: "no healthy endpoint".to_owned(),
        };
        Report {
            sent: 12,
            ok: 10,
            lost_in_flight: 1,
            errors: BTreeMap::from([("UNAVAILABLE", unavailable)]),
            by_backend: BTreeMap::from([("b1".to_owned(), 4), ("b10".to_owned(), 6)]),
            latency_us: Some(Latency {
                p50: 1000,
                p90: 2000,
                p99: 3000,
                max: 4500,
            }),
            sessions: None,
            elapsed: Duration::from_secs(2),
        }
    }

    #[test]
    fn json_has_exactly_the_promised_keys() {
        let expected = concat!(
            r#"{"sent":12,"ok":10,"lost_in_flight":1,"#,
            r#""errors":{"UNAVAILABLE":{"count":1,"first":"no healthy endpoint"}},"#,
            r#""by_backend":{"b1":4,"b10":6},"#,
            r#""latency_us":{"p50":1000,"p90":2000,"p99":3000,"max":4500}}"#
        );
        assert_eq!(report().to_json(), expected);
    }

    #[test]
    fn sessions_are_reported_if_there_are_any() {
        let report = Report {
            sessions: Some(SessionCounts {
                stayed: 7,
                moved: 2,
                unanswered: 1,
                moves: 3,
            }),
            ..report()
        };
        let json = r#""sessions":{"stayed":7,"moved":2,"unanswered":1,"moves":3}}"#;
        assert!(report.to_json().ends_with(json), "{}", report.to_json());
        let text = "\nsessions  stayed 7  moved 2 (3 moves)  unanswered 1\n";
        assert!(report.to_string().contains(text), "{report}");
    }

    #[test]
    fn without_a_success_there_is_no_latency() {
        let report = Report {
            ok: 0,
            by_backend: BTreeMap::new(),
            latency_us: Latency::of(&Histogram::new(3).unwrap()),
            ..report()
        };
        assert!(!report.to_string().contains("latency"), "{report}");
        assert!(report.to_json().ends_with(r#""latency_us":null}"#));
    }

    #[test]
    fn text_is_for_people() {
        let expected = "\
sent 12  ok 10  lost in flight 1  errors 1  (2.0 s, 6/s)
latency  p50 1.00 ms  p90 2.00 ms  p99 3.00 ms  max 4.50 ms
  b1           4   40.0 %
  b10          6   60.0 %
  UNAVAILABLE  1  first: no healthy endpoint";
        assert_eq!(report().to_string(), expected);
    }
}
