//! The time between a stream that ended and the next one.
//!
//! A stream that worked is followed at once, because each second without one delays counts. A server that refuses
//! reports makes the waits longer, because all of its clients would else come back at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::StreamEnd;
use crate::backoff::Backoff;

/// A stream that ends sooner than this after the last one did is followed by a wait, even if the server answered.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// After a time without an end that is longer than any wait, the next end is news.
const LONG_LIFE: Duration = Duration::from_secs(600);

/// The ends of streams so far.
#[derive(Debug)]
pub(super) struct Endings {
    backoff: Backoff,
    last: Option<Instant>,
    /// The reason that the log told last.
    told: Option<Arc<str>>,
}

/// The part of a stream's life that counts for the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    /// True if the server said which reports it wants.
    pub(super) answered: bool,
    /// The reports that the connection took, as far as they are remembered.
    pub(super) reports: u64,
    /// The reports among them that were sent just before the end, because the end may be their
    /// refusal.
    pub(super) in_doubt: u64,
}

/// The next stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is opened at once.
    AtOnce,
    /// It waits. `is_news` is false if the log told the same reason before.
    Wait { wait: Duration, is_news: bool },
}

impl Endings {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            backoff: Backoff::new(seed),
            last: None,
            told: None,
        }
    }

    /// Notes an end. An answer of the server makes the waits short again, unless the server then
    /// refuses reports. Otherwise all its clients would open streams at the pace of the refused
    /// reports, for ever.
    pub(super) fn note(&mut self, end: &StreamEnd, life: Life, now: Instant) -> Next {
        let since_last = self.last.replace(now).map(|last| now.duration_since(last));
        let is_proven = life.reports > life.in_doubt;
        if is_proven && !end.is_refusal || since_last.is_some_and(|time| time >= LONG_LIFE) {
            self.told = None;
        }

        let is_good = life.answered && (is_proven || !end.is_refusal);
        if is_good {
            self.backoff.reset();
        }
        let is_short = since_last.is_some_and(|time| time < SHORT_LIFE);
        if is_good && !end.is_refusal && !is_short {
            return Next::AtOnce;
        }
        Next::Wait {
            wait: self.backoff.next_wait(),
            is_news: self.is_news(end),
        }
    }

    /// Returns whether the log has not told this reason yet, and notes that it does now.
    pub(super) fn is_news(&mut self, end: &StreamEnd) -> bool {
        let before = self.told.replace(Arc::clone(&end.reason));
        before.is_none_or(|before| before != end.reason)
    }
}
