//! The state of each watched resource: its last good value and its last error.
//!
//! An entry holds both side by side, because an error need not end the use of a good resource. An
//! error that leaves the resource in use is *ambient* (gRFC A88): watchers are told and go on.
//! [`DataErrors`](crate::DataErrors) decides which errors take the resource out of use.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crowfly_model::{ResourceType, Unsupported};
use crowfly_names::FewOrMany;

use crate::error::{ResourceError, TroubleReason};
use crate::kind::{Erased, Key, Kind};

/// The resources that one reader watches, each with its state.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    entries: FewOrMany<Key, CacheEntry>,
}

impl Cache {
    /// The state of a resource; `None` if it is not watched.
    pub fn entry(&self, key: &Key) -> Option<&CacheEntry> {
        self.entries.get(key)
    }

    /// The value of the resource of type `R` named `name`, or the error that there is instead.
    /// `None` while neither has arrived.
    pub fn read<R: ResourceType>(
        &self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.entry(&Key::of::<R>(name))?.read::<R>()
    }

    /// Replaces the state of a resource.
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
        self.entries
            .get_or_insert_with(key.clone(), CacheEntry::default)
    }

    pub(crate) fn has_value(&self, key: &Key) -> bool {
        self.entry(key).is_some_and(CacheEntry::has_value)
    }
}

/// The state of one resource.
#[derive(Clone, Debug, Default)]
pub struct CacheEntry {
    /// The last good resource, shared with every watcher that was given it.
    resource: Option<Arc<Received>>,
    state: ResourceStatus,
    deletion_ignored: bool,
    /// Boxed to keep entries small, because failures are rare.
    failure: Option<Box<LastFailure>>,
    /// The error that watchers were last told: the failure, or that the server cannot be reached.
    trouble: Option<Box<ResourceError>>,
}

/// A valid resource, as the server sent it.
#[derive(Clone, Debug)]
pub struct Received {
    value: Erased,
    /// The message inside the `Any`. It is empty if the type does not keep it
    /// ([`ResourceType::KEEPS_BYTES`]).
    pub raw: Bytes,
    /// The version that the server gave the resource.
    pub version: Arc<str>,
    /// The time at which the resource arrived.
    pub at: Instant,
}

/// An error of the resource itself, as opposed to an unreachable server.
#[derive(Clone, Debug)]
pub struct LastFailure {
    /// The error that watchers are told.
    pub error: ResourceError,
    /// The version of the invalid resource; empty if the failure was not caused by a resource.
    pub version: Arc<str>,
    /// The time of the failure.
    pub at: Instant,
}

/// The states of gRFC A88, as CSDS and metrics show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceStatus {
    /// The newest resource that arrived is valid.
    Acked,
    /// The resource was deleted, or did not arrive in time.
    DoesNotExist,
    /// The newest resource that arrived is not valid.
    Nacked,
    /// The server reported an error in place of the resource.
    ReceivedError,
    /// The resource is asked for, and the server has not answered.
    #[default]
    Requested,
    /// The resource did not arrive in time. The server would have said so if it did not exist.
    TimedOut,
}

impl CacheEntry {
    /// The value as type `R`, or the error that there is instead; `None` while neither has arrived.
    pub fn read<R: ResourceType>(&self) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        match (&self.resource, &self.trouble) {
            (Some(received), _) => Arc::clone(&received.value).downcast().ok().map(Ok),
            (None, Some(error)) => Some(Err((**error).clone())),
            (None, None) => None,
        }
    }

    /// The error that watchers were told while the value stays in use.
    pub fn ambient(&self) -> Option<&ResourceError> {
        self.trouble.as_deref().filter(|_| self.has_value())
    }

    /// The last good resource.
    pub fn received(&self) -> Option<&Received> {
        self.resource.as_deref()
    }

    /// The last error of the resource itself; `None` once a good resource arrived.
    pub fn failure(&self) -> Option<&LastFailure> {
        self.failure.as_deref()
    }

    /// The state of the resource, as CSDS shows it.
    pub fn state(&self) -> ResourceStatus {
        self.state
    }

    /// True if there is a good value.
    pub fn has_value(&self) -> bool {
        self.resource.is_some()
    }

    /// True if there is a value or an error to tell a watcher.
    pub fn is_known(&self) -> bool {
        self.resource.is_some() || self.trouble.is_some()
    }

    /// True if the server sent the resource, or if the resource is known not to exist. A resource
    /// that is not settled is the only reason to ask another server (gRFC A71).
    pub fn is_settled(&self) -> bool {
        self.has_value() || self.state == ResourceStatus::DoesNotExist
    }

    /// Fields of the last good resource that are set and have no effect yet.
    pub(crate) fn unsupported(&self, kind: Kind) -> Vec<Unsupported> {
        let value = self.received().map(|received| &received.value);
        value.map_or_else(Vec::new, |value| kind.unsupported(value))
    }

    /// Takes a valid resource. If it equals the one that is held, the parsed object that is held
    /// stays, so that a watcher that compares addresses sees no change.
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

    /// Takes an error of the resource itself. The last good value is dropped unless `keep` is set.
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

    /// Notes an ignored deletion (gRFC A53). Returns true if it is the first since the resource
    /// last arrived.
    pub(crate) fn ignore_deletion(&mut self) -> bool {
        !std::mem::replace(&mut self.deletion_ignored, true)
    }

    /// Notes that the server cannot be reached.
    pub(crate) fn disconnected(&mut self, error: ResourceError) -> Changed {
        self.tell(error)
    }

    /// Notes that the server can be reached again. If there is a good value, the error that the
    /// server could not be reached ends.
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

/// The part of an entry that an event changed, as a watcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Only the ambient error changed: it appeared, became another one or ended.
    Ambient,
    /// The value changed, or the error that there is instead.
    Data,
    /// Nothing changed that a watcher can see.
    Nothing,
}
