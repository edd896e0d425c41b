//! The pace of a stream: a client that sends far more reports than it was asked for is stopped.

use std::time::{Duration, Instant};

/// The number of reports that may come at once. A few come between two intervals by right: a last
/// report before the end, and one after a new interval.
const BURST: u32 = 32;

/// The reports that a stream may still send. Each report takes one, and time gives them back at
/// twice the pace that was asked for.
#[derive(Debug)]
pub(crate) struct Pace {
    left: u32,
    /// The time at which the next one is given back; `None` while none is missing.
    next: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            left: BURST,
            next: None,
        }
    }
}

impl Pace {
    /// Takes a report at `now`, from a stream that was asked for one per `interval`. False if it is
    /// one too many.
    pub(crate) fn take(&mut self, interval: Duration, now: Instant) -> bool {
        let step = interval / 2;
        while let Some(next) = self.next
            && next <= now
        {
            self.left += 1;
            self.next = (self.left < BURST).then(|| next + step);
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.next.get_or_insert(now + step);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// A client that reports as it was asked to is never stopped.
    #[test]
    fn the_pace_that_was_asked_for_is_kept() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..1_000 {
            assert!(pace.take(INTERVAL, now));
            now += INTERVAL;
        }
    }

    /// A flood is stopped after the burst, and the stream may go on at twice its pace.
    #[test]
    fn a_flood_is_stopped() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..BURST {
            assert!(pace.take(INTERVAL, now));
        }
        assert!(!pace.take(INTERVAL, now));
        for _ in 0..100 {
            now += INTERVAL / 2;
            assert!(pace.take(INTERVAL, now));
            assert!(!pace.take(INTERVAL, now));
        }
        now += INTERVAL * 1_000;
        for _ in 0..BURST {
            assert!(pace.take(INTERVAL, now));
        }
        assert!(!pace.take(INTERVAL, now));
    }
}
