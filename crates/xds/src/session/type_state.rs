//! The names of one type that a session wants, and the progress of each on this stream.
//!
//! The server learns of a change in names later than the session does. Both views are kept, because
//! the server answers by its own (S1-22).

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

/// The names that the server believes to be wanted, or will once the next request arrives.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) all: bool,
    /// True if the wildcard was unsubscribed and the server has not been told yet.
    all_leaving: bool,
    /// True if a name or the wildcard is no longer wanted and has not been released yet.
    pub(super) leaving: bool,
    pub(super) by_name: Sorted<Arc<str>, Name>,
    /// The names that the request being sent has for the first time on this stream. The list is
    /// kept so that a request that adds one name costs no look at the others.
    sending: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Name {
    progress: Progress,
    /// False if the name is no longer wanted. The name then stays until a request without it goes
    /// out. If it is wanted again before that, the server does not know that it was gone, and would
    /// not send the resource again.
    wanted: bool,
}

/// The progress of a name on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unsent,
    Sending,
    Awaited { deadline: Instant },
    Settled,
}

/// The state of the protocol for this type, which depends on the variant.
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

    /// Drops a subscription at once, before the server is told. Returns the deadline that no longer
    /// applies.
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

    /// Drops names that are no longer wanted. Returns the resources to forget, and the deadlines
    /// that no longer apply.
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

    /// True if the server was asked for a resource of this type and has not answered for it yet.
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

    /// The number of responses that still need an ACK or a NACK of their own.
    pub(super) fn answers_owed(&self) -> usize {
        match &self.wire {
            Wire::Delta(wire) => wire.answers_owed(),
            // Only the newest response is answered, by the next request.
            Wire::Sotw(_) => 0,
        }
    }

    /// The next request for this type. Call [`release`](Self::release) first.
    pub(super) fn request(&mut self, node: Option<Node>) -> Request {
        match &mut self.wire {
            Wire::Delta(wire) => Request::Delta(wire.request(self.kind, &mut self.names, node)),
            Wire::Sotw(wire) => Request::Sotw(wire.request(self.kind, &mut self.names, node)),
        }
    }

    /// Notes that the transport has taken the request. The deadlines of its new names begin now.
    /// Returns the resources that have one.
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

    /// Notes that the server has answered for `name`. Returns the deadline that no longer applies.
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

    /// The resources that another server sent to a wildcard before, on the first response of a
    /// stream with a wildcard. In delta, a server does not say that it does not have them.
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

    /// True if another server sent this resource to a wildcard, and this server has not sent it.
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

    /// True if the server believes that all resources are wanted. A full-state response then
    /// deletes every resource that it leaves out.
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

    /// Notes that a request with all names except `withheld` goes out, and returns those names.
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
    /// Notes that a request with the name goes out. Returns true if it is the first on this stream.
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

    /// Forgets the versions of resources that only the wildcard asked for. Only delta has a version
    /// for each name.
    fn forget_unnamed(&mut self, names: &Names) {
        if let Self::Delta(wire) = self {
            wire.forget_unnamed(names);
        }
    }

    /// Forgets the version that was accepted under this name, because the resource is no longer
    /// held. Only delta has a version for each name.
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
