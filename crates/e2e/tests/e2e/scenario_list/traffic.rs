//! Calls that go on while something happens.
//!
//! The calls run on a thread of their own, because `Peer::call` blocks until its calls have ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::rpc::CALLS_EACH;

use super::peer::{Outcome, Peer, answers, are_served_by};

/// The calls of a peer ask for few things at a time, so that a stop is heard soon.
const ROUND: usize = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Traffic of one peer to one service.
#[derive(Default)]
pub(super) struct Traffic {
    outcomes: Mutex<Vec<Outcome>>,
    stopped: AtomicBool,
}

impl Traffic {
    /// Calls a service while `during` runs, and fails if one of the calls does.
    pub(super) fn of(peer: &mut dyn Peer, service: &str, during: impl FnOnce(&Self)) {
        let traffic = Self::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !traffic.stopped.load(Ordering::Relaxed) {
                    let round = peer.call(service, ROUND);
                    traffic.lock().extend(round);
                }
            });
            // The calls end although `during` may panic.
            let _stop = Stop(&traffic);
            during(&traffic);
        });
        let outcomes = std::mem::take(&mut *traffic.lock());
        let count = outcomes.len();
        println!("  {count} calls meanwhile: {:?}", answers(&outcomes));
    }

    /// Waits until some calls in a row, all of them made from now on, are answered by exactly the
    /// backends in `names`.
    pub(super) fn until_served_by(&self, names: &[&str]) {
        // One round may be under way.
        let begun = self.lock().len() + ROUND;
        let count = names.len() * CALLS_EACH;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let recent = self.lock().iter().skip(begun).cloned().collect::<Vec<_>>();
            let last = recent.len().checked_sub(count);
            let last = last.and_then(|first| recent.get(first..));
            if last.is_some_and(|last| are_served_by(last, names)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "expected {names:?} to answer, found {last:?}"
            );
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Stop<'a>(&'a Traffic);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}
