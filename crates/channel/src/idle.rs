//! Detection of a channel without calls, so that it can close its connections and watches.
//!
//! A timer that each call resets would be written to by each call, and all cores would contend for it.
//! Instead, a call sets a flag, which is set already most of the time. The driver looks at the flag at
//! the end of each interval. There was no call if the flag is not set and no call was open at either end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The flag that calls set.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicBool);

impl Activity {
    /// A call is made. Only the first one in an interval writes.
    pub(crate) fn mark(&self) {
        if !self.0.load(Relaxed) {
            self.0.store(true, Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

/// Detects an interval without calls. The detection takes between one and two intervals.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    interval: Duration,
    activity: Arc<Activity>,
    /// The end of this interval; `None` if it is later than `Instant` can express.
    ends: Option<Instant>,
    /// True if calls were open when the interval began.
    were_open: bool,
}

impl IdleTimer {
    pub(crate) fn new(interval: Duration, activity: Arc<Activity>, now: Instant) -> Self {
        Self {
            interval,
            activity,
            ends: now.checked_add(interval),
            were_open: false,
        }
    }

    /// The time at which [`is_idle`](Self::is_idle) should be asked.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.ends
    }

    /// True if an interval without calls has ended. The next interval begins.
    pub(crate) fn is_idle(&mut self, are_open: impl FnOnce() -> bool, now: Instant) -> bool {
        if self.ends.is_none_or(|ends| now < ends) {
            return false;
        }
        self.ends = now.checked_add(self.interval);
        // The flag is read before the open calls: a call that starts in between sets the flag of the next
        // interval.
        let was_called = self.activity.take();
        let are_open = are_open();
        let were_open = std::mem::replace(&mut self.were_open, are_open);
        !(was_called || are_open || were_open)
    }

    /// Stops the timer, because the channel is idle.
    pub(crate) fn stop(&mut self) {
        self.ends = None;
    }

    /// Starts the timer again, because the channel is in use.
    pub(crate) fn start(&mut self, now: Instant) {
        self.ends = now.checked_add(self.interval);
        self.were_open = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    struct Clock {
        timer: IdleTimer,
        activity: Arc<Activity>,
        now: Instant,
    }

    impl Clock {
        fn new(interval: Duration) -> Self {
            let activity = Arc::new(Activity::default());
            let now = Instant::now();
            Self {
                timer: IdleTimer::new(interval, Arc::clone(&activity), now),
                activity,
                now,
            }
        }

        /// Lets an interval pass, and returns true if the channel is idle at its end. `open` says if a
        /// call is open then.
        fn next(&mut self, open: bool) -> bool {
            self.now += INTERVAL;
            self.timer.is_idle(|| open, self.now)
        }
    }

    #[test]
    fn an_interval_without_calls_is_enough() {
        assert!(Clock::new(INTERVAL).next(false));
    }

    #[test]
    fn a_call_is_a_reason_to_wait_for_another_interval() {
        let mut clock = Clock::new(INTERVAL);
        clock.activity.mark();
        assert!(!clock.next(false));
        assert!(clock.next(false));
    }

    /// A call that was open at the start may have ended a moment ago.
    #[test]
    fn an_open_call_counts_in_the_interval_in_which_it_ends() {
        let mut clock = Clock::new(INTERVAL);
        clock.activity.mark();
        assert!(!clock.next(true));
        assert!(!clock.next(true));
        assert!(!clock.next(false));
        assert!(clock.next(false));
    }

    /// A call may start while the driver looks. The mark of that call then belongs to the next interval, but the call
    /// is open.
    #[test]
    fn a_call_that_starts_at_the_very_end_counts() {
        assert!(!Clock::new(INTERVAL).next(true));
    }

    #[test]
    fn nothing_is_said_before_the_end_of_an_interval() {
        let mut clock = Clock::new(INTERVAL * 2);
        assert!(!clock.next(false));
        assert!(clock.next(false));
        clock.timer.stop();
        assert!(!clock.next(false));
        clock.timer.start(clock.now);
        assert!(!clock.next(false));
        assert!(clock.next(false));
    }

    #[test]
    fn a_timeout_beyond_all_time_is_none() {
        let mut clock = Clock::new(Duration::MAX);
        assert_eq!(clock.timer.next_timeout(), None);
        assert!(!clock.next(false));
    }
}
