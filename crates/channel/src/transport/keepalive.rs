//! Finding out that the other side is gone although nobody said so (gRFC A8).

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::http2::PingSender;
use super::shared::Shared;

/// When a silent server is asked for a sign of life, and how long it has for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keepalive {
    /// How long the server may be silent before it is sent a PING.
    pub interval: Duration,
    /// How long it may be silent after that.
    pub timeout: Duration,
    /// Whether it is asked even if no call is open.
    pub while_idle: bool,
}

impl Keepalive {
    /// No application may ask more often (gRFC A8).
    pub const LEAST_INTERVAL: Duration = Duration::from_secs(10);

    /// The settings after servers complained of too many PINGs so many times: each time half as
    /// many (gRFC A8).
    pub(crate) fn slowed(self, times: u32) -> Self {
        let factor = 1u32.checked_shl(times).unwrap_or(u32::MAX);
        Self {
            interval: self.interval.saturating_mul(factor),
            ..self
        }
    }
}

/// When the server was last heard of, and whether a call wants to know if it is still there.
#[derive(Debug)]
pub(super) struct Heard {
    start: Instant,
    /// Milliseconds after that.
    last: AtomicU64,
    /// Whether nobody is asked because no call is open.
    is_resting: AtomicBool,
    begun: Notify,
}

impl Heard {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            is_resting: AtomicBool::new(false),
            begun: Notify::new(),
        }
    }

    /// Something came.
    pub(super) fn beat(&self) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last.store(millis, Relaxed);
    }

    /// A stream is about to begin. Only the first one after a rest does more than look.
    pub(super) fn stream_begins(&self) {
        if self.is_resting.load(Relaxed) {
            self.begun.notify_one();
        }
    }

    /// Waits for a stream to begin; no longer than `most`, because one may just have begun unseen.
    async fn rest(&self, shared: &Shared, most: Duration) {
        self.is_resting.store(true, Relaxed);
        if shared.open_streams() == 0 {
            // Either end is one.
            let _ = timeout(most, self.begun.notified()).await;
        }
        self.is_resting.store(false, Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Relaxed))
    }
}

/// Asks for signs of life until there is none; then the connection counts as closed.
///
/// It has to run next to the connection, which carries the PINGs.
pub(super) async fn watch(
    pings: PingSender,
    heard: Arc<Heard>,
    keepalive: Keepalive,
    shared: Arc<Shared>,
) -> Arc<str> {
    loop {
        // Too far off to tell is never.
        let Some(due) = heard.last().checked_add(keepalive.interval) else {
            return pending().await;
        };
        if Instant::now() < due {
            sleep_until(due).await;
            continue;
        }
        // The silence of a rest counts: the first call after it comes with a PING (gRFC A8).
        if !keepalive.while_idle && shared.open_streams() == 0 {
            heard.rest(&shared, keepalive.interval).await;
            continue;
        }
        pings.send();
        if !is_answered(&pings, &heard, keepalive.timeout).await {
            let reason = format!("keepalive: no answer within {:?}", keepalive.timeout);
            let reason: Arc<str> = reason.into();
            // Before the streams fail, since they tell it.
            shared.handle_unresponsive(Arc::clone(&reason));
            return reason;
        }
    }
}

/// Waits for the answer to a PING. Whatever else comes is a sign of life too.
async fn is_answered(pings: &PingSender, heard: &Heard, timeout: Duration) -> bool {
    let asked = Instant::now();
    loop {
        let last = heard.last().max(asked);
        let Some(deadline) = last.checked_add(timeout) else {
            return pending().await;
        };
        match timeout_at(deadline, pings.answer()).await {
            Ok(true) => return true,
            // The connection is at its end, and says why.
            Ok(false) => return pending().await,
            Err(_) if heard.last() > last => {}
            Err(_) => return false,
        }
    }
}
