//! A value that one task publishes and every call reads without a lock.
//!
//! Calls read it on their fast path, so a lock would make them wait for each other. A call that cannot use
//! the current value waits for the next one, and misses none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

/// The current value of something, and a way to wait for the next.
#[derive(Debug)]
pub(crate) struct Published<T> {
    current: ArcSwap<T>,
    replaced: Notify,
    waiting: AtomicUsize,
}

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            current: ArcSwap::from_pointee(value),
            replaced: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The current value. The guard is for a short look, not to be held across an await.
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.current.load()
    }

    /// Replaces the value and wakes all calls that wait for the next one.
    pub(crate) fn publish(&self, value: T) {
        self.current.store(Arc::new(value));
        self.replaced.notify_waiters();
    }

    /// Waits until `look` returns something for the current value, or for a later one.
    pub(crate) async fn find<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> R {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            // Made before the look, so that a value that is published during the look wakes the caller.
            let replaced = self.replaced.notified();
            if let Some(found) = look(&self.current.load()) {
                return found;
            }
            replaced.await;
        }
    }

    /// The number of callers that wait in [`find`](Self::find).
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_sees_a_value_published_while_it_looked() {
        let published = Arc::new(Published::new(0));
        let found = published.find(|value| {
            if *value == 0 {
                published.publish(1);
                return None;
            }
            Some(*value)
        });
        assert_eq!(found.await, 1);
    }

    #[tokio::test]
    async fn those_who_wait_are_counted() {
        let published = Published::new(0);
        let mut found = Box::pin(published.find(|value| (*value > 0).then_some(())));
        assert!(futures_util::poll!(&mut found).is_pending());
        assert_eq!(published.waiting(), 1);
        published.publish(1);
        found.await;
        assert_eq!(published.waiting(), 0);
    }
}
