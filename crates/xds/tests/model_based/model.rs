//! What the specification says a watcher must know, in as few words as possible.
//!
//! It knows nothing of nonces, requests in flight or caches; only of what was said and what follows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crowfly_xds::{DataErrors, Protocol};

/// Whether a resource is of a type whose responses list everything (gRFC A53), and its name.
pub(crate) type Id = (Kind, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Cluster,
    Endpoints,
}

/// What is wrong with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Deleted,
    Invalid,
    OutOfReach,
    Reported(i32),
    TimedOut,
}

/// What a watcher knows.
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

/// What the server says.
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
            leaving: BTreeMap::new(),
            types: BTreeSet::new(),
        }
    }

    pub(crate) fn watch(&mut self, id: Id) {
        if self.watched.contains_key(&id) {
            return;
        }
        let mut known = self.leaving.remove(&id).unwrap_or_default();
        self.types.insert(id.0);
        match self.stream {
            Stream::Idle => self.stream = Stream::Connecting,
            Stream::Open { .. } => known.deadline = Some(self.now + self.patience()),
            Stream::Waiting if known.value.is_none() && !known.does_not_exist() => {
                known.trouble = Some(Trouble::OutOfReach);
            }
            Stream::Connecting | Stream::Waiting => {}
        }
        self.watched.insert(id, known);
    }

    pub(crate) fn unwatch(&mut self, id: Id) {
        let Some(known) = self.watched.remove(&id) else {
            return;
        };
        if !matches!(self.stream, Stream::Open { .. }) {
            self.leaving.insert(id, known);
        }
        if self.watched.is_empty() {
            self.stream = Stream::Idle;
            self.leaving.clear();
            self.types.clear();
        }
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
        for known in self.watched.values_mut() {
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
        if !matches!(self.stream, Stream::Open { .. }) || !self.types.contains(&kind) {
            return None;
        }
        self.stream = Stream::Open { answered: true };
        for known in self.watched.values_mut() {
            if known.value.is_some() && known.trouble == Some(Trouble::OutOfReach) {
                known.trouble = known.failure;
            }
        }
        let mut refused = said.garbled;
        let mut seen = BTreeSet::new();
        for (name, sent) in &said.resources {
            if !seen.insert(*name) {
                refused = true;
            } else if let Some(known) = self.watched.get_mut(&(kind, *name)) {
                refused |= *sent == Sent::Bad;
                known.take(*sent, version, keeps_on_invalid(self.mode));
            }
        }
        for (name, code) in &said.reports {
            let Some(keep) = keeps_on_report(self.mode, *code) else {
                continue;
            };
            seen.insert(name);
            if let Some(known) = self.watched.get_mut(&(kind, *name)) {
                known.fail(Trouble::Reported(*code), keep);
            }
        }
        self.delete(kind, said, &seen);
        Some(refused)
    }

    /// In delta the server says what is gone; in state of the world, what held everything before
    /// does.
    fn delete(&mut self, kind: Kind, said: &Said, seen: &BTreeSet<&str>) {
        let mode = self.mode;
        for ((_, name), known) in self.watched.iter_mut().filter(|((of, _), _)| *of == kind) {
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
    /// What a server is told on a new delta stream.
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
