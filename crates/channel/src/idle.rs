//! When a channel has nothing to do.
//!
//! A timer that each call resets would be written to by each call. Instead, a call leaves a mark that
//! is already there most of the time, and the driver looks at the end of each interval: if no call
//! left a mark, and none was open at either end, none was there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where calls leave their mark.
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

/// Finds out that there was no call for an interval: it takes between one and two of them.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    interval: Duration,
    activity: Arc<Activity>,
    /// The end of this interval; never, if that is too far off to tell.
    ends: Option<Instant>,
    /// Whether calls were open when it began.
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

    /// When [`is_idle`](Self::is_idle) has something to say.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.ends
    }

    /// Whether an interval without calls has ended. The next one begins.
    pub(crate) fn is_idle(&mut self, are_open: impl FnOnce() -> bool, now: Instant) -> bool {
        if self.ends.is_none_or(|ends| now < ends) {
            return false;
        }
        self.ends = now.checked_add(self.interval);
        // The mark before the calls: one that starts in between is in the next interval.
        let was_called = self.activity.take();
        let are_open = are_open();
        let were_open = std::mem::replace(&mut self.were_open, are_open);
        !(was_called || are_open || were_open)
    }

    /// The channel is idle: nothing more to find out.
    pub(crate) fn stop(&mut self) {
        self.ends = None;
    }

    /// The channel is in use again.
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

        /// Whether the channel is idle at the end of another interval, with calls open or not.
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

    /// Its mark, made while the driver looks, is one of the next interval.
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
