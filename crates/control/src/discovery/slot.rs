//! A channel that holds one value, between the task of a stream and its body.
//!
//! A channel of tokio would reserve memory for 32 values on every stream. This one also tells its
//! giver when a value is written to the client, which is later than when the body takes it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The end that gives values. One task uses it.
#[derive(Debug)]
pub(super) struct Giver<T>(Arc<Slot<T>>);

/// The end that takes values.
#[derive(Debug)]
pub(super) struct Taker<T>(Arc<Slot<T>>);

/// A value that was taken. It counts as not written until this is dropped.
#[derive(Debug)]
pub(super) struct Unwritten<T>(Arc<Slot<T>>);

/// The other end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

#[derive(Debug)]
struct Slot<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    /// The number of values that were given and are not written, with the one in the slot.
    unwritten: u32,
    /// False if one of the ends is gone.
    is_open: bool,
    /// The task of the giver, while it waits.
    giver: Option<Waker>,
    /// The task of the taker, while it waits.
    taker: Option<Waker>,
}

/// A channel for one value at a time.
pub(super) fn slot<T>() -> (Giver<T>, Taker<T>) {
    let slot = Arc::new(Slot(Mutex::new(State {
        value: None,
        unwritten: 0,
        is_open: true,
        giver: None,
        taker: None,
    })));
    (Giver(Arc::clone(&slot)), Taker(slot))
}

impl<T> Giver<T> {
    /// Waits until there is room for a value.
    ///
    /// # Errors
    /// Nobody will take it.
    pub(super) async fn has_room(&self) -> Result<(), Closed> {
        poll_fn(|cx| self.poll(cx, |state| state.value.is_none())).await
    }

    /// True if all values were taken and written.
    pub(super) fn is_written(&self) -> bool {
        self.0.lock().unwritten == 0
    }

    /// Waits until all values were taken and written, or nobody takes them any more.
    pub(super) async fn written(&self) {
        poll_fn(|cx| self.poll(cx, |state| state.unwritten == 0))
            .await
            .ok();
    }

    /// Waits until nobody takes values any more.
    pub(super) async fn closed(&self) {
        poll_fn(|cx| self.poll(cx, |_| false)).await.ok();
    }

    /// Gives a value, when there is room for it.
    ///
    /// # Errors
    /// Nobody will take it.
    pub(super) async fn give(&self, value: T) -> Result<(), Closed> {
        self.has_room().await?;
        self.put(value);
        Ok(())
    }

    /// Gives a value. The one before must have been taken.
    pub(super) fn put(&self, value: T) {
        let mut state = self.0.lock();
        state.value = Some(value);
        state.unwritten += 1;
        let taker = state.taker.take();
        drop(state);
        wake(taker);
    }

    fn poll(
        &self,
        cx: &Context<'_>,
        is_ready: impl Fn(&State<T>) -> bool,
    ) -> Poll<Result<(), Closed>> {
        let mut state = self.0.lock();
        if !state.is_open {
            return Poll::Ready(Err(Closed));
        }
        if is_ready(&state) {
            return Poll::Ready(Ok(()));
        }
        state.giver = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Taker<T> {
    /// Takes the next value; `None` if there will be none.
    pub(super) fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<(T, Unwritten<T>)>> {
        let mut state = self.0.lock();
        let Some(value) = state.value.take() else {
            if !state.is_open {
                return Poll::Ready(None);
            }
            state.taker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let giver = state.giver.take();
        drop(state);
        wake(giver);
        Poll::Ready(Some((value, Unwritten(Arc::clone(&self.0)))))
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Unwritten<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.unwritten -= 1;
        let giver = state.giver.take();
        drop(state);
        wake(giver);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_open = false;
        let taker = state.taker.take();
        drop(state);
        wake(taker);
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_open = false;
        let (giver, value) = (state.giver.take(), state.value.take());
        drop(state);
        drop(value);
        wake(giver);
    }
}

/// Wakes an end that waits. It may run at once, so the lock is free by now.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take<T>(taker: &Taker<T>) -> Option<T> {
        let taken = poll_fn(|cx| taker.poll_take(cx)).await;
        taken.map(|(value, _)| value)
    }

    /// Values come in order, each after the one before was taken, and the last one after the giver is gone.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn values_arrive_in_order() {
        let (giver, taker) = slot();
        let giving = tokio::spawn(async move {
            for value in 0..1_000 {
                giver.give(value).await.unwrap();
            }
        });
        for value in 0..1_000 {
            assert_eq!(take(&taker).await, Some(value));
        }
        giving.await.unwrap();
        assert_eq!(take(&taker).await, None);
    }

    #[tokio::test]
    async fn a_full_slot_has_no_room() {
        let (giver, taker) = slot();
        giver.has_room().await.unwrap();
        giver.put(1);
        let mut waits = std::pin::pin!(giver.has_room());
        assert!(is_pending(waits.as_mut()).await);
        assert_eq!(take(&taker).await, Some(1));
        assert_eq!(waits.await, Ok(()));
    }

    /// A value that was taken is not written until its taker says so.
    #[tokio::test]
    async fn a_value_that_is_taken_need_not_be_written() {
        let (giver, taker) = slot();
        assert!(giver.is_written());
        giver.put(1);
        let (_, unwritten) = poll_fn(|cx| taker.poll_take(cx)).await.unwrap();
        assert!(!giver.is_written());
        let mut waits = std::pin::pin!(giver.written());
        assert!(is_pending(waits.as_mut()).await);
        drop(unwritten);
        waits.await;
        assert!(giver.is_written());
    }

    /// A giver that waits hears at once that the taker is gone, and the value is dropped.
    #[tokio::test]
    async fn a_taker_that_goes_wakes_the_giver() {
        let (giver, taker) = slot();
        let value = Arc::new(());
        giver.put(Arc::clone(&value));
        let waiting = tokio::spawn(async move {
            giver.closed().await;
            giver.has_room().await
        });
        tokio::task::yield_now().await;
        drop(taker);
        assert_eq!(waiting.await.unwrap(), Err(Closed));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    async fn is_pending(mut future: std::pin::Pin<&mut impl Future>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
