//! A count that threads change at the same time without waiting for each other.
//!
//! Every call of a cluster changes one count twice, and every pick compares it with a limit. So each
//! [lane](super::lane) has a cell, and picks read a number that calls seldom write: a cell moves its sum on to it when
//! the sum is large. The number is then off by no more than a batch for each lane. A pick that is near the limit adds
//! up the cells.

use super::lane::{SHARED, lanes, own_lane};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The most that a cell keeps to itself. With 8 lanes the number that picks read is off by 128. That is little beside
/// the default limit of 1,024 calls.
const BATCH: i64 = 16;

/// A count with a cell for each lane.
#[derive(Debug)]
pub(super) struct CountByLane {
    /// The batches that cells have moved on. Picks read it, and few calls write it.
    moved: AtomicI64,
    /// The most that `moved` can be off.
    slack: i64,
    cells: Box<[Cell]>,
}

/// The changes of a lane that it has not moved on.
#[derive(Debug, Default)]
#[repr(align(64))] // On a cache line of its own, because each call of the lane writes it.
struct Cell(AtomicI64);

impl CountByLane {
    pub(super) fn new() -> Self {
        Self::with_lanes(lanes())
    }

    fn with_lanes(lanes: usize) -> Self {
        Self {
            moved: AtomicI64::new(0),
            slack: BATCH * lanes as i64,
            cells: (0..lanes).map(|_| Cell::default()).collect(),
        }
    }

    #[inline] // Every call makes two changes, and `Picker` is compiled in the crate of its user.
    pub(super) fn add(&self, change: i64) {
        self.add_in(own_lane(), change);
    }

    #[inline]
    fn add_in(&self, lane: usize, change: i64) {
        let Some(Cell(cell)) = self.cells.get(lane) else {
            return;
        };
        let sum = if lane == SHARED {
            cell.fetch_add(change, Relaxed) + change
        } else {
            let sum = cell.load(Relaxed) + change;
            cell.store(sum, Relaxed);
            sum
        };
        if !(-BATCH..=BATCH).contains(&sum) {
            self.move_on(cell);
        }
    }

    /// Takes all of a cell before it is added to the number that picks read. A reader in between sees too few calls, not
    /// too many, so it refuses no call that the limit allows.
    ///
    /// Taking all leaves nothing for another thread of a shared lane, which may be here at the same time.
    #[cold]
    fn move_on(&self, cell: &AtomicI64) {
        let batch = cell.swap(0, Relaxed);
        self.moved.fetch_add(batch, Relaxed);
    }

    /// Returns the count if it is `limit` or more.
    ///
    /// Changes that are made at the same time may be missed, so the limit is soft.
    #[inline]
    pub(super) fn at_least(&self, limit: u32) -> Option<u64> {
        if self.moved.load(Relaxed) < i64::from(limit) - self.slack {
            return None;
        }
        Some(self.sum()).filter(|sum| *sum >= u64::from(limit))
    }

    /// The count. Changes that are made at the same time may or may not be in it.
    #[cold]
    pub(super) fn sum(&self) -> u64 {
        let cells = self.cells.iter().map(|Cell(cell)| cell.load(Relaxed));
        let sum = self.moved.load(Relaxed) + cells.sum::<i64>();
        sum.try_into().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LANES: usize = 3;

    proptest! {
        /// A32: a call is refused at the limit and not before, whatever lanes calls began and ended in.
        #[test]
        fn the_limit_is_compared_with_the_sum_of_all_lanes(
            changes in prop::collection::vec((0..LANES, -40..40_i64), 0..200),
            limit in 0..200_u32,
        ) {
            let count = CountByLane::with_lanes(LANES);
            let mut sum = 0;
            for (lane, change) in changes {
                // No more calls end than have begun.
                let change = change.max(-sum);
                sum += change;
                count.add_in(lane, change);
                let sum = u64::try_from(sum).unwrap();
                prop_assert_eq!(count.sum(), sum);
                prop_assert_eq!(count.at_least(limit), (sum >= limit.into()).then_some(sum));
            }
        }
    }

    #[test]
    fn threads_that_share_a_lane_or_have_their_own_lose_no_change() {
        let count = CountByLane::new();
        std::thread::scope(|scope| {
            for _ in 0..3 * lanes() {
                scope.spawn(|| {
                    (0..1000).for_each(|_| count.add(1));
                    (0..900).for_each(|_| count.add(-1));
                });
            }
        });
        assert_eq!(count.sum(), 100 * 3 * lanes() as u64);
    }
}

#[cfg(all(test, crowfly_loom))]
mod interleavings {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// A32: a call that ends is subtracted once, whatever other calls do. A lost update would leak the limit.
    #[test]
    fn changes_in_a_shared_lane_and_in_lanes_of_their_own_are_all_counted() {
        loom::model(|| {
            let count = Arc::new(CountByLane::with_lanes(2));
            // The lanes are given here, because loom runs all threads of a model on one thread.
            let call = |lane| {
                let count = count.clone();
                // More than a batch, so that the cell moves it on.
                thread::spawn(move || count.add_in(lane, BATCH + 1))
            };
            let calls = [call(SHARED), call(SHARED), call(1)];
            for call in calls {
                call.join().unwrap();
            }
            assert_eq!(count.sum(), 3 * (BATCH as u64 + 1));
            for Cell(cell) in &count.cells {
                let kept = cell.load(Relaxed);
                assert!((-BATCH..=BATCH).contains(&kept), "a cell keeps {kept}");
            }
        });
    }
}
