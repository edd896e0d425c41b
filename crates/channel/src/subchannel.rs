//! One address, and the connections to it, one after the other. Each subchannel has its own
//! backoff, because one address may fail while others work.
//!
//! ```text
//!         wanted            SETTINGS read            GOAWAY or closed
//!  IDLE ─────────> CONNECTING ─────────> READY ────────────────────────> IDLE
//!   ^                  │ failed
//!   └── backoff over ── TRANSIENT_FAILURE
//! ```
//!
//! A subchannel connects only when its owner wants it. After each return to IDLE the owner decides
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crowfly_lb::EndpointState;
use crowfly_xds::Backoff;
use futures_channel::mpsc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::health::Health;
use crate::subchannels::SubchannelKey;
use crate::transport::{Closing, ConnectError, Connection, Sender};

/// A connection that carried no call and ended sooner than this counts as a failed attempt.
/// Otherwise a server that accepts and closes at once would be dialled in a tight loop.
///
/// A connection that carried a call is never a failed attempt, even if it ends soon. Proxies send
/// GOAWAY after a number of requests, which under load is soon reached (nginx's
/// `keepalive_requests`, Envoy's `max_requests_per_connection`).
const SETTLED: Duration = Duration::from_secs(1);

/// Names a subchannel, uniquely within its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubchannelId {
    pub(crate) key: SubchannelKey,
    /// A number that tells the subchannel apart from earlier ones with the same key.
    pub(crate) serial: u64,
}

/// A report of a subchannel: its id and its news.
pub(crate) type Report = (SubchannelId, News);

/// The news of a subchannel.
#[derive(Debug)]
pub(crate) enum News {
    /// The health of the subchannel's server, by the check of this number.
    Health(u64, Health),
    /// The state of the subchannel, without regard to the health of its server.
    State(EndpointState<Sender>),
}

/// The part of connecting that all subchannels of a channel share, even with different profiles.
#[derive(Debug)]
pub(crate) struct Dialling {
    /// The time limit for TCP, TLS and SETTINGS together.
    timeout: Duration,
    /// The number of times that the time between PINGs was doubled. One complaint of a server slows
    /// all later connections of the channel (gRFC A8).
    slowed: AtomicU32,
}

impl Dialling {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            slowed: AtomicU32::new(0),
        }
    }

    /// Connects. Returns the connection, and the number of doublings that its time between PINGs
    /// includes.
    async fn connect(&self, key: &SubchannelKey) -> Result<(Connection, u32), ConnectError> {
        let slowed = self.slowed.load(Ordering::Relaxed);
        let profile = key.profile.slowed(slowed);
        let connection = Connection::connect(key.address, &profile, self.timeout).await?;
        Ok((connection, slowed))
    }

    /// Doubles the time between PINGs, because a server complained. `slowed` is the number of
    /// doublings of the connection that it complained of.
    fn slow_down(&self, slowed: u32) {
        // Complaints of several connections with the same time between PINGs count once.
        let next = slowed.saturating_add(1);
        self.slowed.fetch_max(next, Ordering::Relaxed);
    }
}

/// The handle of a subchannel; dropping it abandons an attempt to connect and lets open calls
/// finish.
#[derive(Debug)]
pub(crate) struct Subchannel {
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Subchannel {
    pub(crate) fn start(
        id: SubchannelId,
        dialling: Arc<Dialling>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Self {
        let wanted = Arc::new(Notify::new());
        let mut machine = Machine {
            id,
            dialling,
            reports,
            backoff: Backoff::new(fastrand::u64(..)),
        };
        let wish = Arc::clone(&wanted);
        let task = tokio::spawn(async move { machine.run(&wish).await });
        Self { wanted, task }
    }

    /// Asks for a connection, now or as soon as the subchannel is idle.
    pub(crate) fn connect(&self) {
        self.wanted.notify_one();
    }
}

impl Drop for Subchannel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Machine {
    id: SubchannelId,
    dialling: Arc<Dialling>,
    reports: mpsc::UnboundedSender<Report>,
    backoff: Backoff,
}

impl Machine {
    async fn run(&mut self, wanted: &Notify) {
        loop {
            wanted.notified().await;
            self.report(EndpointState::Connecting);
            if let Some(reason) = self.attempt().await {
                self.report(EndpointState::TransientFailure(reason));
                sleep(self.backoff.next_wait()).await;
            }
            self.report(EndpointState::Idle);
        }
    }

    /// Connects, and stays with the connection until it takes no more calls. Returns the reason if that
    /// counts as a failed attempt.
    async fn attempt(&mut self) -> Option<Arc<str>> {
        // Boxed, so that the task is not as large as a TLS handshake for ever.
        let connect = Box::pin(self.dialling.connect(&self.id.key));
        let (mut connection, slowed) = match connect.await {
            Ok(connected) => connected,
            Err(error) => {
                debug!(address = %self.id.key.address, %error, "cannot connect");
                return Some(format!("{}: {}", error.phase, error.reason).into());
            }
        };
        let since = self.connected(&connection);
        let closing = connection.closing().await;
        if connection.has_too_many_pings() {
            warn!(address = %self.id.key.address, "the server complains of too many PINGs: \
                   new connections of this channel send half as many");
            self.dialling.slow_down(slowed);
        }
        self.closed(&connection, &closing, since)
    }

    /// Reports the connection as READY, and returns the time.
    fn connected(&self, connection: &Connection) -> Instant {
        debug!(address = %self.id.key.address, "connected");
        self.report(EndpointState::Ready {
            transport: connection.sender().clone(),
            address: self.id.key.address,
        });
        Instant::now()
    }

    /// Handles the end of a connection, which takes no more calls; open calls go on. Returns the
    /// reason if the connection counts as a failed attempt (see [`SETTLED`]).
    fn closed(
        &mut self,
        connection: &Connection,
        closing: &Closing,
        since: Instant,
    ) -> Option<Arc<str>> {
        info!(address = %self.id.key.address, reason = %closing, "no new calls on this connection");
        if connection.has_carried_calls() || since.elapsed() >= SETTLED {
            self.backoff.reset();
            return None;
        }
        Some(closing.to_string().into())
    }

    fn report(&self, state: EndpointState<Sender>) {
        // Sending fails only when the whole channel is dropped.
        let _ = self
            .reports
            .unbounded_send((self.id.clone(), News::State(state)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Keepalive, Profile};

    /// gRFC A8: the time between PINGs is doubled for new connections of the channel. Connections
    /// that were made at the same time have one complaint.
    #[test]
    fn a_complaint_of_pings_slows_the_whole_channel() {
        let often = Keepalive {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            while_idle: false,
        };
        let profile = |seconds| {
            Profile::plaintext().with_keepalive(Keepalive {
                interval: Duration::from_secs(seconds),
                ..often
            })
        };
        let dialling = Dialling::new(Duration::MAX);
        let next = || {
            let slowed = dialling.slowed.load(Ordering::Relaxed);
            profile(10).slowed(slowed)
        };
        assert_eq!(next(), profile(10));
        dialling.slow_down(0);
        dialling.slow_down(0);
        assert_eq!(next(), profile(20));
        dialling.slow_down(1);
        dialling.slow_down(0);
        assert_eq!(next(), profile(40));
    }
}
