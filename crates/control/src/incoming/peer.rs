//! The other end of a connection, and the account of everything that is held for it. All streams of
//! a connection share the account, so that a client gets no more by opening more of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::Status;
use tonic::codegen::http::Extensions;

use crate::limits::{Beyond, Hushes, Limit, LimitMetrics, Limits, Pacer, Ticket};

/// The seconds' worth of requests that a client may make at once, because it asks for everything
/// when it starts.
const BURST_SECONDS: u32 = 10;

/// The bytes of a request that count as one request.
const BYTES_OF_REQUEST: usize = 64 << 10;

/// The most characters of a node id that are kept.
const MAX_NODE_ID: usize = 128;

/// The other end of a connection. Clones share the account.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Account>);

/// A peer that does not keep its connection among those that count.
#[derive(Debug)]
pub(super) struct WeakPeer(Weak<Account>);

impl WeakPeer {
    /// The peer; `None` if its connection is gone.
    pub(super) fn upgrade(&self) -> Option<Peer> {
        self.0.upgrade().map(Peer)
    }
}

#[derive(Debug)]
struct Account {
    address: SocketAddr,
    names: Vec<String>,
    /// The first node id that the client said.
    node: OnceLock<Box<str>>,
    limits: Arc<Limits>,
    metrics: LimitMetrics,
    requests: Mutex<Pacer>,
    held: AtomicUsize,
    /// True once the client has begun to speak HTTP/2.
    has_spoken: AtomicBool,
    closed: watch::Sender<bool>,
    /// The log lines that clients can cause at will.
    hushes: Arc<Hushes>,
    _ticket: Ticket,
}

impl Peer {
    /// A client that has just connected. The names are those of its certificate.
    pub(super) fn new(
        address: SocketAddr,
        names: Vec<String>,
        limits: Arc<Limits>,
        metrics: LimitMetrics,
        hushes: Arc<Hushes>,
        ticket: Ticket,
    ) -> Self {
        metrics.connected();
        let requests = Pacer::new(limits.requests_per_second, BURST_SECONDS);
        Self(Arc::new(Account {
            address,
            names,
            node: OnceLock::new(),
            limits,
            metrics,
            requests: Mutex::new(requests),
            held: AtomicUsize::new(0),
            has_spoken: AtomicBool::new(false),
            closed: watch::Sender::new(false),
            hushes,
            _ticket: ticket,
        }))
    }

    pub(super) fn downgrade(&self) -> WeakPeer {
        WeakPeer(Arc::downgrade(&self.0))
    }

    /// The peer of a request.
    ///
    /// # Errors
    /// The request did not come over a connection of [`Incoming`](super::Incoming).
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, Status> {
        let peer = extensions.get::<Self>().cloned();
        peer.ok_or_else(|| Status::internal("the request has no connection"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The names in the certificate of the client; none without one.
    pub(crate) fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Keeps the node id that the client said on a stream, unless it said one before.
    pub(crate) fn introduced(&self, node: &str) {
        let id = || node.chars().take(MAX_NODE_ID).collect();
        self.0.node.get_or_init(id);
    }

    /// The first node id that the client said on any stream; empty before that. It names a client that goes beyond a
    /// limit with the first request of another stream.
    pub(crate) fn node_id(&self) -> &str {
        self.0.node.get().map(|id| &**id).unwrap_or_default()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Counts that the client, which says that it is `node`, reached a limit.
    pub(crate) fn reached(&self, limit: Limit, node: &str) {
        self.0.metrics.limited(limit, node);
    }

    /// The number of log lines about the client that were left out before the next one; `None` if that is left out,
    /// too. Each address has its own number, so that a client has no more lines by connecting again.
    pub(crate) fn may_tell(&self) -> Option<u64> {
        let address = self.0.address.ip();
        self.0.hushes.may_tell(address, Instant::now())
    }

    /// The time until which the client is to wait after a request of this size; `None` if that is
    /// later than `patience` from now.
    pub(crate) fn pace(&self, bytes: usize, patience: Duration, now: Instant) -> Option<Instant> {
        self.pace_by(units(bytes).saturating_add(1), patience, now)
    }

    /// The time until which the client is to wait after `count` small requests.
    pub(crate) fn pace_small(&self, count: u32, now: Instant) -> Instant {
        self.pace_by(count, Duration::MAX, now).unwrap_or(now)
    }

    /// The time until which the client is to wait after an answer to a response; `now` if not at all. The answer itself is
    /// free, because there are no more answers than responses. Its bytes are not, because the client chooses them.
    pub(crate) fn pace_answer(&self, bytes: usize, now: Instant) -> Instant {
        match units(bytes) {
            0 => now,
            cost => self.pace_by(cost, Duration::MAX, now).unwrap_or(now),
        }
    }

    fn pace_by(&self, cost: u32, patience: Duration, now: Instant) -> Option<Instant> {
        let requests = self.0.requests.lock();
        let mut requests = requests.unwrap_or_else(PoisonError::into_inner);
        requests.reserve(cost, patience, now)
    }

    /// A share of the bytes that may be held for the client.
    pub(crate) fn share(&self) -> Share {
        Share {
            peer: self.clone(),
            bytes: 0,
        }
    }

    /// Closes the connection at once.
    pub(crate) fn close(&self) {
        self.0.closed.send_replace(true);
    }

    pub(super) fn closed(&self) -> watch::Receiver<bool> {
        self.0.closed.subscribe()
    }

    pub(super) fn speaks(&self) {
        self.0.has_spoken.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_spoken(&self) -> bool {
        self.0.has_spoken.load(Ordering::Relaxed)
    }
}

/// The number of requests that so many bytes count for, besides the one that has them.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes / BYTES_OF_REQUEST).unwrap_or(u32::MAX)
}

impl Drop for Account {
    fn drop(&mut self) {
        self.metrics.disconnected();
    }
}

/// A part of the bytes that are held for a client. They are free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    peer: Peer,
    bytes: usize,
}

impl Share {
    /// The limits of the client.
    pub(crate) fn limits(&self) -> &Limits {
        self.peer.limits()
    }

    /// Sets the number of bytes.
    ///
    /// # Errors
    /// All streams of the connection together hold more than they may.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Beyond> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let account = &self.peer.0;
        let was = account
            .held
            .fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        let held = was.wrapping_add(bytes).wrapping_sub(before);
        let most = account.limits.held_bytes;
        if bytes <= before || held <= most {
            return Ok(());
        }
        let text = format!(
            "expected at most {most} bytes of names, node, requests and responses without an ACK on all streams of a \
             connection, got {held}"
        );
        Err(Beyond::new(Limit::HeldBytes, text))
    }

    /// Sets the number of bytes, if it is more than before.
    ///
    /// # Errors
    /// All streams of the connection together hold more than they may.
    pub(crate) fn raise(&mut self, bytes: usize) -> Result<(), Beyond> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.set(bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.peer.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::Quota;

    /// A client at loopback.
    pub(crate) fn peer(limits: Limits) -> Peer {
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        let ticket = Quota::new(1, 1).take(address.ip()).unwrap();
        let metrics = LimitMetrics::default();
        Peer::new(
            address,
            Vec::new(),
            Arc::new(limits),
            metrics,
            Arc::default(),
            ticket,
        )
    }

    proptest! {
        /// L-08: the streams of a connection hold no more than they may together, and all of it is
        /// free when they are gone.
        #[test]
        fn shares_add_up(steps in prop::collection::vec((0_usize..5, 0_usize..100), 0..100)) {
            let peer = peer(Limits { held_bytes: 200, ..Limits::default() });
            let mut shares: Vec<Share> = (0..5).map(|_| peer.share()).collect();
            for (index, bytes) in steps {
                let grows = bytes > shares[index].bytes;
                let outcome = shares[index].set(bytes);
                let held: usize = shares.iter().map(|share| share.bytes).sum();
                prop_assert_eq!(outcome.is_err(), grows && held > 200);
                prop_assert_eq!(peer.0.held.load(Ordering::Relaxed), held);
                if outcome.is_err() {
                    // The stream ends.
                    shares[index] = peer.share();
                }
            }
            shares.clear();
            prop_assert_eq!(peer.0.held.load(Ordering::Relaxed), 0);
        }
    }

    /// Large requests count for several, so that a client cannot keep us busy with few of them.
    #[test]
    fn requests_are_paced_by_their_size() {
        let limits = Limits {
            requests_per_second: 10,
            ..Limits::default()
        };
        let (patience, now) = (Duration::ZERO, Instant::now());
        for (bytes, expected) in [(100, 100), (1 << 20, 5)] {
            let peer = peer(limits.clone());
            let taken = (0..1_000).filter(|_| peer.pace(bytes, patience, now).is_some());
            assert_eq!(taken.count(), expected);
        }
    }

    /// L-05: answers are free, except for the bytes of large ones.
    #[test]
    fn answers_are_paced_by_their_size_alone() {
        let limits = Limits {
            requests_per_second: 10,
            ..Limits::default()
        };
        let (peer, now) = (peer(limits), Instant::now());
        for (bytes, expected) in [(BYTES_OF_REQUEST - 1, 1_000), (1 << 20, 6)] {
            let free = (0..1_000).take_while(|_| peer.pace_answer(bytes, now) == now);
            assert_eq!(free.count(), expected);
        }
    }
}
