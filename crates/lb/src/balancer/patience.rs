//! The time that endpoints wait for a picker. They wait, because one picker then serves many of
//! them.

use std::time::{Duration, Instant};

use crate::timing::{COALESCE, COALESCE_MAX};

/// Decides how long endpoints that become READY or fail may wait for the next picker. While
/// thousands of them do, each wait is longer than the last, because every picker costs work.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The number of flushes in a row that waited. `last` is the time of the last of them.
    waits: u32,
    last: Option<Instant>,
    waiting: bool,
}

impl Patience {
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        let last = self.last.filter(|_| !self.waiting);
        if last.is_some_and(|last| now.saturating_duration_since(last) > COALESCE_MAX) {
            self.waits = 0;
        }
        self.waiting = true;
        let wait = COALESCE.saturating_mul(4_u32.saturating_pow(self.waits));
        wait.min(COALESCE_MAX)
    }

    pub(super) fn flushed(&mut self, now: Instant) {
        if std::mem::take(&mut self.waiting) {
            self.waits += 1;
            self.last = Some(now);
        }
    }
}
