//! A queue between tasks that takes next to nothing while it is empty.
//!
//! A program may have a thousand clients, most of them idle. tokio's channels keep room for 32 messages
//! each, which would be a third of such a client.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A queue of any length, for any number of senders and one receiver.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared(Mutex::new(State {
        messages: VecDeque::new(),
        waiting: None,
        senders: 1,
        closed: false,
    })));
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Hands over a message; it is dropped if the receiver is gone.
    pub(crate) fn send(&self, message: T) {
        let mut state = self.0.lock();
        if state.closed {
            // What is dropped may use this queue or another: not under the lock.
            drop(state);
            return;
        }
        state.messages.push_back(message);
        wake(state);
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders == 0 {
            wake(state);
        }
    }
}

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// The next message; `None` once there is none and all senders are gone. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next message, if there is one by now.
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        self.0.lock().take()
    }

    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        let message = state.take();
        if message.is_some() || state.senders == 0 {
            return Poll::Ready(message);
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let unread = std::mem::take(&mut state.messages);
        // What is dropped may use this queue or another: not under the lock.
        drop(state);
        drop(unread);
    }
}

struct Shared<T>(Mutex<State<T>>);

struct State<T> {
    messages: VecDeque<T>,
    /// The receiver, if it waits.
    waiting: Option<Waker>,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn take(&mut self) -> Option<T> {
        let message = self.messages.pop_front();
        if self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
        message
    }
}

fn wake<T>(mut state: MutexGuard<'_, State<T>>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    #[test]
    fn messages_come_in_order_and_the_end_after_the_last() {
        let (sender, mut receiver) = queue();
        let other = sender.clone();
        sender.send(1);
        other.send(2);
        drop(sender);
        drop(other);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(Some(1)));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(Some(2)));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn who_waits_is_woken_by_a_message_and_by_the_end() {
        let (sender, mut receiver) = queue();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Pending);
        sender.send(1);
        assert!(woken.0.swap(false, Ordering::Relaxed));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(Some(1)));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Pending);
        drop(sender);
        assert!(woken.0.swap(false, Ordering::Relaxed));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(None));
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_kept_that_nobody_will_read() {
        let (sender, receiver) = queue();
        let message = Arc::new(());
        sender.send(Arc::clone(&message));
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());
        sender.send(Arc::clone(&message));
        assert_eq!(Arc::strong_count(&message), 1);
    }

    #[test]
    fn an_empty_queue_has_no_room_set_aside() {
        let (sender, mut receiver) = queue();
        for number in 0..100 {
            sender.send(number);
        }
        while receiver.try_recv().is_some() {}
        assert_eq!(receiver.0.lock().messages.capacity(), 0);
    }
}
