//! Tells the balancer that a call waits for a change, without a lock.
//!
//! A call that waits sleeps until the next picker. Most changes of an endpoint need no new picker, so the
//! balancer must know which of them a call waits for.

use crate::sync::atomic::{AtomicBool, Ordering, Ordering::Relaxed, fence};

/// Set by calls that may wait for a change, and asked after each change.
#[derive(Debug, Default)]
pub(super) struct Bell {
    is_awaited: AtomicBool,
}

impl Bell {
    /// A call may wait. It must look at the state after this, and waits only if that is still to change.
    ///
    /// The fences of both sides have an order. So either the call sees the change, or [`ring`](Self::ring)
    /// sees the call.
    pub(super) fn listen(&self) {
        self.is_awaited.store(true, Relaxed);
        fence(Ordering::SeqCst);
    }

    /// A change was made. Returns whether a call may wait for it.
    pub(super) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_awaited.load(Relaxed) && self.is_awaited.swap(false, Relaxed)
    }
}

#[cfg(all(test, crowfly_loom))]
mod interleavings {
    use std::sync::Arc;

    use loom::{sync::atomic::AtomicUsize, thread};

    use super::*;

    /// A call that does not see a change is seen by the balancer, which wakes it then. One that neither saw nor
    /// was seen would wait for ever.
    #[test]
    fn a_call_sees_the_change_or_is_seen() {
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicUsize::new(0)));
            let call = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.0.listen();
                    shared.1.load(Relaxed) == 1
                })
            };
            shared.1.store(1, Relaxed);
            let is_seen = shared.0.ring();
            let sees = call.join().unwrap();
            assert!(sees || is_seen);
        });
    }
}
