//! Estimates how many bytes are under way on a path: its bandwidth times its delay.
//!
//! A PING goes out when DATA comes, as in gRPC. The bytes that come before its answer are those that the path carries
//! in one round trip. If they are near the estimate, windows may hold the server back, and the estimate is doubled. The
//! estimate stays if the path carried no more than before, because then bytes only queue.
//!
//! Servers count PINGs that come without need, and reset the count when they have sent DATA since the last. So each
//! PING has DATA before it, and a path that does not change is measured less and less often.

use std::time::{Duration, Instant};

/// The payload of these PINGs, which tells them from those of keepalive.
pub(crate) const PAYLOAD: [u8; 8] = *b"crow bdp";

/// The first delay after a measurement that changed nothing.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay after a measurement that changed nothing.
const LAST_DELAY: Duration = Duration::from_secs(10);
/// The factor by which a path must carry more to count as larger. A smaller one may be chance.
const GAIN: f64 = 1.1;

/// The estimate for one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bdp {
    /// The size that windows should have.
    pub(crate) estimate: u32,
    max: u32,
    /// The highest bandwidth that was measured, in bytes per second.
    bandwidth: f64,
    delay: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No PING is under way. Holds the bytes that came since the last measurement, and the earliest time of the next
    /// one.
    Resting(u64, Option<Instant>),
    /// A PING is under way. Holds the bytes that came since, and the time when the PING was sent.
    Measuring(u64, Instant),
}

impl Bdp {
    pub(crate) fn new(estimate: u32, max: u32) -> Self {
        Self {
            estimate,
            max,
            bandwidth: 0.0,
            delay: FIRST_DELAY,
            state: State::Resting(0, None),
        }
    }

    /// Records that DATA came. True if a PING is to be sent.
    ///
    /// Few bytes cause no PING, because windows do not hold back a server that sends so little.
    pub(crate) fn receive(&mut self, len: usize, now: Instant) -> bool {
        let len = len as u64;
        match &mut self.state {
            State::Measuring(bytes, _) => *bytes += len,
            State::Resting(bytes, not_before) => {
                *bytes += len;
                let is_worth_it = *bytes >= u64::from(self.estimate / 4);
                let is_time = not_before.is_none_or(|at| now >= at);
                if self.estimate < self.max && is_worth_it && is_time {
                    self.state = State::Measuring(0, now);
                    return true;
                }
            }
        }
        false
    }

    /// Handles the answer to a PING.
    pub(crate) fn answered(&mut self, now: Instant) {
        let State::Measuring(bytes, sent) = self.state else {
            return;
        };
        let round_trip = now.saturating_duration_since(sent).as_secs_f64();
        let bandwidth = bytes as f64 / round_trip.max(1e-6);
        if bytes >= u64::from(self.estimate) * 2 / 3 && bandwidth > self.bandwidth * GAIN {
            self.bandwidth = bandwidth;
            let seen = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.estimate = self.estimate.saturating_mul(2).max(seen).min(self.max);
            self.delay = FIRST_DELAY;
            self.state = State::Resting(0, None);
        } else {
            self.state = State::Resting(0, now.checked_add(self.delay));
            self.delay = (self.delay * 3 / 2).min(LAST_DELAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    /// Simulates a server that sends all that windows and path allow, for some round trips, and counts PINGs.
    fn run(bdp: &mut Bdp, path: usize, round_trip: Duration, rounds: u32) -> usize {
        let start = Instant::now();
        let mut pings = 0;
        for round in 0..rounds {
            let now = start + round_trip * round;
            let sent = path.min(bdp.estimate as usize);
            bdp.answered(now);
            // A little of it comes before the PING.
            if bdp.receive(sent / 4 + 1, now) {
                pings += 1;
            }
            bdp.receive(sent - sent / 4, now);
        }
        pings
    }

    #[test]
    fn the_estimate_grows_until_the_path_is_full() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        run(&mut bdp, 5_000_000, Duration::from_millis(20), 100);
        let estimate = bdp.estimate;
        assert!((5_000_000..=8 * MIB).contains(&estimate), "{estimate}");
    }

    #[test]
    fn the_estimate_has_a_limit_and_is_not_measured_beyond() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        run(&mut bdp, usize::MAX, Duration::from_millis(100), 100);
        assert_eq!(bdp.estimate, 16 * MIB);
        assert!(!bdp.receive(100 << 20, Instant::now()));
    }

    #[test]
    fn a_path_that_does_not_change_is_measured_ever_less() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        let pings = run(&mut bdp, 600_000, Duration::from_millis(10), 100 * 60);
        assert_eq!(bdp.estimate, MIB);
        assert!((5..=20).contains(&pings), "{pings} in a minute");
    }

    /// Bytes that wait for a slow reader do not make the path larger.
    #[test]
    fn more_that_comes_no_faster_is_no_larger_path() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        let start = Instant::now();
        for round in 1..=10u32 {
            let sent = start + Duration::from_secs(100 * u64::from(round));
            bdp.receive(MIB as usize, sent);
            bdp.receive(bdp.estimate as usize, sent);
            // Twice as much takes twice as long.
            bdp.answered(sent + Duration::from_nanos(100 * u64::from(bdp.estimate)));
        }
        assert_eq!(bdp.estimate, 2 * MIB);
    }

    #[test]
    fn calls_of_a_few_bytes_cost_no_ping() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        let now = Instant::now();
        assert!((0..1_000).all(|_| !bdp.receive(200, now)));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_changes_nothing() {
        let mut bdp = Bdp::new(MIB, 16 * MIB);
        bdp.answered(Instant::now());
        assert_eq!(bdp.estimate, MIB);
    }
}
