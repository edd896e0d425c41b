//! The client half of the protocol across servers: it decides which server to ask for which
//! resource.
//!
//! A resource belongs to an authority (gRFC A47), and an authority has a list of servers in order
//! of preference (gRFC A71). At first only the best server is asked. The next one is asked when the
//! last one fails while a watched resource is still missing. The servers before it stay subscribed.
//! So the first response of a better server ends the subscriptions at all worse ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::names::{self, Authority as NameAuthority};
use tracing::{info, warn};

use crate::cache::{Cache, Changed, LastFailure, ResourceStatus};
use crate::error::{ResourceError, TroubleReason};
use crate::kind::{Key, Kind};
use crate::readings::{ReadingError, Readings};
use crate::session::{Input, Protocol, Request, Session, SessionConfig, SessionOutput, Want};
use crate::sorted::SortedSet;

/// The index of a server in the list that [`Discovery::new`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// The servers of each authority, best first.
#[derive(Clone, Debug, Default)]
pub struct Authorities {
    /// The servers for names of the old style, which have no authority.
    pub default: Vec<ServerId>,
    /// The servers for `xdstp://` names, by authority.
    pub named: BTreeMap<String, Vec<ServerId>>,
}

/// An action that the owner of a client has to take.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoveryOutput {
    /// Tell the watchers of `key` its new state in the cache.
    Changed {
        /// The resource that changed.
        key: Key,
        /// The part of its state that changed.
        changed: Changed,
    },
    /// Drop the stream to this server.
    Close(ServerId),
    /// A server could not be reached, or ended its stream without a response.
    Failed(ServerId),
    /// Open a stream to this server.
    Open(ServerId, Protocol),
    /// The numbers of resources in a response, for metrics.
    Received {
        /// The server that sent the response.
        server: ServerId,
        /// The type of the resources.
        kind: Kind,
        /// The number of resources that were accepted.
        valid: usize,
        /// The number of resources that were refused.
        invalid: usize,
    },
    /// Send this to that server.
    Send(ServerId, Box<Request>),
    /// Tell the watchers of whole types that no server is left to ask, for this reason. It is said of
    /// each attempt that fails, but not while a fallback is asked.
    Unreachable(Arc<str>),
}

/// An xDS client without the I/O: its sessions, its watches and its cache.
#[derive(Debug)]
pub struct Discovery {
    readings: Readings,
    cache: Cache,
    node: Arc<str>,
    sessions: Vec<Session>,
    default: Authority,
    named: BTreeMap<String, Authority>,
    outputs: VecDeque<DiscoveryOutput>,
    /// Resources that came through a wildcard and were deleted. They are forgotten once their
    /// watchers were told.
    gone: Vec<Key>,
}

#[derive(Debug, Default)]
struct Authority {
    servers: Vec<ServerId>,
    /// The position in `servers` of the last server that is asked.
    last: usize,
    watched: SortedSet<Key>,
    /// The types of which all resources are wanted. The flag is true once a response of the type
    /// arrived.
    whole_types: BTreeMap<&'static str, (Kind, bool)>,
}

impl Discovery {
    /// A client of these servers, each with its own settings but the same node. It can watch the
    /// types that `readings` can read.
    pub fn new(servers: Vec<SessionConfig>, authorities: Authorities, readings: Readings) -> Self {
        let node = servers.first().map(|config| config.node.id.as_str());
        let of = |servers| Authority {
            servers,
            ..Authority::default()
        };
        let named = authorities.named.into_iter();
        Self {
            cache: Cache::default(),
            node: node.unwrap_or_default().into(),
            sessions: servers
                .into_iter()
                .map(|config| Session::new(config, readings.clone()))
                .collect(),
            readings,
            default: of(authorities.default),
            named: named.map(|(name, servers)| (name, of(servers))).collect(),
            outputs: VecDeque::new(),
            gone: Vec::new(),
        }
    }

    /// The state of all resources that were asked for.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Begins to watch a resource, and returns its key in the cache. A value or error that is
    /// already known is there. The error says that the client does not read the type in this way.
    pub fn watch(&mut self, kind: Kind, name: &str, now: Instant) -> Result<Key, ReadingError> {
        self.readings.check(kind)?;
        let name = match names::canonical(name) {
            Ok(canonical) => canonical,
            Err(error) => {
                let key = kind.key(&name.into());
                self.refuse(&key, TroubleReason::Name(error.to_string()), now);
                return Ok(key);
            }
        };
        let key = kind.key(&(&*name).into());
        let Some(authority) = authority_of(&mut self.default, &mut self.named, &name) else {
            let unknown = names::authority_of(&name).to_string();
            self.refuse(&key, TroubleReason::UnknownAuthority(unknown), now);
            return Ok(key);
        };
        if !authority.watched.add(key.clone()) {
            return Ok(key);
        }
        let want = Want::Named(Arc::clone(&key.name));
        for server in authority.asked() {
            let input = Input::Subscribe {
                kind,
                want: want.clone(),
            };
            self.sessions[server.0].handle(input, &mut self.cache, now);
        }
        self.check_reach(&key, now);
        Ok(key)
    }

    /// Begins to watch all resources of a type on the servers of the default authority. The error
    /// says that the client does not read the type in this way.
    pub fn watch_all(&mut self, kind: Kind, now: Instant) -> Result<(), ReadingError> {
        self.readings.check(kind)?;
        self.default
            .whole_types
            .insert(kind.type_url, (kind, false));
        for server in self.default.asked() {
            let input = Input::Subscribe {
                kind,
                want: Want::All,
            };
            self.sessions[server.0].handle(input, &mut self.cache, now);
        }
        Ok(())
    }

    /// Stops watching a resource.
    pub fn unwatch(&mut self, key: &Key, now: Instant) {
        let found = authority_of(&mut self.default, &mut self.named, &key.name);
        let watched = found.filter(|authority| authority.watched.contains_key(key));
        let Some(authority) = watched else {
            self.cache.remove(key);
            return;
        };
        authority.watched.remove(key);
        let want = Want::Named(Arc::clone(&key.name));
        let asked = authority.asked();
        authority.rest();
        self.unsubscribe(&asked, key.kind, &want, now);
    }

    /// Stops watching a whole type.
    pub fn unwatch_all(&mut self, kind: Kind, now: Instant) {
        if self.default.whole_types.remove(kind.type_url).is_none() {
            return;
        }
        let asked = self.default.asked();
        self.default.rest();
        self.unsubscribe(&asked, kind, &Want::All, now);
    }

    /// Takes an event on the stream to a server.
    pub fn handle(&mut self, server: ServerId, input: Input, now: Instant) {
        self.sessions[server.0].handle(input, &mut self.cache, now);
    }

    /// Does what was due at [`next_timeout`](Self::next_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.handle_timeout(&mut self.cache, now);
        }
    }

    /// The time at which to call [`handle_timeout`](Self::handle_timeout), if nothing happens
    /// before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sessions.iter().filter_map(Session::next_timeout).min()
    }

    /// True if the next response of a server may be read.
    pub fn may_read(&self, server: ServerId) -> bool {
        self.sessions[server.0].may_read()
    }

    /// The next action; `None` when there is nothing more to do for now. Read the state of a
    /// changed resource from the cache before the next call.
    pub fn poll_output(&mut self, now: Instant) -> Option<DiscoveryOutput> {
        for key in std::mem::take(&mut self.gone) {
            self.cache.remove(&key);
        }
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let cache = &self.cache;
            let mut sessions = self.sessions.iter_mut().enumerate();
            let next = sessions
                .find_map(|(index, session)| Some((ServerId(index), session.poll_output(cache)?)));
            let Some((server, output)) = next else {
                self.outputs = VecDeque::new();
                return None;
            };
            if let Some(output) = self.take(server, output, now) {
                return Some(output);
            }
        }
    }

    /// Handles an output of a session. Returns an action if the owner has to take one.
    fn take(
        &mut self,
        server: ServerId,
        output: SessionOutput,
        now: Instant,
    ) -> Option<DiscoveryOutput> {
        match output {
            SessionOutput::Answered => self.answered(server),
            SessionOutput::Changed { key, changed } => {
                if self.is_gone(&key) {
                    self.gone.push(key.clone());
                }
                return Some(DiscoveryOutput::Changed { key, changed });
            }
            SessionOutput::Close => return Some(DiscoveryOutput::Close(server)),
            SessionOutput::Failed(reason) => self.failed(server, &reason, now),
            SessionOutput::Open(protocol) => return Some(DiscoveryOutput::Open(server, protocol)),
            SessionOutput::Received {
                kind,
                valid,
                invalid,
            } => {
                if let Some((_, known)) = self.default.whole_types.get_mut(kind.type_url) {
                    *known = true;
                }
                return Some(DiscoveryOutput::Received {
                    server,
                    kind,
                    valid,
                    invalid,
                });
            }
            SessionOutput::Released(key) => self.released(&key),
            SessionOutput::Send(request) => return Some(DiscoveryOutput::Send(server, request)),
        }
        None
    }

    /// True if a resource has no value, no watcher, and no server that is asked for it by name. It
    /// came through a wildcard and was deleted, so it can be forgotten. A name that a server still
    /// believes to be wanted is kept, because it may be wanted again. The server would then not
    /// send it again (S1-22).
    fn is_gone(&mut self, key: &Key) -> bool {
        let has_value = self.cache.has_value(key);
        let authority = authority_of(&mut self.default, &mut self.named, &key.name);
        let watched = authority.is_some_and(|authority| authority.watched.contains_key(key));
        let named = || self.sessions.iter().any(|session| session.names(key));
        !has_value && !watched && !named()
    }

    /// Takes the first response on a stream of a server: the servers after it are no longer asked.
    fn answered(&mut self, server: ServerId) {
        let mut dismissed = Vec::new();
        let authorities = std::iter::once(&mut self.default).chain(self.named.values_mut());
        for authority in authorities {
            let Some(position) = authority.position_asked(server) else {
                continue;
            };
            let worse: Vec<ServerId> = authority.asked().split_off(position + 1);
            authority.last = position;
            dismissed.extend(
                authority
                    .wants()
                    .map(|(kind, want)| (worse.clone(), kind, want)),
            );
            for key in authority.keys(&self.cache) {
                let changed = self.cache.entry_mut(&key).reconnected();
                push_change(&mut self.outputs, &key, changed);
            }
        }
        for (worse, kind, want) in dismissed {
            for server in worse {
                self.sessions[server.0].dismiss(kind, &want);
            }
        }
    }

    /// Takes the failure of a server. The next server is asked if something is missing; otherwise
    /// the watchers are told.
    fn failed(&mut self, server: ServerId, reason: &Arc<str>, now: Instant) {
        self.outputs.push_back(DiscoveryOutput::Failed(server));
        let authorities = std::iter::once(&mut self.default).chain(self.named.values_mut());
        for authority in authorities {
            if authority.current() != Some(server) {
                continue;
            }
            if authority.ask_next(&mut self.sessions, &mut self.cache, now) {
                continue;
            }
            authority.tell_unreachable(reason, &self.node, &mut self.cache, &mut self.outputs);
        }
    }

    /// Checks the servers for a new watch. If the last one is failing already, the next one is
    /// asked or the watcher is told.
    fn check_reach(&mut self, key: &Key, now: Instant) {
        let Some(authority) = authority_of(&mut self.default, &mut self.named, &key.name) else {
            return;
        };
        let failure = |sessions: &[Session], server: Option<ServerId>| {
            server.and_then(|server| sessions[server.0].failure().cloned())
        };
        let Some(reason) = failure(&self.sessions, authority.current()) else {
            return;
        };
        if self
            .cache
            .entry(key)
            .is_some_and(|entry| entry.is_settled())
            || authority.ask_next(&mut self.sessions, &mut self.cache, now)
        {
            return;
        }
        let error = unreachable(key, &reason, &self.node);
        let changed = self.cache.entry_mut(key).disconnected(error);
        push_change(&mut self.outputs, key, changed);
    }

    fn released(&mut self, key: &Key) {
        let has_value = self.cache.has_value(key);
        let authority = authority_of(&mut self.default, &mut self.named, &key.name);
        let wanted = authority.is_some_and(|authority| {
            authority.watched.contains_key(key) || (has_value && authority.wants_type(key))
        });
        if !wanted {
            self.cache.remove(key);
        }
    }

    fn unsubscribe(&mut self, servers: &[ServerId], kind: Kind, want: &Want, now: Instant) {
        for server in servers {
            let input = Input::Unsubscribe {
                kind,
                want: want.clone(),
            };
            self.sessions[server.0].handle(input, &mut self.cache, now);
        }
    }

    /// Reports a resource as non-existent, because no server can be asked for it.
    fn refuse(&mut self, key: &Key, reason: TroubleReason, now: Instant) {
        let error = ResourceError {
            noun: key.kind.noun,
            name: Arc::clone(&key.name),
            reason,
            node: Arc::clone(&self.node),
        };
        warn!(%error, "cannot be watched");
        let failure = LastFailure {
            error,
            version: Arc::default(),
            at: now,
        };
        let entry = self.cache.entry_mut(key);
        let changed = entry.fail(ResourceStatus::DoesNotExist, failure, false);
        push_change(&mut self.outputs, key, changed);
    }
}

impl Authority {
    /// The servers that are asked, best first.
    fn asked(&self) -> Vec<ServerId> {
        self.servers.iter().take(self.last + 1).copied().collect()
    }

    fn current(&self) -> Option<ServerId> {
        self.servers.get(self.last).copied()
    }

    fn position_asked(&self, server: ServerId) -> Option<usize> {
        self.asked().iter().position(|asked| *asked == server)
    }

    /// All subscriptions of this authority.
    fn wants(&self) -> impl Iterator<Item = (Kind, Want)> {
        let whole = self
            .whole_types
            .values()
            .map(|(kind, _)| (*kind, Want::All));
        let named = self.watched.keys();
        whole.chain(named.map(|key| (key.kind, Want::Named(Arc::clone(&key.name)))))
    }

    fn wants_type(&self, key: &Key) -> bool {
        self.whole_types.contains_key(key.kind.type_url)
    }

    /// All resources that are watched by name, and all that came through a wildcard. Only the
    /// default authority has wildcards.
    fn keys(&self, cache: &Cache) -> BTreeSet<Key> {
        let watched = self.watched.keys();
        if self.whole_types.is_empty() {
            return watched.cloned().collect();
        }
        let of_default = |key: &&Key| names::authority_of(&key.name) == NameAuthority::Default;
        let cached = cache.iter().map(|(key, _)| key);
        let of_whole = cached.filter(|key| self.wants_type(key)).filter(of_default);
        watched.chain(of_whole).cloned().collect()
    }

    /// Starts again with the best server once nothing is wanted.
    fn rest(&mut self) {
        if self.watched.is_empty() && self.whole_types.is_empty() {
            self.last = 0;
        }
    }

    /// Asks one more server if there is one and a wanted resource is missing (gRFC A71). Its
    /// resources replace those of better servers in the cache. So the better servers must send
    /// theirs again when they are back.
    fn ask_next(&mut self, sessions: &mut [Session], cache: &mut Cache, now: Instant) -> bool {
        while self.last + 1 < self.servers.len() && self.lacks_something(cache) {
            for server in self.asked() {
                sessions[server.0].forget_versions();
            }
            self.last += 1;
            let Some(next) = self.current() else {
                return false;
            };
            info!(server = next.0, "asking the next xDS server");
            for (kind, want) in self.wants() {
                sessions[next.0].handle(Input::Subscribe { kind, want }, cache, now);
            }
            if sessions[next.0].failure().is_none() {
                return true;
            }
        }
        false
    }

    fn lacks_something(&self, cache: &Cache) -> bool {
        let unknown = |key: &Key| !cache.entry(key).is_some_and(|entry| entry.is_settled());
        self.watched.keys().any(unknown) || self.whole_types.values().any(|(_, known)| !known)
    }

    fn tell_unreachable(
        &self,
        reason: &Arc<str>,
        node: &Arc<str>,
        cache: &mut Cache,
        outputs: &mut VecDeque<DiscoveryOutput>,
    ) {
        if !self.whole_types.is_empty() {
            outputs.push_back(DiscoveryOutput::Unreachable(Arc::clone(reason)));
        }
        for key in self.keys(cache) {
            let error = unreachable(&key, reason, node);
            let changed = cache.entry_mut(&key).disconnected(error);
            push_change(outputs, &key, changed);
        }
    }
}

fn authority_of<'a>(
    default: &'a mut Authority,
    named: &'a mut BTreeMap<String, Authority>,
    name: &str,
) -> Option<&'a mut Authority> {
    match names::authority_of(name) {
        NameAuthority::Default => Some(default),
        NameAuthority::Named(authority) => named.get_mut(&*authority),
    }
}

fn unreachable(key: &Key, reason: &Arc<str>, node: &Arc<str>) -> ResourceError {
    ResourceError {
        noun: key.kind.noun,
        name: Arc::clone(&key.name),
        reason: TroubleReason::Connectivity(Arc::clone(reason)),
        node: Arc::clone(node),
    }
}

fn push_change(outputs: &mut VecDeque<DiscoveryOutput>, key: &Key, changed: Changed) {
    if changed != Changed::Nothing {
        outputs.push_back(DiscoveryOutput::Changed {
            key: key.clone(),
            changed,
        });
    }
}
