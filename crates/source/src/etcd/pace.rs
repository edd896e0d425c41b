//! Waits between failures that follow each other.
//!
//! The waits grow and have jitter, because all nodes of a mesh lose a restarted etcd at the same
//! moment.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

/// The time without a failure after which the next one counts as the first.
const CALM: Duration = LONGEST;

/// Waits of 250 ms, doubled up to 30 s. Each is shortened by up to the half.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
}

impl Pace {
    /// The wait after a failure of something that had worked for so long.
    pub(super) fn failed(&mut self, worked: Duration, random: &mut fastrand::Rng) -> Duration {
        if worked >= CALM {
            self.failures = 0;
        }
        let doubled = SHORTEST.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        doubled.min(LONGEST).mul_f64(1.0 - random.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_begin_anew_after_a_calm() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..100)
            .map(|_| pace.failed(Duration::ZERO, &mut random))
            .collect();
        assert!(waits[0] <= SHORTEST && waits[0] >= SHORTEST / 2);
        assert!(waits[99] <= LONGEST && waits[99] >= LONGEST / 2);
        assert!(pace.failed(CALM, &mut random) <= SHORTEST);
    }
}
