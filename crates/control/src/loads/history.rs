//! A short history of counts, in bounded memory. It is there for rates, which totals do not have.

use std::collections::VecDeque;
use std::time::Duration;

/// The time of one moment of the history.
pub(super) const WIDTH: Duration = Duration::from_secs(10);

/// The number of moments that are kept: five minutes.
pub(super) const LENGTH: usize = 30;

/// The counts that were reported in each of the last moments. Moments without reports take no room.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Bucket>);

/// The counts that were reported in one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The number of the moment; moments are counted from the start of the store.
    pub(super) number: u64,
    pub(super) issued: u64,
    pub(super) errors: u64,
    pub(super) dropped: u64,
}

impl History {
    /// Adds counts to the moment `counts.number`, which is the newest.
    pub(super) fn add(&mut self, counts: Bucket) {
        match self.0.back_mut() {
            Some(newest) if newest.number == counts.number => {
                newest.issued = newest.issued.saturating_add(counts.issued);
                newest.errors = newest.errors.saturating_add(counts.errors);
                newest.dropped = newest.dropped.saturating_add(counts.dropped);
            }
            _ => self.0.push_back(counts),
        }
        if self.0.len() > LENGTH {
            self.0.pop_front();
        }
    }

    /// The moments that are not too old at moment `now`, the oldest first.
    pub(super) fn since(&self, now: u64) -> impl Iterator<Item = Bucket> {
        let kept = move |bucket: &Bucket| now.saturating_sub(bucket.number) < LENGTH as u64;
        self.0.iter().copied().filter(kept)
    }
}

/// The number of the moment that is `age` after the start.
pub(super) fn number(age: Duration) -> u64 {
    age.as_secs() / WIDTH.as_secs()
}
