//! Keepalive (gRFC A8): a server that stays silent is sent a PING.
//!
//! A machine that lost its power closes no connection, so calls on it would wait for their deadline. A
//! PING that is not answered ends them sooner.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection_state::ConnectionState;
use super::http2::PingSender;

/// The times after which a silent server is sent a PING, and its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keepalive {
    /// The time that the server may be silent before it is sent a PING.
    pub interval: Duration,
    /// The time that the server has for its answer.
    pub timeout: Duration,
    /// True if PINGs are sent even while no call is open.
    pub while_idle: bool,
}

impl Keepalive {
    /// The shortest interval that an application may set (gRFC A8).
    pub const LEAST_INTERVAL: Duration = Duration::from_secs(10);

    /// The settings after servers complained of too many PINGs this many times. Each complaint doubles
    /// the interval (gRFC A8).
    pub(crate) fn slowed(self, times: u32) -> Self {
        let factor = 1u32.checked_shl(times).unwrap_or(u32::MAX);
        Self {
            interval: self.interval.saturating_mul(factor),
            ..self
        }
    }
}

/// The time of the server's last bytes, written by the connection and read by [`watch`].
#[derive(Debug)]
pub(super) struct Heard {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
    /// True while no PING is sent because no call is open.
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

    /// Notes that bytes came from the server.
    pub(super) fn beat(&self) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last.store(millis, Relaxed);
    }

    /// Notes that a stream is about to begin. Only the first stream after a rest does more than a
    /// load.
    pub(super) fn stream_begins(&self) {
        if self.is_resting.load(Relaxed) {
            self.begun.notify_one();
        }
    }

    /// Waits for a stream to begin, but not longer than `most`, because one may have begun unseen.
    async fn rest(&self, state: &ConnectionState, most: Duration) {
        self.is_resting.store(true, Relaxed);
        if state.open_streams() == 0 {
            // A stream and the end of the time are both reason to go on.
            let _ = timeout(most, self.begun.notified()).await;
        }
        self.is_resting.store(false, Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Relaxed))
    }
}

/// Sends PINGs to a silent server until one is not answered, and returns the reason for closing the
/// connection.
///
/// The future has to run next to the connection's driver, which carries the PINGs.
pub(super) async fn watch(
    pings: PingSender,
    heard: Arc<Heard>,
    keepalive: Keepalive,
    state: Arc<ConnectionState>,
) -> Arc<str> {
    loop {
        // A moment too far away for the clock never comes.
        let Some(due) = heard.last().checked_add(keepalive.interval) else {
            return pending().await;
        };
        if Instant::now() < due {
            sleep_until(due).await;
            continue;
        }
        // The silence of a rest counts: the first call after it comes with a PING (gRFC A8).
        if !keepalive.while_idle && state.open_streams() == 0 {
            heard.rest(&state, keepalive.interval).await;
            continue;
        }
        pings.send();
        if !is_answered(&pings, &heard, keepalive.timeout).await {
            let reason = format!("keepalive: no answer within {:?}", keepalive.timeout);
            let reason: Arc<str> = reason.into();
            // Before the streams fail, because their errors quote it.
            state.handle_unresponsive(Arc::clone(&reason));
            return reason;
        }
    }
}

/// Waits for the answer to a PING. Any other bytes of the server count as an answer too.
async fn is_answered(pings: &PingSender, heard: &Heard, timeout: Duration) -> bool {
    let asked = Instant::now();
    loop {
        let last = heard.last().max(asked);
        let Some(deadline) = last.checked_add(timeout) else {
            return pending().await;
        };
        match timeout_at(deadline, pings.answer()).await {
            Ok(true) => return true,
            // The connection is at its end, and its driver says why.
            Ok(false) => return pending().await,
            Err(_) if heard.last() > last => {}
            Err(_) => return false,
        }
    }
}
