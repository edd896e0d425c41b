//! The calls per second that each backend answered. They are those of the last second, so that the
//! bars of the live view follow a change within a second.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

const WINDOW: Duration = Duration::from_secs(1);

/// Counts at several moments of the last second. A rate is the difference between two of them.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: VecDeque<(Instant, BTreeMap<String, u64>)>,
}

impl Rates {
    /// Adds the counts at `now`, and removes those that are too old.
    pub(super) fn add(&mut self, now: Instant, counts: BTreeMap<String, u64>) {
        self.samples.push_back((now, counts));
        // The oldest sample stays while the second is younger than the window, so that they span it.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Calls per second that `backend` answered.
    pub(super) fn of(&self, backend: &str) -> f64 {
        let (Some((start, first)), Some((end, last))) = (self.samples.front(), self.samples.back())
        else {
            return 0.0;
        };
        let seconds = end.duration_since(*start).as_secs_f64();
        let count = |counts: &BTreeMap<String, u64>| counts.get(backend).copied().unwrap_or(0);
        if seconds > 0.0 {
            (count(last) - count(first)) as f64 / seconds
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_second() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.of("b1"), 0.0);
        // A hundred calls in the first second, ten in each quarter of the next.
        for (millis, count) in [(0, 0), (1000, 100), (1250, 110), (1500, 120), (2000, 140)] {
            let counts = BTreeMap::from([("b1".to_owned(), count)]);
            rates.add(start + Duration::from_millis(millis), counts);
        }
        assert_eq!(rates.of("b1"), 40.0);
        assert_eq!(rates.of("b2"), 0.0);
    }
}
