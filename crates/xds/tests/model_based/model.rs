//! The knowledge of a watcher by the specification, in as little code as possible.
//!
//! The model knows nothing of nonces, requests in flight or caches, because it must not share the
//! client's errors. It knows only what was said and what follows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crowfly_xds::{DataErrors, Protocol};

/// A resource: its kind, because responses of some types list everything (gRFC A53), and its name.
pub(crate) type Id = (Kind, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Cluster,
    Endpoints,
}

/// The trouble of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Deleted,
    Invalid,
    OutOfReach,
    Reported(i32),
    TimedOut,
}

/// The knowledge of a watcher about one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) value: Option<u8>,
    /// The version the value came with, until the server took it back.
    version: Option<String>,
    pub(crate) trouble: Option<Trouble>,
    /// The last trouble with the resource itself.
    failure: Option<Trouble>,
    /// When it is given up, in milliseconds from the start.
    deadline: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stream {
    Idle,
    Connecting,
    Open { answered: bool },
    Waiting,
}

/// One resource of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sent {
    Good(u8),
    Bad,
}

/// A response of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) resources: Vec<(&'static str, Sent)>,
    pub(crate) reports: Vec<(&'static str, i32)>,
    /// For delta only.
    pub(crate) removed: Vec<&'static str>,
    /// One more resource, which cannot be read.
    pub(crate) garbled: bool,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        for (name, sent) in &self.resources {
            parts.push(format!("{name} {sent:?}"));
        }
        for (name, code) in &self.reports {
            parts.push(format!("{name} has status {code}"));
        }
        for name in &self.removed {
            parts.push(format!("{name} is removed"));
        }
        if self.garbled {
            parts.push("one unreadable".to_owned());
        }
        write!(f, "[{}]", parts.join(", "))
    }
}

impl Said {
    /// The names that are spoken of more than once.
    pub(crate) fn contradicted(&self) -> BTreeSet<&'static str> {
        let resources = self.resources.iter().map(|(name, _)| *name);
        let reports = self.reports.iter().map(|(name, _)| *name);
        let removed = self.removed.iter().copied();
        let mut seen = BTreeSet::new();
        let all = resources.chain(reports).chain(removed);
        all.filter(|name| !seen.insert(*name)).collect()
    }
}

pub(crate) struct Model {
    protocol: Protocol,
    mode: DataErrors,
    pub(crate) now: u64,
    pub(crate) stream: Stream,
    pub(crate) watched: BTreeMap<Id, Known>,
    /// The types of which everything is watched.
    pub(crate) whole: BTreeSet<Kind>,
    /// The resources that came only because everything of their type is watched. Of these only the
    /// value is known.
    pub(crate) unnamed: BTreeMap<Id, Known>,
    /// Unwatched while there was no stream to say so: watched again, they were never gone.
    leaving: BTreeMap<Id, Known>,
    /// The types that were watched since the client was last idle.
    pub(crate) types: BTreeSet<Kind>,
}

impl Model {
    pub(crate) fn new(protocol: Protocol, mode: DataErrors) -> Self {
        Self {
            protocol,
            mode,
            now: 0,
            stream: Stream::Idle,
            watched: BTreeMap::new(),
            whole: BTreeSet::new(),
            unnamed: BTreeMap::new(),
            leaving: BTreeMap::new(),
            types: BTreeSet::new(),
        }
    }

    pub(crate) fn watch(&mut self, id: Id) {
        if self.watched.contains_key(&id) {
            return;
        }
        let unnamed = self.unnamed.remove(&id);
        let known = unnamed.or_else(|| self.leaving.remove(&id));
        let mut known = known.unwrap_or_default();
        self.types.insert(id.0);
        match self.stream {
            Stream::Idle => self.stream = Stream::Connecting,
            Stream::Open { .. } if known.value.is_none() => {
                known.deadline = Some(self.now + self.patience());
            }
            Stream::Waiting if known.value.is_none() && !known.does_not_exist() => {
                known.trouble = Some(Trouble::OutOfReach);
            }
            Stream::Connecting | Stream::Open { .. } | Stream::Waiting => {}
        }
        self.watched.insert(id, known);
    }

    pub(crate) fn unwatch(&mut self, id: Id) {
        let Some(known) = self.watched.remove(&id) else {
            return;
        };
        if self.whole.contains(&id.0) && known.value.is_some() {
            self.unnamed.insert(id, known);
        } else if !self.is_open() {
            self.leaving.insert(id, known);
        }
        self.rest();
    }

    pub(crate) fn watch_all(&mut self, kind: Kind) {
        self.whole.insert(kind);
        self.types.insert(kind);
        let (back, leaving) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|((of, _), known)| *of == kind && known.value.is_some());
        self.unnamed.extend::<BTreeMap<Id, Known>>(back);
        self.leaving = leaving;
        if self.stream == Stream::Idle {
            self.stream = Stream::Connecting;
        }
    }

    pub(crate) fn unwatch_all(&mut self, kind: Kind) {
        if !self.whole.remove(&kind) {
            return;
        }
        let (gone, unnamed) = std::mem::take(&mut self.unnamed)
            .into_iter()
            .partition(|((of, _), _)| *of == kind);
        self.unnamed = unnamed;
        if !self.is_open() {
            self.leaving.extend::<BTreeMap<Id, Known>>(gone);
        }
        self.rest();
    }

    /// With nothing left to watch, all is forgotten.
    fn rest(&mut self) {
        if self.watched.is_empty() && self.whole.is_empty() {
            self.stream = Stream::Idle;
            self.leaving.clear();
            self.types.clear();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stream, Stream::Open { .. })
    }

    /// All that somebody watches, by name or not.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&Id, &Known)> {
        self.watched.iter().chain(&self.unnamed)
    }

    pub(crate) fn opened(&mut self) {
        self.stream = Stream::Open { answered: false };
        self.leaving.clear();
        let deadline = self.now + self.patience();
        for known in self.watched.values_mut() {
            known.deadline = known.value.is_none().then_some(deadline);
        }
    }

    /// gRFC A57. `next` is what the client did about it.
    pub(crate) fn closed(&mut self, next: Stream) {
        let answered = self.stream == Stream::Open { answered: true };
        self.stream = next;
        let whole = &self.whole;
        let leaving = self.leaving.iter_mut();
        let leaving = leaving.filter(|((kind, _), _)| whole.contains(kind));
        let known = self.watched.iter_mut().chain(&mut self.unnamed);
        for (_, known) in known.chain(leaving) {
            known.deadline = None;
            if !answered {
                known.trouble = Some(Trouble::OutOfReach);
            }
        }
    }

    pub(crate) fn advance(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        for known in self.watched.values_mut() {
            if known.deadline.is_some_and(|deadline| deadline <= self.now) {
                known.deadline = None;
                known.fail(Trouble::TimedOut, false);
            }
        }
    }

    /// Takes a response; returns whether it is refused, or `None` if it is passed over.
    pub(crate) fn responded(&mut self, kind: Kind, said: &Said, version: &str) -> Option<bool> {
        if !self.is_open() || !self.types.contains(&kind) {
            return None;
        }
        self.stream = Stream::Open { answered: true };
        for known in self.watched.values_mut().chain(self.unnamed.values_mut()) {
            if known.value.is_some() && known.trouble == Some(Trouble::OutOfReach) {
                known.trouble = known.failure;
            }
        }
        let keep_invalid = keeps_on_invalid(self.mode);
        let mut refused = said.garbled;
        let mut seen = BTreeSet::new();
        for (name, sent) in &said.resources {
            seen.insert(*name);
            if let Some(known) = self.asked_for((kind, *name)) {
                refused |= *sent == Sent::Bad;
                known.take(*sent, version, keep_invalid);
            }
        }
        for (name, code) in &said.reports {
            let Some(keep) = keeps_on_report(self.mode, *code) else {
                continue;
            };
            seen.insert(name);
            if let Some(known) = self.asked_for((kind, *name)) {
                known.fail(Trouble::Reported(*code), keep);
            }
        }
        self.delete(kind, said, &seen);
        self.unnamed.retain(|_, known| known.value.is_some());
        Some(refused)
    }

    fn asked_for(&mut self, id: Id) -> Option<&mut Known> {
        if self.whole.contains(&id.0) && !self.watched.contains_key(&id) {
            return Some(self.unnamed.entry(id).or_default());
        }
        self.watched.get_mut(&id)
    }

    /// In delta the server says what is gone; in state of the world, what held everything before
    /// does.
    fn delete(&mut self, kind: Kind, said: &Said, seen: &BTreeSet<&str>) {
        let mode = self.mode;
        let all = self.watched.iter_mut().chain(&mut self.unnamed);
        for ((_, name), known) in all.filter(|((of, _), _)| *of == kind) {
            let gone = match self.protocol {
                Protocol::Delta => said.removed.contains(name),
                Protocol::StateOfTheWorld => {
                    kind == Kind::Cluster && known.value.is_some() && !seen.contains(name)
                }
            };
            if gone {
                known.delete(mode);
            }
        }
    }

    fn patience(&self) -> u64 {
        match self.mode {
            DataErrors::Uniform {
                timer_is_transient: true,
                ..
            } => 30_000,
            _ => 15_000,
        }
    }
}

impl Known {
    /// The version that a server is told on a new delta stream.
    pub(crate) fn version(&self) -> Option<&str> {
        self.value.and(self.version.as_deref())
    }

    fn take(&mut self, sent: Sent, version: &str, keep: bool) {
        match sent {
            Sent::Good(value) => {
                *self = Self {
                    value: Some(value),
                    version: Some(version.to_owned()),
                    ..Self::default()
                }
            }
            Sent::Bad => self.fail(Trouble::Invalid, keep),
        }
    }

    fn fail(&mut self, trouble: Trouble, keep: bool) {
        self.deadline = None;
        self.failure = Some(trouble);
        self.trouble = Some(trouble);
        if !keep {
            self.value = None;
        }
    }

    /// If the resource stays all the same, the server must send it again when it is back, even if
    /// it is back under the same version.
    fn delete(&mut self, mode: DataErrors) {
        self.deadline = None;
        self.version = None;
        match mode {
            DataErrors::Classic {
                ignore_deletion: true,
            } if self.value.is_some() => {}
            DataErrors::Classic { .. } => self.fail(Trouble::Deleted, false),
            DataErrors::Uniform { fail, .. } => self.fail(Trouble::Deleted, !fail),
        }
    }

    /// gRFC A71 counts this as known.
    fn does_not_exist(&self) -> bool {
        matches!(self.failure, Some(Trouble::Deleted | Trouble::TimedOut))
    }
}

fn keeps_on_invalid(mode: DataErrors) -> bool {
    !matches!(mode, DataErrors::Uniform { fail: true, .. })
}

/// gRFC A88: NOT_FOUND and PERMISSION_DENIED are about the resource.
fn keeps_on_report(mode: DataErrors, code: i32) -> Option<bool> {
    match mode {
        DataErrors::Classic { .. } => None,
        DataErrors::Uniform { fail, .. } => Some(!(fail && [5, 7].contains(&code))),
    }
}
