//! The limits that the client of one stream has reached, for the page `/clients` and the log.
//!
//! The log has a limit once a minute, because a client may reach it thousands of times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Limit;
use crate::clients::LimitView;

/// The time between two log lines about one limit and one stream.
const QUIET: Duration = Duration::from_secs(60);

/// The limits that the client of one stream has reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached {
    /// The time since which the client does not take a response, in seconds since 1970. It is known
    /// once that has lasted for a while.
    slow_since: Option<u64>,
    limits: BTreeMap<Limit, Times>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    view: LimitView,
    told_at: Instant,
}

impl Reached {
    /// Notes that a limit was reached, at a time that both clocks give. True if the log has not had
    /// it for a minute.
    pub(crate) fn note(&mut self, limit: Limit, now: Instant, unix_now: u64) -> bool {
        let first = Times {
            view: LimitView::default(),
            told_at: now,
        };
        let of = self.limits.entry(limit).or_insert(first);
        of.view.times += 1;
        of.view.last_at = unix_now;
        let is_due = of.view.times == 1 || now.duration_since(of.told_at) >= QUIET;
        if is_due {
            of.told_at = now;
        }
        is_due
    }

    /// Notes the time since which the client does not take a response; `None` if it does.
    pub(crate) fn set_slow_since(&mut self, unix: Option<u64>) {
        self.slow_since = unix;
    }

    pub(crate) fn slow_since(&self) -> Option<u64> {
        self.slow_since
    }

    /// The limits by their names.
    pub(crate) fn view(&self) -> BTreeMap<String, LimitView> {
        let limits = self.limits.iter();
        limits
            .map(|(limit, of)| (limit.name().to_owned(), of.view))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_once_a_minute() {
        let mut reached = Reached::default();
        let start = Instant::now();
        let told = (0..1_000_u64).filter(|second| {
            let now = start + Duration::from_secs(*second);
            reached.note(Limit::Names, now, *second)
        });
        assert_eq!(told.count(), 17);
        let times = LimitView {
            times: 1_000,
            last_at: 999,
        };
        assert_eq!(reached.view(), [("names".to_owned(), times)].into());
    }
}
