//! One address, and the connections to it, one after the other.
//!
//! ```text
//!         wanted            SETTINGS read            GOAWAY or closed
//!  IDLE ─────────> CONNECTING ─────────> READY ────────────────────────> IDLE
//!   ^                  │ failed
//!   └── backoff over ── TRANSIENT_FAILURE
//! ```
//!
//! A subchannel only connects when it is wanted: after each return to IDLE its owner decides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_lb::EndpointState;
use crowfly_xds::Backoff;
use futures_channel::mpsc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::transport::{Closing, Connection, Profile, Sender};

/// A connection that does not last this long counts as a failed attempt: otherwise a server that
/// accepts and closes at once would be dialled in a tight loop.
const SETTLED: Duration = Duration::from_secs(1);

/// Names a subchannel for as long as the channel lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubchannelId(pub(crate) u64);

/// What a subchannel reports.
pub(crate) type Report = (SubchannelId, EndpointState<Sender>);

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
        address: SocketAddr,
        profile: Profile,
        connect_timeout: Duration,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Self {
        let wanted = Arc::new(Notify::new());
        let mut machine = Machine {
            id,
            address,
            profile,
            connect_timeout,
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
    address: SocketAddr,
    profile: Profile,
    connect_timeout: Duration,
    reports: mpsc::UnboundedSender<Report>,
    backoff: Backoff,
}

impl Machine {
    async fn run(&mut self, wanted: &Notify) {
        loop {
            wanted.notified().await;
            self.report(EndpointState::Connecting);
            // Boxed, so that the task is not as large as a TLS handshake for ever.
            let connect = Connection::connect(self.address, &self.profile, self.connect_timeout);
            let failure = match Box::pin(connect).await {
                Ok(mut connection) => {
                    let since = self.connected(&connection);
                    let closing = connection.closing().await;
                    self.closed(&connection, &closing, since)
                }
                Err(error) => {
                    debug!(address = %self.address, %error, "cannot connect");
                    Some(format!("{}: {}", error.phase, error.reason).into())
                }
            };
            if let Some(reason) = failure {
                self.report(EndpointState::TransientFailure(reason));
                sleep(self.backoff.next_wait()).await;
            }
            self.report(EndpointState::Idle);
        }
    }

    /// Offers the connection; since when.
    fn connected(&self, connection: &Connection) -> Instant {
        info!(address = %self.address, "connected");
        self.report(EndpointState::Ready(connection.sender().clone()));
        Instant::now()
    }

    /// The connection takes no more calls; open ones go on without us. If that was too soon, the
    /// reason.
    fn closed(
        &mut self,
        connection: &Connection,
        closing: &Closing,
        since: Instant,
    ) -> Option<Arc<str>> {
        info!(address = %self.address, reason = %closing, "no new calls on this connection");
        if connection.has_too_many_pings() {
            self.profile = self.profile.clone().slowed();
        }
        if since.elapsed() < SETTLED {
            return Some(closing.to_string().into());
        }
        self.backoff.reset();
        None
    }

    fn report(&self, state: EndpointState<Sender>) {
        // The owner is gone only when the channel is.
        let _ = self.reports.unbounded_send((self.id, state));
    }
}
