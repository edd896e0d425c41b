//! A pace that cannot be exceeded for long: each event is told when it may happen.

use std::time::{Duration, Instant};

/// A number of events in a second, with a number of them at once. Events beyond it are told a later
/// time, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// The time that one event takes.
    interval: Duration,
    /// The time that all events may be ahead of their pace.
    slack: Duration,
    /// The time at which the events so far are through, at their pace; `None` before the first.
    through: Option<Instant>,
}

impl Pacer {
    /// A pace with `seconds` worth of events at once.
    pub(crate) fn new(per_second: u32, seconds: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            slack: Duration::from_secs(seconds.into()),
            through: None,
        }
    }

    /// The time at which an event may happen that counts as `cost` events; `now` if at once. `None`
    /// if that is later than `patience` from now: such an event does not count.
    pub(crate) fn reserve(
        &mut self,
        cost: u32,
        patience: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let through = self.through.map_or(now, |through| through.max(now)) + self.interval * cost;
        let at = through.checked_sub(self.slack).unwrap_or(now).max(now);
        if at.duration_since(now) > patience {
            return None;
        }
        self.through = Some(through);
        Some(at)
    }

    /// True if all events so far are through, so that the pacer is as good as a new one.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.through.is_none_or(|through| through <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(1 << 20);

    fn pace_is_kept(per_second: u32, seconds: u32, events: Vec<(u64, u32)>) {
        let start = Instant::now();
        let mut pacer = Pacer::new(per_second, seconds);
        let (mut now, mut last) = (start, start);
        let mut cost_so_far = 0;
        for (pause, cost) in events {
            now += Duration::from_millis(pause);
            let at = pacer.reserve(cost, PATIENT, now).unwrap();
            assert!(at >= now && at >= last, "events keep their order");
            last = at;
            cost_so_far += cost;
            let allowed = (at - start).as_secs_f64() + f64::from(seconds) + 0.01;
            let took = f64::from(cost_so_far) / f64::from(per_second);
            assert!(took <= allowed, "{cost_so_far} events by {:?}", at - start);
        }
    }

    proptest! {
        /// L-10: in any time, no more events happen than the burst and the pace allow.
        #[test]
        fn pace_is_never_exceeded(
            per_second in 1_u32..2_000,
            seconds in 1_u32..10,
            events in prop::collection::vec((0_u64..500, 1_u32..70), 1..300),
        ) {
            pace_is_kept(per_second, seconds, events);
        }
    }

    #[test]
    fn events_at_the_pace_never_wait() {
        let mut pacer = Pacer::new(10, 1);
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(pacer.reserve(1, PATIENT, now), Some(now));
            now += Duration::from_millis(100);
        }
        assert!(pacer.is_idle(now));
    }

    /// An event that does not want to wait does not make others wait.
    #[test]
    fn refused_events_do_not_count() {
        let mut pacer = Pacer::new(10, 1);
        let now = Instant::now();
        let patience = Duration::from_millis(500);
        let taken = (0..1_000).filter_map(|_| pacer.reserve(1, patience, now));
        assert_eq!(taken.count(), 15);
        let later = now + Duration::from_millis(100);
        assert!(pacer.reserve(1, patience, later).is_some());
        assert!(!pacer.is_idle(later));
    }
}
