//! The state of a connection that its calls need: whether a stream may be opened, and the reason if not.
//!
//! The connection's task writes the state, and calls read it from their own tasks, so it is made of atomics and a
//! semaphore. Of calls, only those that failed take a lock.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, TryAcquireError};

use super::connection::Closing;
use super::error::SendError;
use super::http2::{ConnectionEvent, GoAway, Reason, StreamError};
use super::keepalive::Heard;

/// State of one connection, written by its task and read by every call on it.
///
/// `streams` holds one permit per stream that the server lets us open. The semaphore is closed when the connection
/// takes no new streams. Then waiting and later calls fail at once, as calls that were never sent.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) address: SocketAddr,
    /// The runtime for request pumps, because a call may be polled outside of one.
    pub(super) runtime: Handle,
    streams: Semaphore,
    /// The number of streams that the last SETTINGS allow.
    limit: AtomicUsize,
    /// The number of open streams above a limit that was lowered. The permits of those streams are not given out again.
    owed: AtomicUsize,
    waiting: AtomicUsize,
    settings_seen: AtomicBool,
    /// True if a GOAWAY said that our PINGs are too many. `closing` may not say so, because the server
    /// may close right after the GOAWAY.
    too_many_pings: AtomicBool,
    /// True if the response of a call has begun, or a call that reached the server has ended.
    carried: AtomicBool,
    /// The number of open streams that check the server's health and carry no call.
    checks: AtomicUsize,
    go_away: Mutex<Option<GoAway>>,
    closing: Mutex<Option<Closing>>,
    /// Wakes the owner of the connection when `closing` changes. There is only one listener, so a watch channel would
    /// be ten times its size for nothing.
    closing_changed: Notify,
    /// The time of the server's last bytes, if there is a keepalive that asks for it.
    heard: Option<Arc<Heard>>,
    /// The reason for which keepalive closes the connection.
    unresponsive: OnceLock<Arc<str>>,
}

impl ConnectionState {
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
            checks: AtomicUsize::new(0),
            go_away: Mutex::new(None),
            closing: Mutex::new(None),
            closing_changed: Notify::new(),
        }
    }

    /// Notes the time of the server's bytes in `heard`.
    pub(super) fn listening(mut self, heard: Arc<Heard>) -> Self {
        self.heard = Some(heard);
        self
    }

    /// Handles an event of the connection.
    pub(super) fn handle_event(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Settings {
                max_concurrent_streams,
            } => self.handle_settings(max_concurrent_streams),
            ConnectionEvent::GoAway(goaway) => {
                if is_too_many_pings(&goaway) {
                    self.too_many_pings.store(true, Ordering::Release);
                }
                // Before the streams fail, because their errors quote it.
                *self.go_away() = Some(goaway.clone());
                self.close(Closing::Draining(Some(goaway)));
            }
            ConnectionEvent::Received => {
                if let Some(heard) = &self.heard {
                    heard.beat();
                }
            }
        }
    }

    /// Records that the connection is over. The first reason stays.
    pub(super) fn handle_closed(&self, reason: impl Into<Arc<str>>) {
        self.close(Closing::Closed(reason.into()));
    }

    /// Records that the server did not answer the PING of keepalive. The streams are about to fail for this reason.
    pub(super) fn handle_unresponsive(&self, reason: Arc<str>) {
        // The first reason stays.
        let _ = self.unresponsive.set(Arc::clone(&reason));
        self.handle_closed(reason);
    }

    /// Records that all stream ids are used up (2^30 calls). Nothing is wrong, but a new connection is needed.
    pub(super) fn handle_ids_exhausted(&self) {
        self.close(Closing::Draining(None));
    }

    /// Waits for a free stream. Dropping the future gives up the place in the queue.
    pub(super) async fn permit(
        self: &Arc<Self>,
        purpose: Purpose,
    ) -> Result<StreamPermit, SendError> {
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
        if purpose == Purpose::HealthCheck {
            self.checks.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(heard) = &self.heard {
            heard.stream_begins();
        }
        Ok(StreamPermit {
            state: self.clone(),
            purpose,
        })
    }

    /// The number of calls that wait for a free stream.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The number of open streams.
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

    /// Records that a call was sent. Only the first one writes.
    fn handle_carried(&self) {
        if !self.carried.load(Ordering::Relaxed) {
            self.carried.store(true, Ordering::Relaxed);
        }
    }

    /// True if a call was sent. An open stream counts, because the task of its call may not have run since
    /// the answer came. A stream ends only after it was noted.
    pub(super) fn has_carried_calls(&self) -> bool {
        let checks = self.checks.load(Ordering::Relaxed);
        self.open_streams() > checks || self.carried.load(Ordering::Relaxed)
    }

    /// The server's last GOAWAY. Only a call that failed asks for it.
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

    /// The last step towards the end of the connection.
    pub(super) fn closing(&self) -> MutexGuard<'_, Option<Closing>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a step that came since the last wait. Dropping the future loses nothing.
    pub(super) fn closing_changed(&self) -> Notified<'_> {
        self.closing_changed.notified()
    }

    pub(super) fn never_sent(&self) -> SendError {
        match &*self.closing() {
            Some(closing) => SendError::never_sent(self.address, closing.to_string()),
            None => SendError::never_sent(self.address, "the connection takes no new streams"),
        }
    }

    fn close(&self, closing: Closing) {
        // The reason is set before the semaphore is closed, because a call that finds the semaphore
        // closed reads it.
        let mut current = self.closing();
        let next = match (&*current, closing) {
            (Some(Closing::Closed(_)), _) => None,
            // The reason for which the server went away says more than that it closed.
            (Some(draining @ Closing::Draining(Some(_))), Closing::Closed(reason)) => {
                Some(Closing::Closed(format!("{reason}; {draining}").into()))
            }
            (_, closing) => Some(closing),
        };
        if next.is_some() {
            *current = next;
            self.closing_changed.notify_one();
        }
        drop(current);
        self.streams.close();
    }

    /// Adapts the number of permits. Only the connection's task calls this, so `limit` needs no
    /// read-modify-write.
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
        // Permits that open streams hold cannot be taken back, so their number is kept in `owed`. The number is added
        // first, because streams end meanwhile.
        let fewer = before - limit;
        self.owed.fetch_add(fewer, Ordering::Relaxed);
        let forgotten = self.streams.forget_permits(fewer);
        let paid = self.pay(forgotten);
        self.streams.add_permits(forgotten - paid);
    }

    /// Removes up to `most` permits from `owed`, and returns how many were removed.
    fn pay(&self, most: usize) -> usize {
        // `owed` is 0 most of the time, and then nothing is written.
        let take = |owed: usize| (owed > 0).then(|| owed.saturating_sub(most));
        let owed = self
            .owed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        owed.unwrap_or(0).min(most)
    }
}

/// True if a GOAWAY complains of PINGs. ENHANCE_YOUR_CALM alone may mean anything, so gRFC A8 has the
/// text decide.
fn is_too_many_pings(go_away: &GoAway) -> bool {
    Reason::from(go_away.error_code) == Reason::ENHANCE_YOUR_CALM
        && &*go_away.debug_text == "too_many_pings"
}

/// The reasons for which streams are opened. The reasons differ, because a connection with health checks alone has not
/// shown that calls work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Call,
    /// A health check (gRFC A17).
    HealthCheck,
}

/// The right to one stream. The permit is held for as long as the stream is open.
#[derive(Debug)]
pub(super) struct StreamPermit {
    pub(super) state: Arc<ConnectionState>,
    purpose: Purpose,
}

impl StreamPermit {
    /// Records that the stream has reached the server.
    pub(super) fn handle_carried(&self) {
        if self.purpose == Purpose::Call {
            self.state.handle_carried();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if self.state.pay(1) == 0 {
            self.state.streams.add_permits(1);
        }
        // After the permit: a check must never look like a call.
        if self.purpose == Purpose::HealthCheck {
            self.state.checks.fetch_sub(1, Ordering::Relaxed);
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
        let state = state();
        assert!(!state.settings_seen());
        state.handle_event(settings(None));
        assert!(state.settings_seen());
        let _permit = state.permit(Purpose::Call).await.unwrap();
        assert_eq!(
            state.streams.available_permits(),
            Semaphore::MAX_PERMITS - 1
        );
    }

    /// gRFC A17: a health check does not show that calls work. If it counted, a server that accepts, is asked for its
    /// health and closes would be dialled in a tight loop.
    #[tokio::test]
    async fn a_connection_with_health_checks_only_has_carried_no_call() {
        let state = state();
        state.handle_event(settings(None));
        let check = state.permit(Purpose::HealthCheck).await.unwrap();
        assert!(!state.has_carried_calls());
        check.handle_carried();
        assert!(!state.has_carried_calls());
        let call = state.permit(Purpose::Call).await.unwrap();
        assert!(state.has_carried_calls());
        drop((call, check));
        assert!(!state.has_carried_calls());
        state.permit(Purpose::Call).await.unwrap().handle_carried();
        assert!(state.has_carried_calls());
    }

    #[tokio::test]
    async fn settings_that_do_not_name_the_limit_leave_it_alone() {
        let state = state();
        state.handle_event(settings(Some(3)));
        state.handle_event(settings(None));
        assert_eq!(state.streams.available_permits(), 3);
    }

    /// A limit below the number of open streams is reached as they end, not overshot later.
    #[tokio::test]
    async fn the_limit_follows_the_servers_settings() {
        let state = state();
        state.handle_event(settings(Some(3)));
        let [first, second] = [
            state.permit(Purpose::Call).await.unwrap(),
            state.permit(Purpose::Call).await.unwrap(),
        ];
        state.handle_event(settings(Some(1)));
        assert_eq!(state.streams.available_permits(), 0);
        assert_eq!(state.open_streams(), 2);
        drop(first);
        assert_eq!(state.streams.available_permits(), 0);
        assert_eq!(state.open_streams(), 1);
        state.handle_event(settings(Some(0)));
        state.handle_event(settings(Some(4)));
        assert_eq!(state.streams.available_permits(), 3);
        drop(second);
        assert_eq!(state.streams.available_permits(), 4);
        assert_eq!(state.open_streams(), 0);
    }

    /// gRFC A6: a call that was never sent may go to another server, for any end of its connection.
    #[tokio::test]
    async fn an_unresponsive_server_did_not_act_on_what_was_not_sent() {
        let state = state();
        state.handle_unresponsive("keepalive: no answer within 1s".into());
        let kind = |error: &StreamError| state.stream_error(error).kind();
        let lost = StreamError::Lost("given up".into());
        assert_eq!(kind(&lost), SendErrorKind::Lost);
        assert!(state.stream_error(&lost).to_string().contains("keepalive"));
        let never_sent = StreamError::NeverSent("given up".into());
        assert_eq!(kind(&never_sent), SendErrorKind::NeverSent);
    }

    #[tokio::test]
    async fn a_closed_connection_does_not_go_back_to_draining() {
        let state = state();
        state.handle_closed("broken pipe");
        state.handle_ids_exhausted();
        assert_eq!(
            *state.closing(),
            Some(Closing::Closed("broken pipe".into()))
        );
        let error = state.permit(Purpose::Call).await.unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("the connection is closed (broken pipe)"),
            "{error}"
        );
    }

    /// The error of a closed connection quotes the GOAWAY that came before.
    #[tokio::test]
    async fn a_closed_connection_remembers_why_the_server_went_away() {
        let state = state();
        state.handle_event(ConnectionEvent::GoAway(GoAway {
            last_stream_id: 1,
            error_code: Reason::ENHANCE_YOUR_CALM.into(),
            debug_text: "too_many_pings".into(),
        }));
        assert!(state.too_many_pings());
        state.handle_closed("closed in good order");
        let error = state.permit(Purpose::Call).await.unwrap_err().to_string();
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
        let state = state();
        for debug_text in ["", "too_many_requests", "too_many_pings\n"] {
            state.handle_event(ConnectionEvent::GoAway(GoAway {
                last_stream_id: 1,
                error_code: Reason::ENHANCE_YOUR_CALM.into(),
                debug_text: debug_text.into(),
            }));
            assert!(!state.too_many_pings(), "{debug_text:?}");
        }
    }

    fn state() -> Arc<ConnectionState> {
        Arc::new(ConnectionState::new(
            ([127, 0, 0, 1], 1).into(),
            Handle::current(),
        ))
    }

    fn settings(max_concurrent_streams: Option<u32>) -> ConnectionEvent {
        ConnectionEvent::Settings {
            max_concurrent_streams,
        }
    }
}
