//! The client half across servers: which server to ask for which resource, and whom to believe.
//!
//! A resource belongs to an authority (gRFC A47), and an authority has a list of servers in order of
//! preference (gRFC A71). Servers are asked one more at a time: the next one only when the last one
//! fails while something that is watched is not known yet. Those before it stay subscribed, so that
//! the first word of a better server ends the conversation with all worse ones.

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

/// One of the servers that [`Discovery::new`] was given, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// Whom to ask.
#[derive(Clone, Debug, Default)]
pub struct Authorities {
    /// For names of the old style, which have no authority.
    pub default: Vec<ServerId>,
    /// For `xdstp://` names.
    pub named: BTreeMap<String, Vec<ServerId>>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoveryOutput {
    /// Tell the watchers of `key` what the cache now says.
    Changed {
        /// Which resource.
        key: Key,
        /// What of it.
        changed: Changed,
    },
    /// Drop the stream to this server.
    Close(ServerId),
    /// For metrics: a server could not be reached, or said nothing.
    Failed(ServerId),
    /// Open a stream to this server.
    Open(ServerId, Protocol),
    /// For metrics: what a response held.
    Received {
        /// From whom.
        server: ServerId,
        /// Of which type.
        kind: Kind,
        /// How many resources were taken.
        valid: usize,
        /// How many were refused.
        invalid: usize,
    },
    /// Send this to that server.
    Send(ServerId, Box<Request>),
}

/// All that an xDS client knows and does, but for the I/O.
#[derive(Debug)]
pub struct Discovery {
    readings: Readings,
    cache: Cache,
    node: Arc<str>,
    sessions: Vec<Session>,
    default: Authority,
    named: BTreeMap<String, Authority>,
    outputs: VecDeque<DiscoveryOutput>,
    /// Resources that a wildcard brought and that are gone: forgotten once their watchers know.
    gone: Vec<Key>,
}

#[derive(Debug, Default)]
struct Authority {
    servers: Vec<ServerId>,
    /// The position in `servers` of the last one that is asked.
    last: usize,
    watched: SortedSet<Key>,
    /// Types of which everything is wanted; whether anything is known of one.
    whole_types: BTreeMap<&'static str, (Kind, bool)>,
}

impl Discovery {
    /// A client of these servers, each with its own settings but the same node. It can watch the
    /// types that it has readings of.
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

    /// What is known.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Begins to watch a resource, and returns the key that it is known by. What is known of it
    /// already is in the cache. The error is that the client does not read the type so.
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

    /// Begins to watch every resource of a type that the servers of the default authority have. The
    /// error is that the client does not read the type so.
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

    /// Takes note of what happened on the stream to a server.
    pub fn handle(&mut self, server: ServerId, input: Input, now: Instant) {
        self.sessions[server.0].handle(input, &mut self.cache, now);
    }

    /// Does what was due at [`next_timeout`](Self::next_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.handle_timeout(&mut self.cache, now);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sessions.iter().filter_map(Session::next_timeout).min()
    }

    /// Whether the next response of a server may be read.
    pub fn may_read(&self, server: ServerId) -> bool {
        self.sessions[server.0].may_read()
    }

    /// The next thing to do; `None` when there is nothing more for now. What the cache says of a
    /// changed resource is to be read before this is called again.
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

    /// Deals with what a session wants done, as far as it is not for others to do.
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

    /// Whether only a wildcard wanted it, and there is nothing left to want. A name that a server has
    /// not heard to be unwanted may be wanted again, and would then not be sent again (S1-22).
    fn is_gone(&mut self, key: &Key) -> bool {
        let has_value = self.cache.has_value(key);
        let authority = authority_of(&mut self.default, &mut self.named, &key.name);
        let watched = authority.is_some_and(|authority| authority.watched.contains_key(key));
        let named = || self.sessions.iter().any(|session| session.names(key));
        !has_value && !watched && !named()
    }

    /// The first word of a server: those after it are no longer asked.
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

    /// A server failed: another is asked if that may help; otherwise the watchers hear.
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

    /// A new watch may find the last server failing: that is as good a reason as a new failure.
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

    /// No server can be asked for this.
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

    /// Everything that is wanted.
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

    /// All that is watched, and all that came because a whole type is, which is the default
    /// authority's.
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

    /// With nothing left to want, the next want begins with the best server.
    fn rest(&mut self) {
        if self.watched.is_empty() && self.whole_types.is_empty() {
            self.last = 0;
        }
    }

    /// gRFC A71: asks one more server, if there is one and something is not known. What it sends
    /// takes the place of what better servers sent, so they must send theirs again when they are
    /// back.
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
