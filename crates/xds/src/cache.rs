//! What is known of each watched resource.
//!
//! An entry holds the last good resource and the last thing that went wrong, side by side. Trouble
//! that leaves a good resource standing is *ambient* (gRFC A88): worth telling, no reason to stop.
//! Which trouble takes the resource away is for [`DataErrors`](crate::DataErrors) to say.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crowfly_model::{ResourceType, Unsupported};

use crate::error::{ResourceError, TroubleReason};
use crate::kind::{Erased, Key, Kind};

/// The resources one reader watches, each with what is known of it.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    entries: HashMap<Key, CacheEntry>,
}

impl Cache {
    /// What is known of a resource; `None` if it is not watched.
    pub fn entry(&self, key: &Key) -> Option<&CacheEntry> {
        self.entries.get(key)
    }

    /// The value of the resource of type `R` named `name`, or why there is none. `None` while
    /// neither is known.
    pub fn read<R: ResourceType>(
        &self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.entry(&Key::of::<R>(name))?.read::<R>()
    }

    /// Replaces what is known of a resource.
    pub fn put(&mut self, key: Key, entry: CacheEntry) {
        self.entries.insert(key, entry);
    }

    /// Forgets a resource.
    pub fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// Every entry, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &CacheEntry)> {
        self.entries.iter()
    }

    pub(crate) fn entry_mut(&mut self, key: &Key) -> &mut CacheEntry {
        self.entries.entry(key.clone()).or_default()
    }

    pub(crate) fn has_value(&self, key: &Key) -> bool {
        self.entry(key).is_some_and(CacheEntry::has_value)
    }
}

/// What is known of one resource.
#[derive(Clone, Debug, Default)]
pub struct CacheEntry {
    /// Shared by all who were told of it.
    resource: Option<Arc<Received>>,
    state: ResourceStatus,
    deletion_ignored: bool,
    /// Rare, so it is elsewhere.
    failure: Option<Box<LastFailure>>,
    /// What watchers were last told is wrong: the failure, or that the server is out of reach.
    trouble: Option<Box<ResourceError>>,
}

/// A good resource, as it came.
#[derive(Clone, Debug)]
pub struct Received {
    value: Erased,
    /// The message inside the `Any`.
    pub raw: Bytes,
    /// What the server called it.
    pub version: Arc<str>,
    /// When it came.
    pub at: Instant,
}

/// Something that went wrong with the resource itself.
#[derive(Clone, Debug)]
pub struct LastFailure {
    /// What.
    pub error: ResourceError,
    /// The version it came with, if it came with one.
    pub version: Arc<str>,
    /// When.
    pub at: Instant,
}

/// The states of gRFC A88, as CSDS and metrics show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceStatus {
    /// The newest that came is valid.
    Acked,
    /// It was deleted, or did not come in time.
    DoesNotExist,
    /// The newest that came is not valid.
    Nacked,
    /// The server reported an error in its place.
    ReceivedError,
    /// It was asked for.
    #[default]
    Requested,
    /// It did not come in time, from a server that would have said if it did not exist.
    TimedOut,
}

impl CacheEntry {
    /// The value as type `R`, or why there is none; `None` while neither is known.
    pub fn read<R: ResourceType>(&self) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        match (&self.resource, &self.trouble) {
            (Some(received), _) => Arc::clone(&received.value).downcast().ok().map(Ok),
            (None, Some(error)) => Some(Err((**error).clone())),
            (None, None) => None,
        }
    }

    /// Trouble that leaves the value standing.
    pub fn ambient(&self) -> Option<&ResourceError> {
        self.trouble.as_deref().filter(|_| self.has_value())
    }

    /// The last good resource.
    pub fn received(&self) -> Option<&Received> {
        self.resource.as_deref()
    }

    /// The last thing that went wrong with the resource itself; `None` once a good one came.
    pub fn failure(&self) -> Option<&LastFailure> {
        self.failure.as_deref()
    }

    /// Where it stands.
    pub fn state(&self) -> ResourceStatus {
        self.state
    }

    /// Whether there is a good value.
    pub fn has_value(&self) -> bool {
        self.resource.is_some()
    }

    /// Whether there is something to tell a watcher.
    pub fn is_known(&self) -> bool {
        self.resource.is_some() || self.trouble.is_some()
    }

    /// Whether the server has had its say: it sent the resource, or it is known not to exist. Only
    /// what is not settled is a reason to ask another server (gRFC A71).
    pub fn is_settled(&self) -> bool {
        self.has_value() || self.state == ResourceStatus::DoesNotExist
    }

    /// Fields of the last good resource that are set and have no effect yet.
    pub(crate) fn unsupported(&self, kind: Kind) -> Vec<Unsupported> {
        let value = self.received().map(|received| &received.value);
        value.map_or_else(Vec::new, |value| kind.unsupported(value))
    }

    /// A valid resource came. An equal one keeps the object already held.
    pub(crate) fn accept(&mut self, kind: Kind, mut received: Received) -> Changed {
        self.state = ResourceStatus::Acked;
        self.failure = None;
        self.deletion_ignored = false;
        let had_trouble = self.trouble.take().is_some();
        let held = self.resource.take();
        let equal = held.filter(|held| kind.equal(&held.value, &received.value));
        let changed = match (&equal, had_trouble) {
            (None, _) => Changed::Data,
            (Some(_), true) => Changed::Ambient,
            (Some(_), false) => Changed::Nothing,
        };
        if let Some(held) = equal {
            received.value = Arc::clone(&held.value);
        }
        self.resource = Some(Arc::new(received));
        changed
    }

    /// Something went wrong with the resource itself. Unless `keep`, its last good value goes.
    pub(crate) fn fail(
        &mut self,
        state: ResourceStatus,
        failure: LastFailure,
        keep: bool,
    ) -> Changed {
        self.state = state;
        let error = failure.error.clone();
        self.failure = Some(Box::new(failure));
        let withdrawn = !keep && self.resource.take().is_some();
        let changed = self.tell(error);
        if withdrawn { Changed::Data } else { changed }
    }

    /// Passes over a deletion (gRFC A53). Whether this is the first since the resource last came.
    pub(crate) fn ignore_deletion(&mut self) -> bool {
        !std::mem::replace(&mut self.deletion_ignored, true)
    }

    /// The server is out of reach.
    pub(crate) fn disconnected(&mut self, error: ResourceError) -> Changed {
        self.tell(error)
    }

    /// The server has spoken again.
    pub(crate) fn reconnected(&mut self) -> Changed {
        let out_of_reach =
            |error: &ResourceError| matches!(error.reason, TroubleReason::Connectivity(_));
        if !self.has_value() || !self.trouble.as_deref().is_some_and(out_of_reach) {
            return Changed::Nothing;
        }
        self.trouble = self
            .failure()
            .map(|failure| Box::new(failure.error.clone()));
        Changed::Ambient
    }

    fn tell(&mut self, error: ResourceError) -> Changed {
        if self.trouble.as_deref() == Some(&error) {
            return Changed::Nothing;
        }
        self.trouble = Some(Box::new(error));
        if self.has_value() {
            Changed::Ambient
        } else {
            Changed::Data
        }
    }
}

impl Received {
    pub(crate) fn new(value: Erased, raw: Vec<u8>, version: &Arc<str>, at: Instant) -> Self {
        Self {
            value,
            raw: raw.into(),
            version: Arc::clone(version),
            at,
        }
    }
}

/// What an event did to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Only the ambient error: it came, changed or went.
    Ambient,
    /// The value, or the reason why there is none.
    Data,
    /// Nothing that a watcher can see.
    Nothing,
}
