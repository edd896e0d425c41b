//! What the connection task knows and its senders need: may a stream be opened, and if not, why.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, TryAcquireError, watch};

use super::connection::Closing;
use super::error::SendError;
use super::http2::{Event, GoAway, Reason, StreamError};
use super::keepalive::Heard;

/// State of one connection, written by its task and read by every call on it.
///
/// `streams` holds one permit per stream the server lets us open. Closing the semaphore is what "no
/// new streams" means: waiters and later callers fail at once, as calls that never left.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    /// Where request pumps run, so that a call may be polled outside of the runtime.
    pub(super) runtime: Handle,
    streams: Semaphore,
    /// What the last SETTINGS allow.
    limit: AtomicUsize,
    /// How many open streams are above a limit that was lowered: their permits are not given out
    /// again.
    owed: AtomicUsize,
    waiting: AtomicUsize,
    settings_seen: AtomicBool,
    /// Whether a GOAWAY said that our PINGs are too many. The server may close right after it, and
    /// then that is all that `closing` has to tell.
    too_many_pings: AtomicBool,
    /// Whether a stream that reached the server has ended, or its response has begun.
    carried: AtomicBool,
    go_away: Mutex<Option<GoAway>>,
    closing: watch::Sender<Option<Closing>>,
    /// Written only if someone wants to know.
    heard: Option<Arc<Heard>>,
    /// Why we gave up on the server, if we did.
    unresponsive: OnceLock<Arc<str>>,
}

impl Shared {
    pub(super) fn new(address: SocketAddr, runtime: Handle) -> Self {
        Self {
            address,
            runtime,
            heard: None,
            unresponsive: OnceLock::new(),
            streams: Semaphore::new(0),
            limit: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            settings_seen: AtomicBool::new(false),
            too_many_pings: AtomicBool::new(false),
            carried: AtomicBool::new(false),
            go_away: Mutex::new(None),
            closing: watch::Sender::new(None),
        }
    }

    /// Has the time of the server's last sign of life written down.
    pub(super) fn listening(mut self, heard: Arc<Heard>) -> Self {
        self.heard = Some(heard);
        self
    }

    /// Takes in what the server said.
    pub(super) fn handle_event(&self, event: Event) {
        match event {
            Event::Settings {
                max_concurrent_streams,
            } => self.handle_settings(max_concurrent_streams),
            Event::GoAway(goaway) => {
                if is_too_many_pings(&goaway) {
                    self.too_many_pings.store(true, Ordering::Release);
                }
                // Before the streams fail, since they tell it.
                *self.go_away() = Some(goaway.clone());
                self.close(Closing::Draining(Some(goaway)));
            }
            Event::Received => {
                if let Some(heard) = &self.heard {
                    heard.beat();
                }
            }
        }
    }

    /// The connection is over. Later calls change nothing.
    pub(super) fn handle_closed(&self, reason: impl Into<Arc<str>>) {
        self.close(Closing::Closed(reason.into()));
    }

    /// The server is given up on: its streams are about to fail for this reason.
    pub(super) fn handle_unresponsive(&self, reason: Arc<str>) {
        // The first reason is the reason.
        let _ = self.unresponsive.set(Arc::clone(&reason));
        self.handle_closed(reason);
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
        if let Some(heard) = &self.heard {
            heard.stream_begins();
        }
        Ok(StreamPermit {
            shared: self.clone(),
        })
    }

    /// Calls that wait for the server's stream limit.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many streams are open.
    pub(super) fn open_streams(&self) -> usize {
        let permits = self.limit.load(Ordering::Relaxed) + self.owed.load(Ordering::Relaxed);
        permits.saturating_sub(self.streams.available_permits())
    }

    /// The error of a stream that was open.
    pub(super) fn stream_error(&self, error: &StreamError) -> SendError {
        let is_about_the_connection =
            matches!(error, StreamError::Lost(_) | StreamError::Refused(_));
        match (error, self.unresponsive.get(), &*self.go_away()) {
            (StreamError::Lost(_), Some(reason), _) => SendError::lost(self.address, &**reason),
            (_, _, Some(go_away)) if is_about_the_connection => {
                SendError::of_stream(self.address, error).explained(go_away)
            }
            _ => SendError::of_stream(self.address, error),
        }
    }

    /// A call was sent. Only the first one writes.
    pub(super) fn handle_carried(&self) {
        if !self.carried.load(Ordering::Relaxed) {
            self.carried.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a call was sent. An open stream counts, because its task may not have run since it
    /// was answered; a stream ends only after it was noted.
    pub(super) fn has_carried_calls(&self) -> bool {
        self.open_streams() > 0 || self.carried.load(Ordering::Relaxed)
    }

    /// The server's last GOAWAY. It is asked for when something went wrong, never by a call that goes
    /// well.
    fn go_away(&self) -> MutexGuard<'_, Option<GoAway>> {
        self.go_away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.streams.is_closed()
    }

    pub(super) fn too_many_pings(&self) -> bool {
        self.too_many_pings.load(Ordering::Acquire)
    }

    pub(super) fn settings_seen(&self) -> bool {
        self.settings_seen.load(Ordering::Acquire)
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
            *current = match (current.take(), closing) {
                (Some(closed @ Closing::Closed(_)), _) => {
                    *current = Some(closed);
                    return false;
                }
                // What the server complained of tells more than that it closed then.
                (Some(draining @ Closing::Draining(Some(_))), Closing::Closed(reason)) => {
                    Some(Closing::Closed(format!("{reason}; {draining}").into()))
                }
                (_, closing) => Some(closing),
            };
            true
        });
        self.streams.close();
    }

    /// Called by the connection task only, so `limit` needs no read-modify-write.
    fn handle_settings(&self, limit: Option<u32>) {
        let first = !self.settings_seen.swap(true, Ordering::AcqRel);
        let limit = match limit {
            Some(limit) => (limit as usize).min(Semaphore::MAX_PERMITS),
            // Unlimited unless the server says otherwise (RFC 9113, section 6.5.2).
            None if first => Semaphore::MAX_PERMITS,
            None => return,
        };
        let before = self.limit.swap(limit, Ordering::Relaxed);
        if let Some(more) = limit.checked_sub(before) {
            let paid = self.pay(more);
            self.streams.add_permits(more - paid);
            return;
        }
        // Permits held by open streams cannot be called back: what cannot be forgotten is owed. It
        // is written down first, since streams end meanwhile.
        let fewer = before - limit;
        self.owed.fetch_add(fewer, Ordering::Relaxed);
        let forgotten = self.streams.forget_permits(fewer);
        let paid = self.pay(forgotten);
        self.streams.add_permits(forgotten - paid);
    }

    /// Takes up to so many from what is owed; how many.
    fn pay(&self, most: usize) -> usize {
        // Nothing is owed most of the time: then nothing is written.
        let take = |owed: usize| (owed > 0).then(|| owed.saturating_sub(most));
        let owed = self
            .owed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        owed.unwrap_or(0).min(most)
    }
}

/// gRFC A8: ENHANCE_YOUR_CALM alone may mean anything; the text says that it is the PINGs.
fn is_too_many_pings(go_away: &GoAway) -> bool {
    Reason::from(go_away.error_code) == Reason::ENHANCE_YOUR_CALM
        && &*go_away.debug_text == "too_many_pings"
}

/// The right to one stream, held for as long as the stream is open.
#[derive(Debug)]
pub(super) struct StreamPermit {
    pub(super) shared: Arc<Shared>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if self.shared.pay(1) == 0 {
            self.shared.streams.add_permits(1);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::SendErrorKind;

    /// RFC 9113, section 6.5.2: there is no limit until the server sets one.
    #[tokio::test]
    async fn without_a_limit_streams_are_free() {
        let shared = shared();
        assert!(!shared.settings_seen());
        shared.handle_event(settings(None));
        assert!(shared.settings_seen());
        let _permit = shared.permit().await.unwrap();
        assert_eq!(
            shared.streams.available_permits(),
            Semaphore::MAX_PERMITS - 1
        );
    }

    #[tokio::test]
    async fn settings_that_do_not_name_the_limit_leave_it_alone() {
        let shared = shared();
        shared.handle_event(settings(Some(3)));
        shared.handle_event(settings(None));
        assert_eq!(shared.streams.available_permits(), 3);
    }

    /// A limit below the number of open streams is reached as they end, not overshot later.
    #[tokio::test]
    async fn the_limit_follows_the_servers_settings() {
        let shared = shared();
        shared.handle_event(settings(Some(3)));
        let [first, second] = [
            shared.permit().await.unwrap(),
            shared.permit().await.unwrap(),
        ];
        shared.handle_event(settings(Some(1)));
        assert_eq!(shared.streams.available_permits(), 0);
        assert_eq!(shared.open_streams(), 2);
        drop(first);
        assert_eq!(shared.streams.available_permits(), 0);
        assert_eq!(shared.open_streams(), 1);
        shared.handle_event(settings(Some(0)));
        shared.handle_event(settings(Some(4)));
        assert_eq!(shared.streams.available_permits(), 3);
        drop(second);
        assert_eq!(shared.streams.available_permits(), 4);
        assert_eq!(shared.open_streams(), 0);
    }

    /// gRFC A6: a call that never left may go elsewhere, whatever ended its connection.
    #[tokio::test]
    async fn an_unresponsive_server_did_not_act_on_what_was_not_sent() {
        let shared = shared();
        shared.handle_unresponsive("keepalive: no answer within 1s".into());
        let kind = |error: &StreamError| shared.stream_error(error).kind();
        let lost = StreamError::Lost("given up".into());
        assert_eq!(kind(&lost), SendErrorKind::Lost);
        assert!(shared.stream_error(&lost).to_string().contains("keepalive"));
        let never_sent = StreamError::NeverSent("given up".into());
        assert_eq!(kind(&never_sent), SendErrorKind::NeverSent);
    }

    #[tokio::test]
    async fn a_closed_connection_does_not_go_back_to_draining() {
        let shared = shared();
        shared.handle_closed("broken pipe");
        shared.handle_ids_exhausted();
        assert_eq!(
            *shared.watch().borrow(),
            Some(Closing::Closed("broken pipe".into()))
        );
        let error = shared.permit().await.unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("the connection is closed (broken pipe)"),
            "{error}"
        );
    }

    /// A server that goes away and closes at once has said why, and that is not lost.
    #[tokio::test]
    async fn a_closed_connection_remembers_why_the_server_went_away() {
        let shared = shared();
        shared.handle_event(Event::GoAway(GoAway {
            last_stream_id: 1,
            error_code: Reason::ENHANCE_YOUR_CALM.into(),
            debug_text: "too_many_pings".into(),
        }));
        assert!(shared.too_many_pings());
        shared.handle_closed("closed in good order");
        let error = shared.permit().await.unwrap_err().to_string();
        assert!(
            error.ends_with(
                "(closed in good order; the server is going away (ENHANCE_YOUR_CALM: \"too_many_pings\"))"
            ),
            "{error}"
        );
    }

    /// gRFC A8: only `too_many_pings` is about PINGs; calm may be wanted for other reasons.
    #[tokio::test]
    async fn calm_for_another_reason_is_not_about_pings() {
        let shared = shared();
        for debug_text in ["", "too_many_requests", "too_many_pings\n"] {
            shared.handle_event(Event::GoAway(GoAway {
                last_stream_id: 1,
                error_code: Reason::ENHANCE_YOUR_CALM.into(),
                debug_text: debug_text.into(),
            }));
            assert!(!shared.too_many_pings(), "{debug_text:?}");
        }
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::new(([127, 0, 0, 1], 1).into(), Handle::current()))
    }

    fn settings(max_concurrent_streams: Option<u32>) -> Event {
        Event::Settings {
            max_concurrent_streams,
        }
    }
}
