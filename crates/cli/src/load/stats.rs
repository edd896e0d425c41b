//! The live counters of a generator.
//!
//! They are shared, because the workers count while the progress line, the demo and the report read.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crowfly::code_name;
use hdrhistogram::Histogram;

use super::{ErrorCount, Latency, Outcome, Report, SessionCounts};

/// The longest latency that the histogram counts. A longer call counts as this.
const MAX_LATENCY_US: u64 = 3_600_000_000;

/// The counters of one generator.
///
/// One lock guards all of them, so that the numbers of a report always add up. The lock costs tens of nanoseconds, and
/// a call tens of microseconds.
#[derive(Debug)]
pub struct Stats {
    started: Instant,
    tally: Mutex<Tally>,
}

#[derive(Debug)]
struct Tally {
    sent: u64,
    ok: u64,
    lost_in_flight: u64,
    lost_on: BTreeMap<SocketAddr, u64>,
    errors: BTreeMap<&'static str, ErrorCount>,
    by_backend: BTreeMap<String, u64>,
    sessions: Option<SessionCounts>,
    /// The latencies in microseconds; `None` only if the histogram's constant bounds were not
    /// valid.
    latency: Option<Histogram<u64>>,
}

impl Stats {
    /// Counters at zero. The elapsed time counts from this call.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            tally: Mutex::new(Tally {
                sent: 0,
                ok: 0,
                lost_in_flight: 0,
                lost_on: BTreeMap::new(),
                errors: BTreeMap::new(),
                by_backend: BTreeMap::new(),
                sessions: None,
                latency: Histogram::new_with_bounds(1, MAX_LATENCY_US, 3).ok(),
            }),
        }
    }

    /// Counters at zero, for calls of this many sessions.
    pub fn with_sessions(count: usize) -> Self {
        let stats = Self::new();
        stats.lock().sessions = Some(SessionCounts {
            unanswered: count,
            ..SessionCounts::default()
        });
        stats
    }

    /// Counts a session whose first call was answered.
    pub fn session_began(&self) {
        if let Some(sessions) = &mut self.lock().sessions {
            sessions.unanswered -= 1;
            sessions.stayed += 1;
        }
    }

    /// Counts that a session was answered by another server than before. `for_the_first_time` is true for its first
    /// move.
    pub fn session_moved(&self, for_the_first_time: bool) {
        if let Some(sessions) = &mut self.lock().sessions {
            sessions.moves += 1;
            if for_the_first_time {
                sessions.stayed -= 1;
                sessions.moved += 1;
            }
        }
    }

    /// Counts a call that is sent.
    pub fn sent(&self) {
        self.lock().sent += 1;
    }

    /// Counts the end of a call.
    pub fn ended(&self, outcome: Outcome, latency: Duration) {
        let mut tally = self.lock();
        match outcome {
            Outcome::Ok { backend } => tally.ok(backend, latency),
            Outcome::LostInFlight { server } => tally.lost(server),
            Outcome::Failed { code, message } => {
                tally
                    .errors
                    .entry(code_name(code))
                    .or_insert(ErrorCount {
                        count: 0,
                        first: message,
                    })
                    .count += 1;
            }
        }
    }

    /// The number of calls that are open now.
    pub fn open(&self) -> u64 {
        let tally = self.lock();
        let failed: u64 = tally.errors.values().map(|error| error.count).sum();
        tally.sent - tally.ok - tally.lost_in_flight - failed
    }

    /// The number of calls that were lost with their connection so far.
    pub fn lost_in_flight(&self) -> u64 {
        self.lock().lost_in_flight
    }

    /// The number of calls that were lost on the server at `addr`, as far as the channel reports
    /// servers.
    pub fn lost_on(&self, addr: SocketAddr) -> u64 {
        self.lock().lost_on.get(&addr).copied().unwrap_or(0)
    }

    /// The report on all calls so far.
    pub fn report(&self) -> Report {
        let tally = self.lock();
        Report {
            sent: tally.sent,
            ok: tally.ok,
            lost_in_flight: tally.lost_in_flight,
            errors: tally.errors.clone(),
            by_backend: tally.by_backend.clone(),
            latency_us: tally.latency.as_ref().and_then(Latency::of),
            sessions: tally.sessions,
            elapsed: self.started.elapsed(),
        }
    }

    /// Takes the lock even if a holder panicked, because the counters are still valid.
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    fn lost(&mut self, server: Option<SocketAddr>) {
        self.lost_in_flight += 1;
        if let Some(server) = server {
            *self.lost_on.entry(server).or_default() += 1;
        }
    }

    fn ok(&mut self, backend: String, latency: Duration) {
        self.ok += 1;
        match self.by_backend.get_mut(&backend) {
            Some(count) => *count += 1,
            None => {
                self.by_backend.insert(backend, 1);
            }
        }
        if let Some(histogram) = &mut self.latency {
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            histogram.saturating_record(micros);
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn calls_lost_in_flight_are_not_errors_and_every_call_is_counted_once() {
        let stats = Stats::new();
        let failed = |message: &str| Outcome::Failed {
            code: Code::Unavailable,
            message: message.to_owned(),
        };
        let ok = Outcome::Ok {
            backend: "b1".to_owned(),
        };
        let server = "127.0.0.1:1".parse().ok();
        for outcome in [
            ok,
            Outcome::LostInFlight { server },
            failed("first"),
            failed("second"),
        ] {
            stats.sent();
            stats.ended(outcome, Duration::from_millis(2));
        }
        stats.sent();

        assert_eq!(stats.open(), 1);
        assert_eq!(stats.report().latency_us.unwrap().p50, 2000);
        assert_eq!(stats.lost_on(server.unwrap()), 1);
        let report = stats.report();
        assert_eq!((report.sent, report.ok, report.lost_in_flight), (5, 1, 1));
        let unavailable = ErrorCount {
            count: 2,
            first: "first".to_owned(),
        };
        assert_eq!(
            report.errors,
            BTreeMap::from([("UNAVAILABLE", unavailable)])
        );
        assert_eq!(report.by_backend, BTreeMap::from([("b1".to_owned(), 1)]));
    }
}
