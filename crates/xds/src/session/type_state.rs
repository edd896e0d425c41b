//! The names of one type that a session wants, and how far the search for each has come.
//!
//! The server hears of a name later than the session, and both views have to be kept (S1-22).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::names::{Authority, authority_of};
use envoy_types::pb::envoy::config::core::v3::Node;

use super::delta::DeltaWire;
use super::refusal::Refusal;
use super::sotw::SotwWire;
use super::{Protocol, Request, Want};
use crate::cache::{Cache, CacheEntry};
use crate::kind::{Key, Kind};
use crate::sorted::Sorted;

pub(super) const WILDCARD: &str = "*";

#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) kind: Kind,
    pub(super) names: Names,
    pub(super) wire: Wire,
}

/// The names the server believes to be wanted, or soon will.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) all: bool,
    /// The server has not heard yet that not everything is wanted any more.
    all_leaving: bool,
    /// Something is no longer wanted.
    pub(super) leaving: bool,
    pub(super) by_name: Sorted<Arc<str>, Name>,
    /// Those in the request on its way that no request had before, so that one changed resource
    /// among many costs no look at the others.
    sending: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Name {
    progress: Progress,
    /// A name that is no longer wanted stays until a request without it goes out: wanted again
    /// before that, it was never gone, and the server would not send it again.
    wanted: bool,
}

/// How far the search for a name has come on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unsent,
    Sending,
    Awaited { deadline: Instant },
    Settled,
}

/// Where the conversation about this type stands, in its protocol's terms.
#[derive(Debug)]
pub(super) enum Wire {
    Delta(DeltaWire),
    Sotw(SotwWire),
}

impl TypeState {
    pub(super) fn new(kind: Kind, protocol: Protocol) -> Self {
        Self {
            kind,
            names: Names::default(),
            wire: Wire::new(protocol),
        }
    }

    pub(super) fn add(&mut self, want: Want) {
        let (name, known) = match want {
            Want::All => (
                WILDCARD.into(),
                std::mem::replace(&mut self.names.all, true),
            ),
            Want::Named(name) => {
                let new = || Name {
                    progress: Progress::Unsent,
                    wanted: false,
                };
                let entry = self
                    .names
                    .by_name
                    .get_or_insert_with(Arc::clone(&name), new);
                (name, std::mem::replace(&mut entry.wanted, true))
            }
        };
        if !known {
            self.wire.subscribe(name);
        }
    }

    pub(super) fn remove(&mut self, want: &Want) {
        let (name, known) = match want {
            Want::All => {
                self.names.all_leaving |= self.names.all;
                (WILDCARD.into(), std::mem::take(&mut self.names.all))
            }
            Want::Named(name) => {
                let entry = self.names.by_name.get_mut(name);
                let known = entry.is_some_and(|name| std::mem::take(&mut name.wanted));
                (Arc::clone(name), known)
            }
        };
        if known {
            self.names.leaving = true;
            self.wire.unsubscribe(name);
        }
    }

    /// Lets go of something at once, before the server hears of it; returns the deadline that falls.
    pub(super) fn dismiss(&mut self, want: &Want) -> Option<(Instant, Key)> {
        self.remove(want);
        let Want::Named(name) = want else {
            self.names.all_leaving = false;
            self.wire.forget_unnamed(&self.names);
            return None;
        };
        let dismissed = self.names.by_name.remove(name)?;
        self.wire.forget(name);
        let deadline = dismissed.progress.deadline()?;
        Some((deadline, self.kind.key(name)))
    }

    /// Lets go of what is no longer wanted; returns the resources that go, and the deadlines that
    /// fall.
    pub(super) fn release(&mut self, cache: &Cache) -> (Vec<Key>, Vec<(Instant, Key)>) {
        self.names.leaving = false;
        let (mut gone, mut fallen) = (Vec::new(), Vec::new());
        let unwanted = self.names.by_name.iter().filter(|(_, name)| !name.wanted);
        let unwanted: Vec<Arc<str>> = unwanted.map(|(name, _)| Arc::clone(name)).collect();
        for name in unwanted {
            let key = self.kind.key(&name);
            let released = self.names.by_name.remove(&name);
            let deadline = released.and_then(|name| name.progress.deadline());
            fallen.extend(deadline.map(|deadline| (deadline, key.clone())));
            if !self.names.all || !cache.has_value(&key) {
                self.wire.forget(&name);
                gone.push(key);
            }
        }
        if std::mem::take(&mut self.names.all_leaving) && !self.names.all {
            let unnamed = self.keys(cache).into_iter();
            for key in unnamed.filter(|key| !self.names.by_name.contains_key(&key.name)) {
                self.wire.forget(&key.name);
                gone.push(key);
            }
        }
        (gone, fallen)
    }

    pub(super) fn is_unwanted(&self) -> bool {
        !self.names.all && self.names.by_name.values().all(|name| !name.wanted)
    }

    /// Whether something was asked for that the server has not spoken about.
    pub(super) fn is_awaited(&self) -> bool {
        let mut names = self.names.by_name.values();
        names.any(|name| name.progress.deadline().is_some())
    }

    /// Every resource of this type in the cache, in order.
    pub(super) fn keys(&self, cache: &Cache) -> Vec<Key> {
        let of_type = |key: &&Key| key.kind == self.kind;
        let mut keys: Vec<Key> = cache
            .iter()
            .map(|(key, _)| key)
            .filter(of_type)
            .cloned()
            .collect();
        keys.sort();
        keys
    }

    pub(super) fn start_stream(&mut self) {
        self.wire.start_stream(&self.names);
    }

    pub(super) fn end_stream(&mut self) {
        self.names.sending.clear();
        for (_, name) in self.names.by_name.iter_mut() {
            name.progress = Progress::Unsent;
        }
    }

    pub(super) fn speak(&mut self, protocol: Protocol) {
        self.wire = Wire::new(protocol);
    }

    pub(super) fn is_due(&self) -> bool {
        match &self.wire {
            Wire::Delta(wire) => wire.is_due(),
            Wire::Sotw(wire) => wire.is_due(&self.names),
        }
    }

    /// How many requests it takes to answer what has come.
    pub(super) fn answers_owed(&self) -> usize {
        match &self.wire {
            Wire::Delta(wire) => wire.answers_owed(),
            // The newest response has the only answer.
            Wire::Sotw(_) => 0,
        }
    }

    /// The request that says what there is to say about this type now. Comes after
    /// [`release`](Self::release).
    pub(super) fn request(&mut self, node: Option<Node>) -> Request {
        match &mut self.wire {
            Wire::Delta(wire) => Request::Delta(wire.request(self.kind, &mut self.names, node)),
            Wire::Sotw(wire) => Request::Sotw(wire.request(self.kind, &mut self.names, node)),
        }
    }

    /// The request is on its way: from now on the server may be blamed for what it does not send.
    /// Returns the resources whose deadline begins.
    pub(super) fn sent(&mut self, cache: &Cache, deadline: Instant) -> Vec<Key> {
        let mut awaited = Vec::new();
        for name in std::mem::take(&mut self.names.sending) {
            let found = self.names.by_name.get_mut(&name);
            let Some(Name { progress, .. }) =
                found.filter(|name| name.progress == Progress::Sending)
            else {
                continue;
            };
            let key = self.kind.key(&name);
            if cache.has_value(&key) {
                *progress = Progress::Settled;
            } else {
                *progress = Progress::Awaited { deadline };
                awaited.push(key);
            }
        }
        awaited
    }

    /// The server has spoken about `name`; returns the deadline that thereby falls.
    pub(super) fn settle(&mut self, name: &str) -> Option<Instant> {
        let Name { progress, .. } = self.names.by_name.get_mut(name)?;
        let deadline = progress.deadline();
        *progress = Progress::Settled;
        deadline
    }

    pub(super) fn answer_sotw(
        &mut self,
        nonce: String,
        version: &str,
        errors: &Refusal,
        cache: &Cache,
    ) {
        let kind = self.kind;
        if let Wire::Sotw(wire) = &mut self.wire {
            wire.answer(nonce, version, errors, |name| {
                cache.has_value(&kind.key(name))
            });
        }
    }

    /// On the first response of a stream of which everything is wanted: what another server sent
    /// before, under no name. In delta this one will not say that it does not have it.
    pub(super) fn leftovers(&mut self, cache: &Cache) -> Vec<Key> {
        let Wire::Delta(wire) = &mut self.wire else {
            return Vec::new();
        };
        if !self.names.all || !wire.is_first_response() {
            return Vec::new();
        }
        let mut keys = self.keys(cache);
        keys.retain(|key| self.is_leftover(key, cache));
        keys
    }

    /// Whether another server sent it, under no name, and this one has not spoken of it.
    pub(super) fn is_leftover(&self, key: &Key, cache: &Cache) -> bool {
        let Wire::Delta(wire) = &self.wire else {
            return false;
        };
        let good = |entry: &CacheEntry| entry.has_value() && entry.failure().is_none();
        self.names.all
            && !self.names.by_name.contains_key(&key.name)
            && authority_of(&key.name) == Authority::Default
            && !wire.has_sent(&key.name)
            && cache.entry(key).is_some_and(good)
    }

    pub(super) fn answer_delta(&mut self, nonce: String, errors: &Refusal) {
        if let Wire::Delta(wire) = &mut self.wire {
            wire.answer(nonce, errors);
        }
    }
}

impl Names {
    pub(super) fn has(&self, name: &str) -> bool {
        self.all || self.all_leaving || self.by_name.contains_key(name)
    }

    /// Whether absence says something about every resource that came.
    pub(super) fn has_all(&self) -> bool {
        self.all || self.all_leaving
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.by_name.is_empty()
    }

    /// Notes that a request with this name goes out.
    pub(super) fn sending(&mut self, name: &Arc<str>) {
        let progress = self.by_name.get_mut(name).map(|name| &mut name.progress);
        let begins = progress.is_some_and(Progress::begin);
        self.sending.extend(begins.then(|| Arc::clone(name)));
    }

    /// Notes that a request with all names but these goes out, and lists them.
    pub(super) fn sending_all_but(&mut self, withheld: &BTreeSet<Arc<str>>) -> Vec<String> {
        let mut told = Vec::new();
        for (name, Name { progress, .. }) in self.by_name.iter_mut() {
            if !withheld.contains(name) {
                told.push(name.to_string());
                let begins = progress.begin();
                self.sending.extend(begins.then(|| Arc::clone(name)));
            }
        }
        told
    }
}

impl Progress {
    /// A request with the name goes out; whether it is the first.
    fn begin(&mut self) -> bool {
        let begins = *self == Self::Unsent;
        if begins {
            *self = Self::Sending;
        }
        begins
    }

    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Awaited { deadline } => Some(deadline),
            _ => None,
        }
    }
}

impl Wire {
    fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Delta => Self::Delta(DeltaWire::default()),
            Protocol::StateOfTheWorld => Self::Sotw(SotwWire::default()),
        }
    }

    fn subscribe(&mut self, name: Arc<str>) {
        match self {
            Self::Delta(wire) => wire.subscribe(name),
            Self::Sotw(wire) => wire.names_changed(),
        }
    }

    fn unsubscribe(&mut self, name: Arc<str>) {
        match self {
            Self::Delta(wire) => wire.unsubscribe(name),
            Self::Sotw(wire) => wire.names_changed(),
        }
    }

    fn start_stream(&mut self, names: &Names) {
        match self {
            Self::Delta(wire) => wire.start_stream(names),
            Self::Sotw(wire) => wire.start_stream(),
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        match self {
            Self::Delta(wire) => wire.forget(name),
            Self::Sotw(wire) => wire.left_out(Arc::clone(name)),
        }
    }

    /// What came without being named is not this server's any more. State of the world has no
    /// version for one name.
    fn forget_unnamed(&mut self, names: &Names) {
        if let Self::Delta(wire) = self {
            wire.forget_unnamed(names);
        }
    }

    /// What was accepted under this name is no longer held. State of the world has no version for
    /// one name.
    pub(super) fn lost(&mut self, name: &str) {
        if let Self::Delta(wire) = self {
            wire.forget(name);
        }
    }

    pub(super) fn forget_versions(&mut self) {
        match self {
            Self::Delta(wire) => wire.forget_versions(),
            Self::Sotw(wire) => wire.forget_version(),
        }
    }
}
