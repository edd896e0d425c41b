//! The counts of one connection in one locality. They are apart from those of other connections,
//! because calls on many threads would otherwise write to one cache line.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    MetricTotals,
    metrics::{BackendMetrics, MetricFilter, MetricSums},
};
use crate::{
    Counted,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

/// Counts the attempts of one connection in one locality.
#[derive(Debug)]
#[repr(align(64))] // On a cache line of its own: every call writes it.
pub(crate) struct Tally {
    issued: AtomicU64,
    succeeded: AtomicU64,
    errors: AtomicU64,
    /// Only if the cluster propagates metrics.
    metrics: Option<Box<Metrics>>,
}

#[derive(Debug)]
struct Metrics {
    filter: Arc<MetricFilter>,
    /// A lock, because names are not known before. Only calls that come with metrics take it, and the reader.
    sums: Mutex<MetricSums>,
}

impl Tally {
    pub(super) fn new(filter: &Arc<MetricFilter>) -> Self {
        let metrics = (!filter.is_empty()).then(|| Metrics {
            filter: filter.clone(),
            sums: Mutex::default(),
        });
        Self {
            issued: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            metrics: metrics.map(Box::new),
        }
    }

    /// Release, because a reader that sees this attempt must see the ends of those before it.
    pub(crate) fn start(&self) {
        self.issued.fetch_add(1, Release);
    }

    /// Release, because a reader that sees the end of an attempt must see its beginning as well.
    pub(crate) fn finish(&self, counted: Counted) {
        match counted {
            Counted::Failure => self.errors.fetch_add(1, Release),
            Counted::Success => self.succeeded.fetch_add(1, Release),
        };
    }

    pub(crate) fn wants_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    pub(crate) fn record(&self, reported: &BackendMetrics<'_>) {
        if let Some(Metrics { filter, sums }) = self.metrics.as_deref() {
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.record(filter, reported);
        }
    }

    /// The totals so far. The ends are read first, so that no attempt has ended that has not begun.
    ///
    /// Attempts that end between two reads would seem to be in progress. So it reads again until no attempt ended
    /// meanwhile, but not for ever.
    fn totals(&self) -> Totals {
        let mut ended = self.ended();
        for _ in 0..READS {
            let issued = self.issued.load(Acquire);
            let before = std::mem::replace(&mut ended, self.ended());
            if before == ended {
                return Totals { issued, ended };
            }
        }
        Totals {
            issued: self.issued.load(Acquire),
            ended,
        }
    }

    fn ended(&self) -> Ended {
        Ended {
            succeeded: self.succeeded.load(Acquire),
            errors: self.errors.load(Acquire),
        }
    }

    fn take_metrics(&self) -> MetricTotals {
        let Some(Metrics { filter, sums }) = self.metrics.as_deref() else {
            return MetricTotals::default();
        };
        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *sums).into_totals(filter)
    }
}

/// The number of times that a tally is read for totals of one moment.
const READS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    issued: u64,
    ended: Ended,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Ended {
    succeeded: u64,
    errors: u64,
}

/// A tally, and how much of it was taken.
#[derive(Debug)]
pub(super) struct Entry {
    tally: Arc<Tally>,
    taken: Totals,
}

/// The part of a tally that was not taken before.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) issued: u64,
    pub(super) succeeded: u64,
    pub(super) errors: u64,
    pub(super) in_progress: u64,
    pub(super) metrics: MetricTotals,
}

impl Entry {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        Self {
            tally,
            taken: Totals::default(),
        }
    }

    /// Returns whether nobody can count in the tally any more. What is taken then is its last.
    pub(super) fn is_over(&mut self) -> bool {
        Arc::get_mut(&mut self.tally).is_some()
    }

    /// Takes what is new; true if nobody can count in the tally any more.
    pub(super) fn take(&mut self) -> (Taken, bool) {
        // Before the totals are read: if nobody else has the tally, the totals are its last.
        let is_over = self.is_over();
        let now = self.tally.totals();
        let before = std::mem::replace(&mut self.taken, now);
        let taken = Taken {
            issued: now.issued - before.issued,
            succeeded: now.ended.succeeded - before.ended.succeeded,
            errors: now.ended.errors - before.ended.errors,
            in_progress: now.issued - now.ended.succeeded - now.ended.errors,
            metrics: self.tally.take_metrics(),
        };
        (taken, is_over)
    }
}

#[cfg(all(test, crowfly_loom))]
mod interleavings {
    use loom::thread;

    use super::*;

    /// A27: the counts of a report add up, and none is lost or repeated, whatever calls do while it is made.
    #[test]
    fn a_reader_sees_no_end_without_its_beginning_and_every_count_once() {
        loom::model(|| {
            let tally = Arc::new(Tally::new(&Arc::default()));
            let mut entry = Entry::new(Arc::clone(&tally));
            let call = thread::spawn(move || {
                tally.start();
                tally.finish(Counted::Success);
                tally.start();
                tally.finish(Counted::Failure);
            });
            let (first, _) = entry.take();
            assert!(first.in_progress <= 1, "{first:?}");
            assert!(first.succeeded + first.errors + first.in_progress == first.issued);
            call.join().unwrap();
            let (second, _) = entry.take();
            assert_eq!(first.issued + second.issued, 2);
            assert_eq!(first.succeeded + second.succeeded, 1);
            assert_eq!(first.errors + second.errors, 1);
            assert_eq!(second.in_progress, 0);
        });
    }
}
