//! Lanes: numbers that threads have to themselves, as long as there are enough.
//!
//! A count with a counter for each lane is changed by a plain write, because no other thread writes to that counter. One
//! number for all threads needs a locked addition, and its cache line moves from core to core with every change.

use std::{
    cell::Cell,
    num::NonZeroUsize,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// More lanes would not fit into the bits of [`Taken`], and each count has a cache line for every lane.
const MOST: usize = u32::BITS as usize;

/// The lane of the threads that found all others taken.
pub(super) const SHARED: usize = 0;

/// The number of lanes of this process: one for each core, because a runtime has as many threads, and [`SHARED`].
pub(super) fn lanes() -> usize {
    static LANES: OnceLock<usize> = OnceLock::new();
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    *LANES.get_or_init(|| (cores() + 1).min(MOST))
}

/// The lane of this thread.
#[inline] // Every call asks twice, and `Picker` is compiled in the crate of its user.
pub(super) fn own_lane() -> usize {
    match OWN.get() {
        UNKNOWN => enter_lane(),
        own => own,
    }
}

const UNKNOWN: usize = usize::MAX;

/// The lanes that threads have taken.
static TAKEN: Taken = Taken(AtomicU32::new(1 << SHARED));

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEAVE_AT_END: LeaveAtEnd = const { LeaveAtEnd };
}

#[cold]
fn enter_lane() -> usize {
    OWN.set(TAKEN.take(lanes()));
    if LEAVE_AT_END.try_with(|_| {}).is_err() {
        // The thread is ending, and nothing would give the lane back later.
        leave_lane();
    }
    OWN.get()
}

/// Gives the lane of a thread back. The thread shares from here on, because destructors of its other thread-locals
/// may still end calls.
fn leave_lane() {
    TAKEN.give_back(OWN.replace(SHARED));
}

/// Gives the lane of a thread back when the thread ends.
struct LeaveAtEnd;

impl Drop for LeaveAtEnd {
    fn drop(&mut self) {
        leave_lane();
    }
}

/// A set of lanes, one bit for each.
struct Taken(AtomicU32);

impl Taken {
    /// Takes the first free lane of so many, or [`SHARED`] if there is none.
    fn take(&self, lanes: usize) -> usize {
        let free = |taken: u32| (0..lanes).find(|lane| taken & (1 << lane) == 0);
        // Acquire: the new owner must see what the last one wrote to its counters, because it adds to that.
        let before = self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
                Some(taken | (1 << free(taken)?))
            });
        before.ok().and_then(free).unwrap_or(SHARED)
    }

    fn give_back(&self, lane: usize) {
        if lane != SHARED {
            self.0.fetch_and(!(1 << lane), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::OnceCell, sync::mpsc};

    use super::*;

    #[test]
    fn each_lane_is_taken_once_and_the_rest_share() {
        let taken = Taken(AtomicU32::new(1 << SHARED));
        let lanes: Vec<_> = (0..5).map(|_| taken.take(4)).collect();
        assert_eq!(lanes, [1, 2, 3, SHARED, SHARED]);
    }

    #[test]
    fn a_lane_that_was_given_back_is_taken_again() {
        let taken = Taken(AtomicU32::new(1 << SHARED));
        (0..3).for_each(|_| _ = taken.take(4));
        taken.give_back(2);
        taken.give_back(SHARED);
        assert_eq!([taken.take(4), taken.take(4)], [2, SHARED]);
    }

    #[test]
    fn a_thread_keeps_its_lane_until_it_ends() {
        let own = || {
            let own = own_lane();
            assert_eq!(own_lane(), own);
            own
        };
        // More threads than there are lanes: if a lane were lost with its thread, none would be left.
        for _ in 0..2 * MOST {
            thread::spawn(own).join().unwrap();
        }
        // Other tests may have all lanes for a moment.
        let mut later = (0..1000).map(|_| thread::spawn(own).join().unwrap());
        assert!(later.any(|lane| lane != SHARED));
    }

    /// Another thread may have taken the lane by then.
    #[test]
    fn a_thread_that_has_left_its_lane_shares() {
        struct AskAtEnd(mpsc::Sender<usize>);
        impl Drop for AskAtEnd {
            fn drop(&mut self) {
                self.0.send(own_lane()).unwrap();
            }
        }
        thread_local! {
            static ASK_AT_END: OnceCell<AskAtEnd> = const { OnceCell::new() };
        }
        let (sender, asked) = mpsc::channel();
        let thread = thread::spawn(move || {
            // The first thread-local that is used is the last that is destroyed.
            ASK_AT_END.with(|ask| _ = ask.set(AskAtEnd(sender)));
            own_lane();
        });
        thread.join().unwrap();
        assert_eq!(asked.recv().unwrap(), SHARED);
    }
}
