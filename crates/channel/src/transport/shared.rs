//! What the connection task knows and its senders need: may a stream be opened, and if not, why.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, TryAcquireError, watch};

use super::connection::Closing;
use super::error::SendError;
use super::tap::Seen;

/// State of one connection, written by its task and read by every call on it.
///
/// `streams` holds one permit per stream the server lets us open. `h2` would queue surplus streams
/// by itself, but without telling anyone, and such a stream would look "sent" when a GOAWAY comes.
/// Closing the semaphore is what "no new streams" means: waiters and later callers fail at once,
/// as calls that never left.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    /// Where request pumps run, so that a call may be polled outside of the runtime.
    pub(super) runtime: Handle,
    streams: Semaphore,
    /// Permits in circulation: what the last SETTINGS allow, once a lowered limit has been
    /// regained from the streams that were open at the time.
    granted: AtomicUsize,
    waiting: AtomicUsize,
    settings_seen: AtomicBool,
    /// [`NO_GOAWAY`] until a GOAWAY is seen. Stream ids have 31 bits, so it collides with none.
    last_stream_id: AtomicU32,
    closing: watch::Sender<Option<Closing>>,
}

impl Shared {
    pub(super) fn new(address: SocketAddr, runtime: Handle) -> Self {
        Self {
            address,
            runtime,
            streams: Semaphore::new(0),
            granted: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            settings_seen: AtomicBool::new(false),
            last_stream_id: AtomicU32::new(NO_GOAWAY),
            closing: watch::Sender::new(None),
        }
    }

    /// Takes in what the tap saw.
    pub(super) fn handle_seen(&self, seen: Seen) {
        match seen {
            Seen::Settings {
                max_concurrent_streams,
            } => self.handle_settings(max_concurrent_streams),
            Seen::GoAway(goaway) => {
                self.last_stream_id
                    .store(goaway.last_stream_id, Ordering::Release);
                self.close(Closing::Draining(Some(goaway)));
            }
        }
    }

    /// The connection is over. Later calls change nothing.
    pub(super) fn handle_closed(&self, reason: impl Into<Arc<str>>) {
        self.close(Closing::Closed(reason.into()));
    }

    /// All stream ids are used up (2^30 calls): nothing is wrong, but a new connection is needed.
    pub(super) fn handle_ids_exhausted(&self) {
        self.close(Closing::Draining(None));
    }

    /// Waits for a stream to be free. Dropping the future gives up the place in the queue.
    pub(super) async fn permit(self: &Arc<Self>) -> Result<StreamPermit, SendError> {
        let permit = match self.streams.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::Closed) => return Err(self.never_sent()),
            Err(TryAcquireError::NoPermits) => {
                let _waiting = Waiting::new(&self.waiting);
                self.streams
                    .acquire()
                    .await
                    .map_err(|_| self.never_sent())?
            }
        };
        permit.forget();
        Ok(StreamPermit {
            shared: self.clone(),
        })
    }

    /// Calls that wait for the server's stream limit.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.streams.is_closed()
    }

    pub(super) fn settings_seen(&self) -> bool {
        self.settings_seen.load(Ordering::Acquire)
    }

    /// Whether the server promised never to act on this stream.
    pub(super) fn is_above_goaway(&self, stream_id: u32) -> bool {
        stream_id > self.last_stream_id.load(Ordering::Acquire)
    }

    pub(super) fn watch(&self) -> watch::Receiver<Option<Closing>> {
        self.closing.subscribe()
    }

    pub(super) fn never_sent(&self) -> SendError {
        match &*self.closing.borrow() {
            Some(closing) => SendError::never_sent(self.address, closing.to_string()),
            None => SendError::never_sent(self.address, "the connection takes no new streams"),
        }
    }

    fn close(&self, closing: Closing) {
        // The reason first: whoever finds the semaphore closed finds it.
        self.closing.send_if_modified(|current| {
            if matches!(current, Some(Closing::Closed(_))) {
                return false;
            }
            *current = Some(closing);
            true
        });
        self.streams.close();
    }

    /// Called by the connection task only, so `granted` needs no read-modify-write.
    fn handle_settings(&self, limit: Option<u32>) {
        let first = !self.settings_seen.swap(true, Ordering::AcqRel);
        let limit = match limit {
            Some(limit) => (limit as usize).min(Semaphore::MAX_PERMITS),
            // Unlimited unless the server says otherwise (RFC 9113, section 6.5.2).
            None if first => Semaphore::MAX_PERMITS,
            None => return,
        };
        let granted = self.granted.load(Ordering::Relaxed);
        let now = if limit >= granted {
            self.streams.add_permits(limit - granted);
            limit
        } else {
            // Permits held by open streams cannot be called back: h2 queues what they let through.
            granted - self.streams.forget_permits(granted - limit)
        };
        self.granted.store(now, Ordering::Relaxed);
    }
}

/// The right to one stream, held for as long as the stream is open.
#[derive(Debug)]
pub(super) struct StreamPermit {
    pub(super) shared: Arc<Shared>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.shared.streams.add_permits(1);
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const NO_GOAWAY: u32 = u32::MAX;
