//! The client half of a state-of-the-world ADS stream, and of the streams that follow it.
//!
//! The methods are of three kinds: inputs ([`Session::handle`], [`Session::handle_timeout`]) tell it
//! what happened, outputs ([`Session::poll_output`]) say what to do about it, and
//! [`Session::next_timeout`] says when to come back if nothing happens. What outlives a stream
//! (names, accepted versions) and what does not (nonces, timers, whether the node was told) are kept
//! apart, because mixing them up is the usual way to get this protocol wrong.
//!
//! ```text
//!            Subscribe               Opened                Response
//!   Idle ───────────────> Connecting ──────> Open(silent) ─────────> Open(answered)
//!                          ^   ^  │ Closed        │ Closed               │ Closed
//!                          │   │  v               v                      │
//!                          │   └─ Waiting (backoff; every watcher hears) │
//!                          └──────────── at once; nobody hears ──────────┘
//! ```

mod response;
mod type_state;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tracing::{debug, warn};

use crate::backoff::Backoff;
use crate::cache::{Cache, Changed};
use crate::error::{Reason, ResourceError};
use crate::kind::{Key, Kind};
use type_state::TypeState;

/// How long a server may take to send a resource before it counts as non-existent (gRFC A27).
const RESOURCE_TIMEOUT: Duration = Duration::from_secs(15);

/// What a session needs to know from the start.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Who this client is; sent in the first request of each stream.
    pub node: Node,
    /// How long to wait for a resource that was asked for.
    pub resource_timeout: Duration,
    /// Where the jitter of the backoff comes from.
    pub seed: u64,
}

impl SessionConfig {
    /// The defaults for `node`.
    pub fn new(node: Node, seed: u64) -> Self {
        Self {
            node,
            resource_timeout: RESOURCE_TIMEOUT,
            seed,
        }
    }
}

/// Which resources of a type are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// All the server has.
    All,
    /// The one of that name.
    Named(Arc<str>),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The stream has ended, or could not be opened, for this reason.
    Closed(Arc<str>),
    /// The stream is open.
    Opened,
    /// The server sent this.
    Response(DiscoveryResponse),
    /// The last [`Output::Send`] is on its way.
    Sent,
    /// Somebody wants these resources.
    Subscribe {
        /// Of which type.
        kind: Kind,
        /// Which.
        want: Want,
    },
    /// Nobody wants these resources any more.
    Unsubscribe {
        /// Of which type.
        kind: Kind,
        /// Which.
        want: Want,
    },
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Tell the watchers of `key` what the cache now says.
    Changed {
        /// Which resource.
        key: Key,
        /// What of it.
        changed: Changed,
    },
    /// Open a stream; answer with [`Input::Opened`] or [`Input::Closed`].
    Open,
    /// Send this; answer with [`Input::Sent`]. There is never more than one on its way, so what
    /// changes meanwhile goes out as one request.
    Send(Box<DiscoveryRequest>),
}

/// The client's side of the conversation with one xDS server.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    node_id: Arc<str>,
    stream: Stream,
    types: Vec<TypeState>,
    /// When to give up on which resource: timers are data.
    deadlines: BTreeSet<(Instant, Key)>,
    backoff: Backoff,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum Stream {
    Idle,
    Connecting,
    Open(OpenStream),
    Waiting { until: Instant },
}

#[derive(Debug, Default)]
struct OpenStream {
    node_told: bool,
    /// The type whose request is on its way.
    sending: Option<&'static str>,
    answered: bool,
}

impl Session {
    /// A session that wants nothing yet.
    pub fn new(config: SessionConfig) -> Self {
        Self {
            node_id: config.node.id.as_str().into(),
            backoff: Backoff::new(config.seed),
            config,
            stream: Stream::Idle,
            types: Vec::new(),
            deadlines: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, input: Input, cache: &mut Cache, now: Instant) {
        match input {
            Input::Closed(reason) => self.closed(&reason, cache, now),
            Input::Opened => self.opened(),
            Input::Response(response) => self.response(response, cache),
            Input::Sent => self.sent(cache, now),
            Input::Subscribe { kind, want } => self.subscribe(kind, want, cache),
            Input::Unsubscribe { kind, want } => self.unsubscribe(kind, &want),
        }
    }

    /// Does what was due at [`next_timeout`](Self::next_timeout).
    pub fn handle_timeout(&mut self, cache: &mut Cache, now: Instant) {
        if matches!(self.stream, Stream::Waiting { until } if until <= now) {
            self.connect();
        }
        while let Some((deadline, key)) = self.deadlines.first().cloned() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            self.give_up_on(key, cache);
        }
    }

    /// The next thing to do; `None` when there is nothing more for now.
    ///
    /// With the request that no longer asks for a resource, the resource leaves the cache.
    pub fn poll_output(&mut self, cache: &mut Cache) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.next_request(cache).map(Box::new).map(Output::Send)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let reconnect = match self.stream {
            Stream::Waiting { until } => Some(until),
            _ => None,
        };
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        reconnect.into_iter().chain(deadline).min()
    }

    fn subscribe(&mut self, kind: Kind, want: Want, cache: &mut Cache) {
        if let Want::Named(name) = &want {
            let key = Key {
                type_url: kind.type_url,
                name: Arc::clone(name),
            };
            cache.entry_mut(&key);
        }
        let index = self.types.iter().position(|state| state.kind == kind);
        let state = match index {
            Some(index) => &mut self.types[index],
            None => {
                self.types.push(TypeState::new(kind));
                let last = self.types.len() - 1;
                &mut self.types[last]
            }
        };
        state.add(want);
        if matches!(self.stream, Stream::Idle) {
            self.connect();
        }
    }

    fn unsubscribe(&mut self, kind: Kind, want: &Want) {
        if let Some(state) = self.types.iter_mut().find(|state| state.kind == kind) {
            state.remove(want);
        }
    }

    fn connect(&mut self) {
        self.stream = Stream::Connecting;
        self.outputs.push_back(Output::Open);
    }

    fn opened(&mut self) {
        if !matches!(self.stream, Stream::Connecting) {
            return;
        }
        self.stream = Stream::Open(OpenStream::default());
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
        let deadline = now + self.config.resource_timeout;
        let state = self
            .types
            .iter_mut()
            .find(|state| state.kind.type_url == type_url);
        for key in state.into_iter().flat_map(|s| s.sent(cache, deadline)) {
            self.deadlines.insert((deadline, key));
        }
    }

    fn response(&mut self, response: DiscoveryResponse, cache: &mut Cache) {
        let Stream::Open(open) = &mut self.stream else {
            return;
        };
        let type_url = response.type_url.as_str();
        let Some(state) = self
            .types
            .iter_mut()
            .find(|state| state.kind.type_url == type_url)
        else {
            // Neither ACK nor NACK, nor does it count as an answer.
            warn!(
                type_url,
                node = &*self.node_id,
                "ignored a response of a type nobody asked for"
            );
            return;
        };
        open.answered = true;
        self.backoff.reset();
        let verdict = response::apply(&response, state, cache, &self.node_id);
        for deadline in verdict.settled {
            self.deadlines.remove(&deadline);
        }
        if verdict.errors.is_empty() {
            debug!(type_url, version = response.version_info, "accepted");
        } else {
            warn!(type_url, version = response.version_info, node = &*self.node_id, errors = ?verdict.errors, "rejected");
        }
        let (nonce, version) = (response.nonce, response.version_info);
        state.answer(nonce, version, &verdict.errors, cache);
        self.outputs.extend(verdict.changes);
    }

    /// gRFC A57: a stream that brought something may end without anybody being told; one that
    /// brought nothing is an error to every watcher, and the next one waits.
    fn closed(&mut self, reason: &Arc<str>, cache: &mut Cache, now: Instant) {
        let answered = match &self.stream {
            Stream::Open(open) => open.answered,
            Stream::Connecting => false,
            Stream::Idle | Stream::Waiting { .. } => return,
        };
        self.deadlines.clear();
        for state in &mut self.types {
            state.end_stream();
        }
        if answered {
            debug!(%reason, "ADS stream ended; opening the next at once");
            self.connect();
            return;
        }
        let wait = self.backoff.next_wait();
        warn!(%reason, ?wait, node = &*self.node_id, "ADS stream failed");
        self.stream = Stream::Waiting { until: now + wait };
        for state in &self.types {
            for key in state.keys(cache) {
                let error = ResourceError {
                    noun: state.kind.noun,
                    name: Arc::clone(&key.name),
                    reason: Reason::Connectivity(Arc::clone(reason)),
                    node: Arc::clone(&self.node_id),
                };
                let changed = cache.entry_mut(&key).trouble(error);
                push_change(&mut self.outputs, key, changed);
            }
        }
    }

    fn give_up_on(&mut self, key: Key, cache: &mut Cache) {
        let Some(state) = self
            .types
            .iter_mut()
            .find(|state| state.kind.type_url == key.type_url)
        else {
            return;
        };
        state.settle(&key.name);
        let error = ResourceError {
            noun: state.kind.noun,
            name: Arc::clone(&key.name),
            reason: Reason::TimedOut(self.config.resource_timeout),
            node: Arc::clone(&self.node_id),
        };
        let changed = cache.entry_mut(&key).fail(error);
        push_change(&mut self.outputs, key, changed);
    }

    fn next_request(&mut self, cache: &mut Cache) -> Option<DiscoveryRequest> {
        let Stream::Open(open) = &mut self.stream else {
            return None;
        };
        if open.sending.is_some() {
            return None;
        }
        for state in self.types.iter_mut().filter(|state| state.is_due()) {
            let (gone, fallen) = state.forget_unwanted(cache);
            for key in &gone {
                cache.remove(key);
            }
            for deadline in &fallen {
                self.deadlines.remove(deadline);
            }
            let Some(mut request) = state.request() else {
                continue;
            };
            if !open.node_told {
                open.node_told = true;
                request.node = Some(self.config.node.clone());
            }
            open.sending = Some(state.kind.type_url);
            return Some(request);
        }
        None
    }
}

fn push_change(outputs: &mut VecDeque<Output>, key: Key, changed: Changed) {
    if changed != Changed::Nothing {
        outputs.push_back(Output::Changed { key, changed });
    }
}
