//! Finding out that the other side is gone although nobody said so (gRFC A8).

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

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
    /// What a server that complains of too many PINGs gets: half as many (gRFC A8).
    pub(crate) fn slowed(self) -> Self {
        Self {
            interval: self.interval.saturating_mul(2),
            ..self
        }
    }
}

/// When the server was last heard of.
#[derive(Debug)]
pub(super) struct Heard {
    start: Instant,
    /// Milliseconds after that.
    last: AtomicU64,
}

impl Heard {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    /// Something came.
    pub(super) fn beat(&self) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last.store(millis, Relaxed);
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
        if !keepalive.while_idle && shared.open_streams() == 0 {
            sleep(keepalive.interval).await;
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
