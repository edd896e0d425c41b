//! The number of open calls, which threads change at the same time without waiting for each other.
//!
//! Every call of a cluster is counted when it begins and when it ends, and every pick compares the
//! open calls with a limit. Each [lane](super::lane) has counters of its own, because threads that
//! write to one number wait for each other.
//!
//! A lane adds its open calls to a shared sum only after they changed by more than a batch. So the sum
//! is seldom written, and differs from the truth by at most a batch for each lane. A pick compares
//! the limit with the sum. If the sum is near the limit, the pick adds up the lanes instead.

use super::lane::{SHARED, lanes, own_lane};
use crate::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The most that a lane keeps to itself, whatever the limit is.
const LARGEST_BATCH: i64 = 16;

/// All lanes together keep at most this part of the limit to themselves, so that few picks have to add up the lanes.
const LIMIT_PER_KEPT: i64 = 8;

/// The open calls of one cluster, with counters for each lane.
#[derive(Debug)]
pub(super) struct CountByLane {
    /// The sum of what the lanes told.
    told: AtomicI64,
    /// The most that a lane keeps to itself.
    batch: AtomicI64,
    lanes: Box<[Lane]>,
}

/// The calls that were counted in one lane. A call may end in another lane than it began in.
///
/// Both counters only grow. Numbers that go up and down could not be added up while calls begin and
/// end. A reader might count one call in two lanes, and refuse a call that the limit allows.
#[derive(Debug, Default)]
#[repr(align(64))] // On a cache line of its own, because each call writes it. A pair of lines is not faster, and larger.
struct Lane {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The open calls that the lane told.
    told: AtomicI64,
}

impl CountByLane {
    pub(super) fn new() -> Self {
        Self::with_lanes(lanes())
    }

    fn with_lanes(lanes: usize) -> Self {
        Self {
            told: AtomicI64::new(0),
            batch: AtomicI64::new(LARGEST_BATCH),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
        }
    }

    /// Makes lanes keep so little to themselves that few picks are near this limit.
    ///
    /// Trees with other limits may share the count, and the last one decides. The batch of another limit costs time and
    /// changes no answer, because picks near their limit add up the lanes.
    pub(super) fn expect_limit(&self, limit: u32) {
        let kept = i64::from(limit) / LIMIT_PER_KEPT;
        let batch = (kept / self.lanes.len() as i64).min(LARGEST_BATCH);
        if self.batch.swap(batch, Relaxed) > batch {
            self.lanes.iter().for_each(|lane| self.tell(lane));
        }
    }

    #[inline] // Every call is counted twice, and `Picker` is compiled in the crate of its user.
    pub(super) fn begin(&self) {
        self.begin_in(own_lane());
    }

    #[inline]
    pub(super) fn end(&self) {
        self.end_in(own_lane());
    }

    #[inline]
    fn begin_in(&self, lane: usize) {
        self.count(lane, |lane| &lane.begun);
    }

    #[inline]
    fn end_in(&self, lane: usize) {
        self.count(lane, |lane| &lane.ended);
    }

    #[inline]
    fn count(&self, lane: usize, counter: impl FnOnce(&Lane) -> &AtomicU64) {
        let is_shared = lane == SHARED;
        let lane = &self.lanes[lane];
        let counter = counter(lane);
        // Release: a reader that sees this call begin must also see the end of calls that ended before.
        if is_shared {
            counter.fetch_add(1, Release);
        } else {
            counter.store(counter.load(Relaxed) + 1, Release);
        }
        let kept = lane.open() - lane.told.load(Relaxed);
        if kept.abs() > self.batch.load(Relaxed) {
            self.tell(lane);
        }
    }

    /// Adds the difference to what the lane told before. Several threads may do it at the same time: each adds the
    /// difference to what another wrote, so the sum stays right.
    ///
    /// A thread that was interrupted may tell an old number after others told a newer one. The lane's next call mends
    /// that, and until then the limit is as soft as for calls that begin at the same time.
    #[cold]
    fn tell(&self, lane: &Lane) {
        let open = lane.open();
        let before = lane.told.swap(open, Relaxed);
        self.told.fetch_add(open - before, Relaxed);
    }

    /// Returns the number of open calls if it is `limit` or more.
    ///
    /// The limit is soft: calls that begin at the same time may be missed. It refuses no call too early.
    #[inline]
    pub(super) fn at_least(&self, limit: u32) -> Option<u64> {
        let kept = self.batch.load(Relaxed) * self.lanes.len() as i64;
        if self.told.load(Relaxed) + kept < i64::from(limit) {
            return None;
        }
        Some(self.sum()).filter(|sum| *sum >= u64::from(limit))
    }

    /// The number of open calls.
    ///
    /// All begun calls are read before any ended call. So the answer is never more than the calls that were open
    /// between the two, whatever begins and ends meanwhile.
    #[cold]
    pub(super) fn sum(&self) -> u64 {
        let begun: u64 = self.lanes.iter().map(|lane| lane.begun.load(Acquire)).sum();
        let ended: u64 = self.lanes.iter().map(|lane| lane.ended.load(Relaxed)).sum();
        begun.saturating_sub(ended)
    }
}

impl Lane {
    /// The calls that began here less those that ended here. It is negative if many calls of other lanes ended here.
    #[inline]
    fn open(&self) -> i64 {
        let (begun, ended) = (self.begun.load(Relaxed), self.ended.load(Relaxed));
        begun.wrapping_sub(ended).cast_signed()
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
            limits in prop::collection::vec(0..2000_u32, 1..4),
        ) {
            let count = CountByLane::with_lanes(LANES);
            limits.iter().for_each(|limit| count.expect_limit(*limit));
            let mut open = 0_u64;
            for (lane, change) in changes {
                for _ in 0..change.unsigned_abs() {
                    match change {
                        1.. => {
                            count.begin_in(lane);
                            open += 1;
                        }
                        // No more calls end than have begun.
                        _ if open > 0 => {
                            count.end_in(lane);
                            open -= 1;
                        }
                        _ => {}
                    }
                }
                prop_assert_eq!(count.sum(), open);
                for limit in &limits {
                    let expected = (open >= u64::from(*limit)).then_some(open);
                    prop_assert_eq!(count.at_least(*limit), expected);
                }
            }
        }
    }

    /// The lanes would otherwise be added up by every pick of a cluster with a small limit.
    #[test]
    fn a_pick_far_below_a_small_limit_needs_only_what_lanes_told() {
        let count = CountByLane::with_lanes(LANES);
        (0..LARGEST_BATCH).for_each(|_| count.begin_in(1));
        assert_eq!(count.told.load(Relaxed), 0);
        count.expect_limit(30);
        assert_eq!(count.told.load(Relaxed), LARGEST_BATCH);
        let kept = count.batch.load(Relaxed) * LANES as i64;
        assert!(kept <= 30 / LIMIT_PER_KEPT, "{kept} of 30 may be untold");
    }

    /// A limit that was small for a minute would otherwise make every call write the shared number for good.
    #[test]
    fn lanes_keep_more_again_when_the_limit_is_raised() {
        let count = CountByLane::with_lanes(LANES);
        count.expect_limit(1);
        count.begin_in(1);
        assert_eq!(count.told.load(Relaxed), 1);
        count.expect_limit(5000);
        (1..LARGEST_BATCH).for_each(|_| count.begin_in(1));
        assert_eq!(count.told.load(Relaxed), 1);
        assert_eq!(count.at_least(16), Some(16));
    }

    #[test]
    fn threads_that_share_a_lane_or_have_their_own_lose_no_change() {
        let count = CountByLane::new();
        std::thread::scope(|scope| {
            for _ in 0..3 * lanes() {
                scope.spawn(|| {
                    (0..1000).for_each(|_| count.begin());
                    (0..900).for_each(|_| count.end());
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

    // The lanes are given here, because loom runs all threads of a model on one thread.

    /// A32: a call that ends is subtracted once, whatever other calls do. A lost update would leak the limit.
    #[test]
    fn changes_in_a_shared_lane_and_in_lanes_of_their_own_are_all_counted() {
        loom::model(|| {
            let count = Arc::new(CountByLane::with_lanes(2));
            // Every change is told.
            count.expect_limit(0);
            let call = |lane| {
                let count = count.clone();
                thread::spawn(move || count.begin_in(lane))
            };
            let calls = [call(SHARED), call(SHARED)];
            count.begin_in(1);
            for call in calls {
                call.join().unwrap();
            }
            assert_eq!(count.sum(), 3);
            let told = count.lanes.iter().map(|lane| lane.told.load(Relaxed));
            assert_eq!(told.sum::<i64>(), count.told.load(Relaxed));
        });
    }

    /// A32: one call at a time is open, so a limit of two may refuse none.
    #[test]
    fn calls_that_begin_in_one_lane_and_end_in_another_are_not_counted_twice() {
        loom::model(|| {
            let count = Arc::new(CountByLane::with_lanes(3));
            let reader = count.clone();
            // The reader is the second thread, because loom misses a store between the loads of the first one if the
            // storing thread has loaded the same atomic before.
            let reader = thread::spawn(move || assert!(reader.sum() <= 1));
            for (begins, ends) in [(1, 2), (2, 1)] {
                count.begin_in(begins);
                count.end_in(ends);
            }
            reader.join().unwrap();
            assert_eq!(count.sum(), 0);
        });
    }
}
