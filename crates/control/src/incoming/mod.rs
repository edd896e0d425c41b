//! The connections to the port of ADS: who may connect, how fast, and with which certificates.
//!
//! Each connection has a task of its own until its handshakes are done, so that one that is slow
//! holds back no other.

mod connection;
mod metered;
mod peer;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crowfly_tls::{ServerSource, accept, client_names};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{debug, warn};

pub(crate) use connection::Connection;
pub(crate) use metered::{Messages, Metered};
#[cfg(test)]
pub(crate) use peer::tests::peer as test_peer;
pub(crate) use peer::{Peer, Share};

use crate::limits::{Gate, Hushes, Limit, LimitMetrics, Limits, Quota, Spent, Ticket};
use connection::Socket;

/// The pause after the system could not accept a connection, mostly because there are too many
/// open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections for the server of gRPC.
pub(crate) type Accepted = mpsc::Sender<io::Result<Connection>>;

/// Accepts connections.
#[derive(Debug)]
pub(crate) struct Incoming {
    listener: TcpListener,
    connections: Arc<Quota>,
    setup: Arc<ConnectionSetup>,
}

/// The part that the task of each new connection uses until the connection is handed to the server.
#[derive(Debug)]
struct ConnectionSetup {
    gate: Mutex<Gate>,
    /// The certificates; `None` without TLS.
    tls: Option<Arc<ServerSource>>,
    limits: Arc<Limits>,
    metrics: LimitMetrics,
    hushes: Arc<Hushes>,
    closed: watch::Receiver<bool>,
}

/// The reason why a connection is not used.
#[derive(Debug)]
struct Refusal {
    /// The kind of the reason, which is a label of the metrics.
    kind: &'static str,
    text: String,
}

impl Incoming {
    /// Connections that are closed when `closed` says so.
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<Arc<ServerSource>>,
        limits: Arc<Limits>,
        metrics: LimitMetrics,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let of_address = limits.of_address(limits.connections);
        Self {
            listener,
            connections: Quota::new(limits.connections, of_address),
            setup: Arc::new(ConnectionSetup {
                gate: Mutex::new(Gate::new(&limits)),
                tls,
                limits,
                metrics,
                hushes: Arc::default(),
                closed,
            }),
        }
    }

    /// Accepts connections until the control plane stops, and closes the port.
    pub(crate) async fn run(self, accepted: Accepted, mut stopping: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                Some(_) = tasks.join_next() => {}
                (socket, address) = self.accept() => {
                    self.admit(socket, address, &accepted, &mut tasks);
                }
            }
        }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    let refusal = Refusal::new("system", error.to_string());
                    self.setup.refuse(None, &refusal);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Takes a connection, unless there are too many.
    fn admit(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        accepted: &Accepted,
        tasks: &mut JoinSet<()>,
    ) {
        let setup = Arc::clone(&self.setup);
        match self.reserve(address) {
            Ok((ticket, at)) => {
                let accepted = accepted.clone();
                tasks.spawn(async move {
                    sleep_until(at.into()).await;
                    let at = setup.gate().enter(Instant::now());
                    match at {
                        Some(at) => sleep_until(at.into()).await,
                        None => return setup.refuse(Some(address), &Refusal::too_fast()),
                    }
                    setup.welcome(socket, address, ticket, &accepted).await;
                });
            }
            Err(refusal) => setup.refuse(Some(address), &refusal),
        }
    }

    fn reserve(&self, address: SocketAddr) -> Result<(Ticket, Instant), Refusal> {
        let ticket = self.connections.take(address.ip()).map_err(|spent| {
            let text = match spent {
                Spent::All(most) => format!("there are {most} connections"),
                Spent::OfAddress(most) => format!("there are {most} connections of this address"),
            };
            Refusal::new(Limit::Connections.name(), text)
        })?;
        let at = self.setup.gate().reserve(address.ip(), Instant::now());
        Ok((ticket, at.ok_or_else(Refusal::too_fast)?))
    }
}

impl ConnectionSetup {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the handshakes with a client, and hands it to the server.
    async fn welcome(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        ticket: Ticket,
        accepted: &Accepted,
    ) {
        let (socket, names) = match self.handshake(socket).await {
            Ok(shaken) => shaken,
            Err(refusal) => return self.refuse(Some(address), &refusal),
        };
        debug!(peer = %address, ?names, "connected");
        let (limits, metrics) = (Arc::clone(&self.limits), self.metrics.clone());
        let hushes = Arc::clone(&self.hushes);
        let peer = Peer::new(address, names, limits, metrics, hushes, ticket);
        // A connection that is closed must not count until this wait is over.
        let weak = peer.downgrade();
        let connection = Connection::new(socket, peer, self.closed.clone());
        if accepted.send(Ok(connection)).await.is_err() {
            return;
        }
        // HTTP/2 has keepalive pings, but only after its own handshake.
        sleep(self.limits.handshake_timeout).await;
        let Some(peer) = weak.upgrade() else { return };
        if !peer.has_spoken() {
            let patience = self.limits.handshake_timeout;
            let text = format!("it did not speak HTTP/2 for {patience:?}");
            self.refuse(Some(address), &Refusal::new("silent", text));
            peer.close();
        }
    }

    /// Makes the handshake of TLS. Returns the names in the certificate of the client, too.
    async fn handshake(&self, socket: TcpStream) -> Result<(Socket, Vec<String>), Refusal> {
        // Small messages must not wait. Without it they are late, and nothing worse.
        socket.set_nodelay(true).ok();
        let Some(tls) = &self.tls else {
            return Ok((Socket::Plain(socket), Vec::new()));
        };
        let patience = self.limits.handshake_timeout;
        let handshake = timeout(patience, accept(tls.current(), socket)).await;
        let failed = |text| Refusal::new("handshake", text);
        let socket = handshake
            .map_err(|_| failed(format!("the TLS handshake took longer than {patience:?}")))?
            .map_err(|error| failed(format!("the TLS handshake failed: {error}")))?;
        let names = client_names(&socket);
        Ok((Socket::Tls(Box::new(socket)), names))
    }

    /// Counts and logs a connection that is not used.
    fn refuse(&self, peer: Option<SocketAddr>, refusal: &Refusal) {
        self.metrics.refused(refusal.kind);
        // An error of the system has no client.
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        if let Some(left_out) = self.hushes.may_tell(address, Instant::now()) {
            let (peer, reason) = (peer.map(tracing::field::display), &refusal.text);
            warn!(peer, reason, left_out, "connection refused");
        }
    }
}

impl Refusal {
    fn too_fast() -> Self {
        let text = "too many connections in a second".to_owned();
        Self::new(Limit::ConnectsPerSecond.name(), text)
    }

    fn new(kind: &'static str, text: String) -> Self {
        Self { kind, text }
    }
}
