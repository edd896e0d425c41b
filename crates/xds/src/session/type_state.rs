//! What a session wants of one type, and where that type's conversation stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::rpc::Status;

use super::Want;
use crate::cache::Cache;
use crate::kind::{Key, Kind};

const WILDCARD: &str = "*";
const INVALID_ARGUMENT: i32 = 3;

#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) kind: Kind,
    all: bool,
    /// The server has not heard yet that not everything is wanted any more.
    all_leaving: bool,
    names: BTreeMap<Arc<str>, Name>,
    /// The last version that was accepted whole. It outlives the stream.
    version: String,
    stream: OnStream,
}

/// What ends with the stream.
#[derive(Debug, Default)]
struct OnStream {
    /// Kept even when the last name goes: a request without it would be read as the stream's first.
    nonce: String,
    /// Whether a request went out. Before that, an empty list of names would mean "all".
    asked: bool,
    due: bool,
    /// What to say in the next request's `error_detail`.
    rejection: Option<String>,
    /// The names that requests since the last response left out. If that response was on its way
    /// before such a request arrived, the request was void, and the server still believes that we
    /// hold what we have forgotten.
    doubtful: BTreeSet<Arc<str>>,
    /// The names that the next request must leave out, so that the server sends them again when
    /// the request after it asks for them.
    withheld: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Name {
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

impl TypeState {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            all: false,
            all_leaving: false,
            names: BTreeMap::new(),
            version: String::new(),
            stream: OnStream::default(),
        }
    }

    pub(super) fn add(&mut self, want: Want) {
        let known = match want {
            Want::All => std::mem::replace(&mut self.all, true),
            Want::Named(name) => {
                let name = self.names.entry(name).or_insert(Name {
                    progress: Progress::Unsent,
                    wanted: false,
                });
                std::mem::replace(&mut name.wanted, true)
            }
        };
        self.stream.due |= !known;
    }

    pub(super) fn remove(&mut self, want: &Want) {
        let known = match want {
            Want::All => {
                self.all_leaving |= self.all;
                std::mem::take(&mut self.all)
            }
            Want::Named(name) => self
                .names
                .get_mut(name)
                .is_some_and(|name| std::mem::take(&mut name.wanted)),
        };
        self.stream.due |= known;
    }

    /// Drops what is no longer wanted; returns the resources that go, and the deadlines that fall.
    pub(super) fn forget_unwanted(&mut self, cache: &Cache) -> (Vec<Key>, Vec<(Instant, Key)>) {
        let (mut gone, mut fallen) = (Vec::new(), Vec::new());
        let leaving: Vec<Arc<str>> = self
            .names
            .iter()
            .filter(|(_, name)| !name.wanted)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in leaving {
            let key = self.key(&name);
            let forgotten = self.names.remove(&name);
            let deadline = forgotten.and_then(|name| name.progress.deadline());
            fallen.extend(deadline.map(|deadline| (deadline, key.clone())));
            if !self.all || !cache.has_value(&key) {
                gone.push(key);
            }
            self.stream.doubtful.insert(name);
        }
        if std::mem::take(&mut self.all_leaving) && !self.all {
            let unnamed = self.cached(cache).into_iter();
            gone.extend(unnamed.filter(|key| !self.names.contains_key(&key.name)));
        }
        (gone, fallen)
    }

    /// Whether the server believes that `name` is wanted, or soon will.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.all || self.all_leaving || self.names.contains_key(name)
    }

    /// Every resource that is wanted: the named ones, and with a wildcard all that came.
    pub(super) fn keys(&self, cache: &Cache) -> Vec<Key> {
        if self.all || self.all_leaving {
            return self.cached(cache);
        }
        self.names.keys().map(|name| self.key(name)).collect()
    }

    pub(super) fn start_stream(&mut self) {
        self.stream = OnStream {
            due: true,
            ..OnStream::default()
        };
    }

    pub(super) fn end_stream(&mut self) {
        for name in self.names.values_mut() {
            name.progress = Progress::Unsent;
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.stream.due
    }

    /// The request that says everything there is to say about this type now; `None` if nothing was
    /// ever asked for on this stream and nothing is wanted. Comes after
    /// [`forget_unwanted`](Self::forget_unwanted).
    pub(super) fn request(&mut self) -> Option<DiscoveryRequest> {
        let withheld = std::mem::take(&mut self.stream.withheld);
        self.stream.due = withheld.iter().any(|name| self.names.contains_key(name));
        if !self.stream.asked && !self.all && self.names.is_empty() {
            return None;
        }
        self.stream.asked = true;
        let mut resource_names = Vec::with_capacity(self.names.len() + 1);
        resource_names.extend(self.all.then(|| WILDCARD.to_owned()));
        for (name, Name { progress, .. }) in &mut self.names {
            if withheld.contains(name) {
                continue;
            }
            if *progress == Progress::Unsent {
                *progress = Progress::Sending;
            }
            resource_names.push(name.to_string());
        }
        Some(DiscoveryRequest {
            version_info: self.version.clone(),
            resource_names,
            type_url: self.kind.type_url.to_owned(),
            response_nonce: self.stream.nonce.clone(),
            error_detail: self.stream.rejection.take().map(|message| Status {
                code: INVALID_ARGUMENT,
                message,
                ..Status::default()
            }),
            ..DiscoveryRequest::default()
        })
    }

    /// The request is on its way: from now on the server may be blamed for what it does not send.
    /// Returns the resources whose deadline begins.
    pub(super) fn sent(&mut self, cache: &Cache, deadline: Instant) -> Vec<Key> {
        let type_url = self.kind.type_url;
        let mut awaited = Vec::new();
        for (name, Name { progress, .. }) in &mut self.names {
            if *progress != Progress::Sending {
                continue;
            }
            let key = Key {
                type_url,
                name: Arc::clone(name),
            };
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
        let Name { progress, .. } = self.names.get_mut(name)?;
        let deadline = progress.deadline();
        *progress = Progress::Settled;
        deadline
    }

    /// Makes the next request an ACK, or a NACK that lists every error.
    ///
    /// A response with any error leaves the version where it was, although its valid resources are
    /// in use (gRFC A46): the version says what was accepted whole.
    pub(super) fn answer(
        &mut self,
        nonce: String,
        version: String,
        errors: &[String],
        cache: &Cache,
    ) {
        self.stream.nonce = nonce;
        self.stream.due = true;
        let mut doubtful = std::mem::take(&mut self.stream.doubtful);
        doubtful.retain(|name| !cache.has_value(&self.key(name)));
        self.stream.withheld.append(&mut doubtful);
        if errors.is_empty() {
            self.version = version;
            self.stream.rejection = None;
        } else {
            self.stream.rejection = Some(errors.join("\n"));
        }
    }

    pub(super) fn key(&self, name: &Arc<str>) -> Key {
        Key {
            type_url: self.kind.type_url,
            name: Arc::clone(name),
        }
    }

    fn cached(&self, cache: &Cache) -> Vec<Key> {
        let mut keys: Vec<Key> = cache
            .iter()
            .map(|(key, _)| key)
            .filter(|key| key.type_url == self.kind.type_url)
            .cloned()
            .collect();
        keys.sort();
        keys
    }
}

impl Progress {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Awaited { deadline } => Some(deadline),
            _ => None,
        }
    }
}
