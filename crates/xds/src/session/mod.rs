//! The client half of the conversation with one xDS server, over one ADS stream after another.
//!
//! A session has three kinds of methods. Inputs ([`Session::handle`], [`Session::handle_timeout`])
//! tell it what happened. The output ([`Session::poll_output`]) says what to do about it.
//! [`Session::next_timeout`] says when to come back if nothing happens. State that outlives a
//! stream (names, accepted versions) is kept apart from state that does not (nonces, timers,
//! whether the node was told). Mixing them up is the usual way to get this protocol wrong.
//!
//! ```text
//!            Subscribe               Opened                Response
//!   Idle ───────────────> Connecting ──────> Open(silent) ─────────> Open(answered)
//!    ^                     ^   ^  │ Closed        │ Closed               │ Closed
//!    │ nothing wanted      │   │  v               v                      │
//!    └── from everywhere   │   └─ Waiting (backoff; the owner hears)     │
//!                          └──────────── at once; nobody hears ──────────┘
//! ```
//!
//! State of the world and delta differ in what a request says, and in what a response means for
//! names that it does not mention. `sotw` and `delta` hold those differences; everything else is
//! common.

mod apply;
mod delta;
mod events;
mod refusal;
mod sotw;
mod type_state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::cache::{Cache, Changed, LastFailure, ResourceStatus};
use crate::error::{ResourceError, TroubleReason};
use crate::kind::{Key, Kind};
use crate::readings::Readings;
use crate::sorted::SortedSet;
use apply::{Rules, Verdict};
use type_state::TypeState;

pub use events::{
    Ending, EndingKind, Input, Protocol, Request, SessionConfig, SessionOutput, Want,
};

/// A stream that ends sooner than this after the last one did is followed by a wait, even if the
/// server answered. A server that answers once and closes must not be called in a tight loop.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The largest number of ACKs and NACKs that may wait for the transport before the session stops
/// reading. In delta each response needs one of its own.
const MAX_ANSWERS_OWED: usize = 16;

/// The client half of the conversation with one xDS server.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    rules: Rules,
    stream: Stream,
    types: Vec<TypeState>,
    /// The time at which the session gives up on each resource, earliest first.
    deadlines: SortedSet<(Instant, Key)>,
    backoff: Backoff,
    last_end: Option<Instant>,
    outputs: VecDeque<SessionOutput>,
}

#[derive(Debug)]
enum Stream {
    Idle,
    Connecting,
    Open(OpenStream),
    Waiting { until: Instant, reason: Arc<str> },
}

#[derive(Debug, Default)]
struct OpenStream {
    node_told: bool,
    /// The type URL of the request that the transport has not taken yet.
    sending: Option<&'static str>,
    answered: bool,
    /// True if a response was applied and some watchers have not yet taken its changes.
    unconsumed: bool,
}

impl Session {
    /// A session that wants nothing yet. It can be asked for the types that `readings` can read, or
    /// those that its configuration has in their place.
    pub fn new(config: SessionConfig, readings: Readings) -> Self {
        let readings = config.readings.clone().unwrap_or(readings);
        let rules = Rules {
            node: config.node.id.as_str().into(),
            data_errors: config.data_errors,
            readings,
        };
        Self {
            backoff: Backoff::new(config.seed),
            config,
            rules,
            stream: Stream::Idle,
            types: Vec::new(),
            deadlines: SortedSet::default(),
            last_end: None,
            outputs: VecDeque::new(),
        }
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, input: Input, cache: &mut Cache, now: Instant) {
        match input {
            Input::Closed(ending) => self.closed(&ending, now),
            Input::Consumed => self.consumed(),
            Input::DeltaResponse(response) => self.delta_response(response, cache, now),
            Input::Opened => self.opened(cache),
            Input::Response(response) => self.sotw_response(response, cache, now),
            Input::Sent => self.sent(cache, now),
            Input::Subscribe { kind, want } => self.subscribe(kind, want, cache),
            Input::Unsubscribe { kind, want } => self.unsubscribe(kind, &want),
        }
    }

    /// Does what was due at [`next_timeout`](Self::next_timeout).
    pub fn handle_timeout(&mut self, cache: &mut Cache, now: Instant) {
        if matches!(self.stream, Stream::Waiting { until, .. } if until <= now) {
            self.connect();
        }
        while let Some((deadline, key)) = self.deadlines.first().cloned() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            self.give_up_on(key, cache, now);
        }
    }

    /// The next thing to do; `None` when there is nothing more for now.
    pub fn poll_output(&mut self, cache: &Cache) -> Option<SessionOutput> {
        if self.outputs.is_empty() {
            self.stop_if_idle(cache);
        }
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some(request) = self.next_request(cache) {
            return Some(SessionOutput::Send(Box::new(request)));
        }
        // There is nothing to send, but `next_request` may have released resources.
        let output = self.outputs.pop_front();
        if output.is_none() {
            // Frees the memory of the queue, because it may stay empty for long.
            self.outputs = VecDeque::new();
        }
        output
    }

    /// The time at which to call [`handle_timeout`](Self::handle_timeout), if nothing happens
    /// before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let reconnect = match self.stream {
            Stream::Waiting { until, .. } => Some(until),
            _ => None,
        };
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        reconnect.into_iter().chain(deadline).min()
    }

    /// True if the next response may be read. Every watcher must have taken the changes of the last
    /// response. Only a limited number of ACKs and NACKs may be waiting, because a server that does
    /// not read them would fill our memory.
    pub fn may_read(&self) -> bool {
        let owed: usize = self.types.iter().map(TypeState::answers_owed).sum();
        owed < MAX_ANSWERS_OWED && !matches!(&self.stream, Stream::Open(open) if open.unconsumed)
    }

    /// The reason why the server cannot be reached; `None` unless the session is waiting to
    /// reconnect.
    pub fn failure(&self) -> Option<&Arc<str>> {
        match &self.stream {
            Stream::Waiting { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// True if the server believes that this resource is wanted by its name, or will once the next
    /// request arrives.
    pub(crate) fn names(&self, key: &Key) -> bool {
        let of_type = |state: &&TypeState| state.kind == key.kind;
        let state = self.types.iter().find(of_type);
        state.is_some_and(|state| state.names.by_name.contains_key(&key.name))
    }

    /// Forgets which versions were accepted, so that this server sends its resources again. This is
    /// needed because the resources of another server have replaced them in the cache.
    pub fn forget_versions(&mut self) {
        for state in &mut self.types {
            state.wire.forget_versions();
        }
    }

    /// Ends a subscription at once, because a server of higher priority has taken over (gRFC A71).
    /// Anything that this server still sends for it is ignored.
    pub(crate) fn dismiss(&mut self, kind: Kind, want: &Want) {
        if let Some(state) = self.types.iter_mut().find(|state| state.kind == kind)
            && let Some(deadline) = state.dismiss(want)
        {
            self.deadlines.remove(&deadline);
        }
    }

    fn subscribe(&mut self, kind: Kind, want: Want, cache: &mut Cache) {
        if let Err(error) = self.rules.readings.check(kind) {
            warn!(%error, "not subscribed to");
            return;
        }
        if let Want::Named(name) = &want {
            cache.entry_mut(&kind.key(name));
        }
        let known = self.types.iter().position(|state| state.kind == kind);
        let index = known.unwrap_or_else(|| {
            self.types.reserve_exact(1);
            self.types.push(TypeState::new(kind, self.config.protocol));
            self.types.len() - 1
        });
        self.types[index].add(want);
        if matches!(self.stream, Stream::Idle) {
            self.connect();
        }
    }

    fn unsubscribe(&mut self, kind: Kind, want: &Want) {
        if let Some(state) = self.types.iter_mut().find(|state| state.kind == kind) {
            state.remove(want);
        }
    }

    /// Closes the stream if nothing is wanted, and drops all state of the stream. A request that is
    /// being sent is waited for. So a new watch that replaces the last one finds the stream still
    /// open.
    fn stop_if_idle(&mut self, cache: &Cache) {
        let busy = matches!(&self.stream, Stream::Open(open) if open.sending.is_some());
        let idle = matches!(self.stream, Stream::Idle);
        if busy || idle || !self.types.iter().all(TypeState::is_unwanted) {
            return;
        }
        self.outputs.push_back(SessionOutput::Close);
        self.stream = Stream::Idle;
        self.deadlines = SortedSet::default();
        self.release(cache);
        self.types.clear();
    }

    /// Releases the resources that nobody wants. This happens when the server is about to be told,
    /// or when there is no stream to tell it on.
    fn release(&mut self, cache: &Cache) {
        for index in 0..self.types.len() {
            self.release_type(index, cache);
        }
    }

    fn release_type(&mut self, index: usize, cache: &Cache) {
        if !self.types[index].names.leaving {
            return;
        }
        let (released, fallen) = self.types[index].release(cache);
        let released = released.into_iter().map(SessionOutput::Released);
        self.outputs.extend(released);
        for deadline in &fallen {
            self.deadlines.remove(deadline);
        }
    }

    fn connect(&mut self) {
        self.stream = Stream::Connecting;
        self.outputs
            .push_back(SessionOutput::Open(self.config.protocol));
    }

    fn opened(&mut self, cache: &Cache) {
        if !matches!(self.stream, Stream::Connecting) {
            return;
        }
        self.stream = Stream::Open(OpenStream::default());
        self.release(cache);
        for state in &mut self.types {
            state.start_stream();
        }
    }

    fn sent(&mut self, cache: &Cache, now: Instant) {
        let Stream::Open(open) = &mut self.stream else {
            return;
        };
        let Some(type_url) = open.sending.take() else {
            return;
        };
        let deadline = now + self.rules.data_errors.resource_timeout();
        let of_type = |state: &&mut TypeState| state.kind.type_url == type_url;
        let state = self.types.iter_mut().find(of_type);
        for key in state.into_iter().flat_map(|s| s.sent(cache, deadline)) {
            self.deadlines.add((deadline, key));
        }
    }

    fn consumed(&mut self) {
        if let Stream::Open(open) = &mut self.stream {
            open.unconsumed = false;
        }
    }

    fn sotw_response(&mut self, response: DiscoveryResponse, cache: &mut Cache, now: Instant) {
        let Some(index) = self.answered(&response.type_url) else {
            return;
        };
        let context = self.rules.context(now);
        let state = &mut self.types[index];
        let (nonce, version) = (response.nonce.clone(), response.version_info.clone());
        let verdict = sotw::apply(response, state, cache, &context);
        state.answer_sotw(nonce, &version, &verdict.errors, cache);
        self.judged(index, &version, verdict);
    }

    fn delta_response(
        &mut self,
        response: DeltaDiscoveryResponse,
        cache: &mut Cache,
        now: Instant,
    ) {
        let Some(index) = self.answered(&response.type_url) else {
            return;
        };
        let context = self.rules.context(now);
        let state = &mut self.types[index];
        let nonce = response.nonce.clone();
        let version = response.system_version_info.clone();
        let verdict = delta::apply(response, state, cache, &context);
        state.answer_delta(nonce, &verdict.errors);
        let deadline = now + self.rules.data_errors.resource_timeout();
        for key in state.leftovers(cache) {
            self.deadlines.add((deadline, key));
        }
        self.judged(index, &version, verdict);
    }

    /// Notes that the server answered, and finds the type that the response is about.
    fn answered(&mut self, type_url: &str) -> Option<usize> {
        let Stream::Open(open) = &mut self.stream else {
            return None;
        };
        let of_type = |state: &TypeState| state.kind.type_url == type_url;
        let Some(index) = self.types.iter().position(of_type) else {
            // The response gets neither ACK nor NACK, and does not count as an answer.
            let node = &*self.rules.node;
            warn!(
                type_url,
                node, "ignored a response of a type nobody asked for"
            );
            return None;
        };
        open.unconsumed = true;
        if !std::mem::replace(&mut open.answered, true) {
            self.outputs.push_back(SessionOutput::Answered);
        }
        Some(index)
    }

    fn judged(&mut self, index: usize, version: &str, verdict: Verdict) {
        let kind = self.types[index].kind;
        let (type_url, node) = (kind.type_url, &*self.rules.node);
        for deadline in &verdict.settled {
            self.deadlines.remove(deadline);
        }
        if verdict.errors.is_empty() {
            debug!(type_url, version, "accepted");
        } else {
            warn!(type_url, version, node, errors = %verdict.errors, "rejected");
        }
        self.outputs.push_back(SessionOutput::Received {
            kind,
            valid: verdict.valid,
            invalid: verdict.errors.len(),
        });
        self.outputs.extend(verdict.into_changes());
    }

    /// Takes the end of a stream (gRFC A57). If the stream brought a response, nobody is told and
    /// the next one opens at once. If it brought none, the server has failed and the next stream
    /// waits. The next one also waits if this one was short, or if a response was too large.
    fn closed(&mut self, ending: &Ending, now: Instant) {
        let answered = match &self.stream {
            Stream::Open(open) => open.answered,
            Stream::Connecting => false,
            Stream::Idle | Stream::Waiting { .. } => return,
        };
        let reason = self.explain(ending);
        self.deadlines = SortedSet::default();
        for state in &mut self.types {
            state.end_stream();
        }
        if self.falls_back_to_sotw(ending, answered) {
            return;
        }
        let short = self
            .last_end
            .replace(now)
            .is_some_and(|last| now.duration_since(last) < SHORT_LIFE);
        let too_large = matches!(ending.kind, EndingKind::TooLarge { .. });
        if answered && !short && !too_large {
            debug!(%reason, "ADS stream ended; opening the next at once");
            self.backoff.reset();
            self.connect();
            return;
        }
        let wait = self.backoff.next_wait();
        warn!(%reason, ?wait, node = &*self.rules.node, "ADS stream failed");
        self.stream = Stream::Waiting {
            until: now + wait,
            reason: Arc::clone(&reason),
        };
        if !answered || too_large {
            self.outputs.push_back(SessionOutput::Failed(reason));
        }
    }

    /// The reason for the end of a stream. A response that was too large may not show its type, so
    /// the reason lists the types that it can be of.
    fn explain(&self, ending: &Ending) -> Arc<str> {
        let reason = &ending.reason;
        if ending.kind != (EndingKind::TooLarge { type_known: false }) {
            return Arc::clone(reason);
        }
        let awaited = self.types.iter().filter(|state| state.is_awaited());
        let mut nouns: Vec<&str> = awaited.map(|state| state.kind.noun).collect();
        if nouns.is_empty() {
            nouns = self.types.iter().map(|state| state.kind.noun).collect();
        }
        format!("{reason} (asked for: {})", nouns.join(", ")).into()
    }

    /// Switches to state of the world if the server does not implement delta. Returns true if it
    /// did.
    fn falls_back_to_sotw(&mut self, ending: &Ending, answered: bool) -> bool {
        let refused = ending.kind == EndingKind::Unimplemented && !answered;
        if !refused || self.config.protocol != Protocol::Delta {
            return false;
        }
        info!("the server does not speak delta; going on with state of the world");
        self.config.protocol = Protocol::StateOfTheWorld;
        for state in &mut self.types {
            state.speak(Protocol::StateOfTheWorld);
        }
        self.connect();
        true
    }

    fn give_up_on(&mut self, key: Key, cache: &mut Cache, now: Instant) {
        let of_type = |state: &&mut TypeState| state.kind == key.kind;
        let Some(state) = self.types.iter_mut().find(of_type) else {
            return;
        };
        state.settle(&key.name);
        if state.is_leftover(&key, cache) {
            self.clear_away(&key, cache, now);
            return;
        }
        if cache.has_value(&key) || !state.names.by_name.contains_key(&key.name) {
            // Another server has sent the resource in the meantime (gRFC A71), or it was a leftover
            // that is already deleted.
            return;
        }
        let after = self.rules.data_errors.resource_timeout();
        let (entry_state, reason) = if self.rules.data_errors.timer_is_transient() {
            (ResourceStatus::TimedOut, TroubleReason::Slow(after))
        } else {
            (ResourceStatus::DoesNotExist, TroubleReason::TimedOut(after))
        };
        let failure = LastFailure {
            error: ResourceError {
                noun: state.kind.noun,
                name: Arc::clone(&key.name),
                reason,
                node: Arc::clone(&self.rules.node),
            },
            version: Arc::default(),
            at: now,
        };
        let changed = cache.entry_mut(&key).fail(entry_state, failure, false);
        if changed != Changed::Nothing {
            self.outputs
                .push_back(SessionOutput::Changed { key, changed });
        }
    }

    /// Deletes a resource that another server sent and that this server has not sent (gRFC A71).
    fn clear_away(&mut self, key: &Key, cache: &mut Cache, now: Instant) {
        let context = self.rules.context(now);
        let of_type = |state: &&mut TypeState| state.kind == key.kind;
        if let Some(state) = self.types.iter_mut().find(of_type) {
            let mut verdict = Verdict::default();
            verdict.delete(&key.name, state, cache, &context);
            self.outputs.extend(verdict.into_changes());
        }
    }

    fn next_request(&mut self, cache: &Cache) -> Option<Request> {
        let Stream::Open(open) = &self.stream else {
            return None;
        };
        if open.sending.is_some() {
            return None;
        }
        let index = self.next_due(cache)?;
        let Stream::Open(open) = &mut self.stream else {
            return None;
        };
        let state = &mut self.types[index];
        let node = (!open.node_told).then(|| (*self.config.node).clone());
        open.node_told = true;
        open.sending = Some(state.kind.type_url);
        Some(state.request(node))
    }

    /// The type that the next request is about. Types further back in the order release nothing
    /// yet. The server would not send a resource again unless it was told that it is unwanted
    /// (S1-22).
    fn next_due(&mut self, cache: &Cache) -> Option<usize> {
        (0..self.types.len()).find(|index| {
            self.release_type(*index, cache);
            self.types[*index].is_due()
        })
    }
}
