//! The waits between an ADS stream that failed and the next one (gRFC A57).
//!
//! They grow and have jitter, because all clients of a server that was down would otherwise connect
//! at once.

use std::time::Duration;

const INITIAL: Duration = Duration::from_secs(1);
const MULTIPLIER: f64 = 1.6;
const MAX: Duration = Duration::from_secs(120);
/// Each wait is drawn from ±20 %, so that a fleet does not come back in step.
const JITTER: f64 = 0.2;

/// Exponential waits: 1 s, times 1.6 each, up to 120 s, with 20 % jitter.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    /// A fresh sequence whose jitter comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            next: INITIAL,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let jitter = 1.0 + JITTER * (2.0 * self.random.f64() - 1.0);
        let wait = self.next.mul_f64(jitter);
        self.next = self.next.mul_f64(MULTIPLIER).min(MAX);
        wait
    }

    /// Starts again from the shortest wait.
    pub fn reset(&mut self) {
        self.next = INITIAL;
    }
}
