//! Drives one stream: it moves messages between the socket and a server half.
//!
//! The server half holds the rules of the protocol without I/O, so that tests can run them in simulated time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crowfly_xds::{ClientNode, RequestOutcome, Response, ServerHalf, StreamSettings};
use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message;
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::{debug, info, warn};

use crate::admission::Admitted;
use crate::clients::{ClientHandle, Since, Talk, cut, logged, unix};
use crate::conduct::{Conduct, Slowness};
use crate::ending::{End, too_large};
use crate::limits::{Beyond, Hush, Limit, Ticket};
use crate::seat::Seat;

use super::body::Sender;
use super::check;
use super::requests::Requests;
use super::wire::Fields;

/// The largest message that gRPC clients take if nothing else is set. A client that is sent more
/// ends the stream, and would be sent the same again.
const USUAL_LIMIT: usize = 4 << 20;

/// One stream of a client.
pub(super) struct Stream<H> {
    client: ClientHandle<H>,
    seat: Seat,
    settings: Arc<StreamSettings>,
    /// The only type that the client may ask for; `None` on ADS.
    only: Option<&'static str>,
    conduct: Conduct,
    _ticket: Ticket,
    /// The log lines about clients that come.
    arrivals: Arc<Hush>,
    /// True if the log has the client, so that it has its end, too.
    is_told: bool,
    /// True if the server half may have something to send.
    due: bool,
    /// The types of which a response was too large for most clients.
    too_large: BTreeSet<String>,
}

impl<H: ServerHalf<Request: Message + Default + Fields>> Stream<H> {
    pub(super) fn new(
        client: ClientHandle<H>,
        seat: Seat,
        settings: Arc<StreamSettings>,
        only: Option<&'static str>,
        arrivals: Arc<Hush>,
        admitted: Admitted,
    ) -> Self {
        Self {
            arrivals,
            is_told: false,
            client,
            seat,
            settings,
            only,
            conduct: Conduct::new(admitted.peer, admitted.from),
            _ticket: admitted.ticket,
            due: false,
            too_large: BTreeSet::new(),
        }
    }

    /// Serves the stream until one side ends it. The branches are tried in order: a request or a
    /// newer snapshot comes before a response, because either may make the response unnecessary.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async function holds each argument twice"
    )]
    pub(super) fn run(
        mut self,
        mut requests: Requests<H::Request>,
        responses: Sender,
        mut stopping: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> {
        async move {
            let end = loop {
                let is_written = responses.is_written();
                self.note_waiting(!is_written);
                let is_paused = self.conduct.paused_until().is_some();
                let next_time = self.next_time();
                tokio::select! {
                    biased;
                    _ = stopping.wait_for(|stopping| *stopping) => break End::stopping(),
                    request = requests.next(), if !is_paused => {
                        if let Err(end) = self.received(request) {
                            break end;
                        }
                    }
                    changed = self.seat.changed() => match changed {
                        Ok(()) => self.refresh(),
                        Err(_) => break End::gone(),
                    },
                    room = responses.has_room(), if self.due => match room {
                        Ok(()) => match self.next_response() {
                            Ok(Some(response)) => responses.put(Ok(Box::new(response))),
                            Ok(None) => {}
                            Err(status) => break End::Ours(status),
                        },
                        Err(_) => break End::closed(),
                    },
                    // The client is not waited for any more.
                    () = responses.written(), if !is_written && !self.due => {}
                    () = responses.closed(), if is_paused => break End::closed(),
                    () = until(next_time) => {
                        if let Err(status) = self.pass_time(Instant::now()) {
                            break End::Ours(status);
                        }
                    }
                }
            };
            if self.is_told || self.arrivals.may_tell(Instant::now()).is_some() {
                let (node, reason) = (self.node_id(), &*logged(end.reason()));
                info!(stream = self.client.id(), node, reason, "client gone");
            }
            // What is not read any more must not take the room of the connection from other streams.
            drop(requests);
            let tell = async |status| {
                if responses.give(Err(status)).await.is_ok() {
                    responses.written().await;
                }
            };
            end.tell(tell, self.conduct.peer()).await;
        }
    }

    /// Takes what was read.
    fn received(&mut self, request: Result<Option<H::Request>, Status>) -> Result<(), End> {
        match request {
            Ok(Some(request)) => self.handle(request).map_err(End::Ours),
            Ok(None) => Err(End::Theirs("it ended the stream".to_owned())),
            Err(status) => Err(self.unread(&status)),
        }
    }

    /// The node id of the client; empty if it has made no request, neither here nor on another stream of its connection.
    fn node_id(&self) -> String {
        let own = self.client.talk().node().map(ClientNode::id);
        own.unwrap_or_else(|| self.conduct.peer().node_id().to_owned())
    }

    /// The next time at which something is to be done, if nothing else happens before.
    fn next_time(&self) -> Option<Instant> {
        let times = [
            self.half_timeout(),
            self.conduct.paused_until(),
            self.conduct.slow_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// The time at which the server half may have something to send; `None` if it may have it anyway.
    fn half_timeout(&self) -> Option<Instant> {
        if self.due {
            return None;
        }
        let talk = self.client.talk();
        talk.half.as_ref().and_then(ServerHalf::next_timeout)
    }

    /// Does what is due by now.
    fn pass_time(&mut self, now: Instant) -> Result<(), Status> {
        let is_over = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        if is_over(self.conduct.paused_until()) {
            self.conduct.read_on();
        }
        if is_over(self.half_timeout()) {
            // The server half is told the time before it is asked for a response.
            self.due = true;
        }
        self.look_for_slowness(now)
    }

    fn handle(&mut self, mut request: H::Request) -> Result<(), Status> {
        check::type_url(H::type_of(&mut request), self.only)?;
        if let Some(node) = H::node_in(&request) {
            check::node(node)?;
        }
        let (bytes, now) = (request.encoded_len(), Instant::now());
        let mut talk = self.client.talk();
        if talk.half.is_none() {
            let node = H::node_in(&request);
            let snapshot = self.seat.snapshot(|| node.map(Cow::Borrowed));
            talk.half = Some(H::new(snapshot, Arc::clone(&self.settings)));
            talk.view = self.seat.view().cloned();
            let peer = self.conduct.peer();
            if let Some(node) = node {
                peer.introduced(&node.id);
                if let Some(left_out) = self.arrivals.may_tell(now) {
                    self.is_told = true;
                    let (stream, view) = (self.client.id(), talk.view.as_deref());
                    log_introduction(stream, node, peer.names(), view, left_out);
                }
            }
        }
        let Talk { half, ledger, .. } = &mut *talk;
        let Some(half) = half else {
            return Ok(());
        };
        if let Err(beyond) = self.conduct.check_names(H::names_in(&request)) {
            drop(talk);
            return Err(self.refused(&beyond));
        }
        half.handle_time(now);
        let had_node = half.node().is_some();
        let nonce = H::nonce_in(&request).to_owned();
        let outcome = bounded(half.handle_request(request));
        if let Some(node) = half.node().filter(|_| !had_node) {
            self.conduct.introduced(node.encoded_len());
        }
        let (is_own, listed) = (!half.was_answer_alone(), half.listed());
        let listed = listed + ledger.received(&outcome, &nonce, half, now);
        let within = self.conduct.check_held(half.held(), ledger.held());
        drop(talk);
        self.log(&outcome);
        within.map_err(|beyond| self.refused(&beyond))?;
        let is_too_fast = if is_own {
            self.conduct.requested(bytes, listed, now)
        } else {
            self.conduct.answered(bytes, now)
        };
        if is_too_fast {
            let reason = "it is read more slowly: too many requests";
            self.reached(Limit::RequestsPerSecond, reason);
        }
        self.due = true;
        Ok(())
    }

    /// The end after a message that could not be read.
    fn unread(&self, status: &Status) -> End {
        match too_large(status) {
            Some(beyond) => End::Ours(self.refused(&beyond)),
            None if status.code() == Code::InvalidArgument => End::Ours(status.clone()),
            None => End::broken(status),
        }
    }

    /// The status of a client that went beyond a limit.
    fn refused(&self, beyond: &Beyond) -> Status {
        self.reached(beyond.limit, &beyond.text);
        beyond.status()
    }

    /// Names a client that reached a limit.
    fn reached(&self, limit: Limit, reason: &str) {
        let (node, peer) = (self.node_id(), self.conduct.peer());
        peer.reached(limit, &node);
        let mut talk = self.client.talk();
        let is_new = talk
            .reached
            .note(limit, Instant::now(), unix(SystemTime::now()));
        drop(talk);
        if is_new && let Some(left_out) = peer.may_tell() {
            let (stream, peer, limit) = (self.client.id(), peer.address(), limit.name());
            let left_out = (left_out > 0).then_some(left_out);
            warn!(stream, node, %peer, limit, reason, left_out, "client at a limit");
        }
    }

    /// Notes whether a response waits for the client: one that is to be made, or one that is not written.
    fn note_waiting(&mut self, is_unwritten: bool) {
        let waits = self.due || is_unwritten;
        if self.conduct.set_waiting(waits, Instant::now()) {
            self.slow_no_more();
        }
    }

    /// Names a client that does not take a response, and gives it up after a while.
    fn look_for_slowness(&mut self, now: Instant) -> Result<(), Status> {
        match self.conduct.slowness(now) {
            Slowness::None => Ok(()),
            Slowness::Slow => {
                let waited = self.conduct.peer().limits().slow_after;
                self.client.talk().reached.set_slow_since(Some(
                    unix(SystemTime::now()).saturating_sub(waited.as_secs()),
                ));
                let reason = format!("it has not taken a response for {waited:?}");
                self.reached(Limit::SlowAfter, &reason);
                Ok(())
            }
            Slowness::TooSlow => {
                let waited = self.conduct.peer().limits().close_after;
                let reason = format!("it has not taken a response for {waited:?}");
                Err(self.refused(&Beyond::new(Limit::CloseAfter, reason)))
            }
        }
    }

    fn slow_no_more(&self) {
        self.client.talk().reached.set_slow_since(None);
        if let Some(left_out) = self.conduct.peer().may_tell() {
            let (stream, node) = (self.client.id(), self.node_id());
            let left_out = (left_out > 0).then_some(left_out);
            info!(stream, node, left_out, "client reads again");
        }
    }

    /// Takes the newest snapshot, in the view for this client.
    fn refresh(&mut self) {
        let mut talk = self.client.talk();
        let Talk {
            half, view, ledger, ..
        } = &mut *talk;
        if let Some(half) = half {
            let node = || Some(Cow::Owned(half.node()?.to_message()));
            let snapshot = self.seat.snapshot(node);
            half.handle_snapshot(snapshot);
            *view = self.seat.view().cloned();
            let published = self.seat.published_at();
            ledger.changed(half, published.unwrap_or_else(Instant::now));
            self.due = true;
        }
    }

    /// The next response that is due.
    ///
    /// # Errors
    /// The client has not answered too many before it.
    fn next_response(&mut self) -> Result<Option<Response>, Status> {
        let now = Instant::now();
        let mut talk = self.client.talk();
        let Talk { half, ledger, .. } = &mut *talk;
        let Some(half) = half else { return Ok(None) };
        half.handle_time(now);
        let response = half.poll_response();
        self.due = response.is_some();
        let Some(response) = response else {
            ledger.look(half, Since::Request(now));
            return Ok(None);
        };
        let size = response.encoded_len();
        ledger.sent(&response, size, half, now);
        let within = self.conduct.check_held(half.held(), ledger.held());
        drop(talk);
        within.map_err(|beyond| self.refused(&beyond))?;
        if self.conduct.taken() {
            self.slow_no_more();
        }
        self.log_sent(&response, size);
        Ok(Some(response))
    }

    fn log_sent(&mut self, response: &Response, size: usize) {
        let (type_url, version) = (response.type_url(), response.version());
        debug!(stream = self.client.id(), type_url, version, "sent");
        if size > USUAL_LIMIT
            && self.too_large.insert(type_url.to_owned())
            && let Some(left_out) = self.conduct.peer().may_tell()
        {
            let (stream, node) = (self.client.id(), self.node_id());
            let left_out = (left_out > 0).then_some(left_out);
            warn!(
                stream,
                node,
                type_url,
                size,
                left_out,
                "more than the {USUAL_LIMIT} bytes that gRPC clients take if not told otherwise"
            );
        }
    }

    fn log(&self, outcome: &RequestOutcome) {
        let stream = self.client.id();
        match outcome {
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                if let Some(left_out) = self.conduct.peer().may_tell() {
                    let (node, left_out) = (self.node_id(), (left_out > 0).then_some(left_out));
                    let told = format_args!("refused: {}", logged(message));
                    warn!(stream, node, type_url, version, left_out, "{told}");
                }
            }
            RequestOutcome::Ack { type_url, version } => {
                debug!(stream, type_url, version, "accepted");
            }
            RequestOutcome::Stale { type_url } => debug!(stream, type_url, "stale"),
            RequestOutcome::Subscribed { type_url } => debug!(stream, type_url, "subscribed"),
        }
    }
}

fn log_introduction(
    stream: u64,
    node: &Node,
    identity: &[String],
    view: Option<&str>,
    left_out: u64,
) {
    let left_out = (left_out > 0).then_some(left_out);
    let (agent, node) = (&node.user_agent_name, &node.id);
    let identity = (!identity.is_empty()).then(|| identity.join(", "));
    info!(stream, node, agent, identity, view, left_out, "client");
}

/// The meaning of a request, without the parts of the client's texts that are too long to be kept.
fn bounded(mut outcome: RequestOutcome) -> RequestOutcome {
    let text = match &mut outcome {
        RequestOutcome::Nack { message, .. } => message,
        RequestOutcome::Ack { version, .. } => version,
        RequestOutcome::Stale { .. } | RequestOutcome::Subscribed { .. } => return outcome,
    };
    cut(text);
    outcome
}

/// Waits for a time; without one, for ever. The timer is boxed, because an idle stream has none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => Box::pin(tokio::time::sleep_until(time.into())).await,
        None => std::future::pending().await,
    }
}
