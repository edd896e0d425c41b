//! What a session wants of one type, and where that type's conversation stands.

use std::collections::BTreeMap;
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
    names: BTreeMap<Arc<str>, Progress>,
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
            names: BTreeMap::new(),
            version: String::new(),
            stream: OnStream::default(),
        }
    }

    pub(super) fn add(&mut self, want: Want) {
        match want {
            Want::All => self.all = true,
            Want::Named(name) => {
                self.names.entry(name).or_insert(Progress::Unsent);
            }
        }
        self.stream.due = true;
    }

    /// Drops a want; returns the resources nobody wants any more, with their deadlines.
    pub(super) fn remove(&mut self, want: &Want, cache: &Cache) -> Vec<(Option<Instant>, Key)> {
        self.stream.due = true;
        match want {
            Want::All => {
                self.all = false;
                let mut unwanted = self.cached(cache);
                unwanted.retain(|key| !self.names.contains_key(&key.name));
                unwanted.into_iter().map(|key| (None, key)).collect()
            }
            Want::Named(name) => {
                let progress = self.names.remove(name);
                if self.all {
                    return Vec::new();
                }
                let deadline = progress.and_then(Progress::deadline);
                vec![(deadline, self.key(name))]
            }
        }
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        self.all || self.names.contains_key(name)
    }

    /// Every resource that is wanted: the named ones, and with a wildcard all that came.
    pub(super) fn keys(&self, cache: &Cache) -> Vec<Key> {
        if self.all {
            return self.cached(cache);
        }
        self.names.keys().map(|name| self.key(name)).collect()
    }

    pub(super) fn start_stream(&mut self) {
        self.stream = OnStream {
            due: self.all || !self.names.is_empty(),
            ..OnStream::default()
        };
    }

    pub(super) fn end_stream(&mut self) {
        for progress in self.names.values_mut() {
            *progress = Progress::Unsent;
        }
    }

    pub(super) fn is_due(&self) -> bool {
        let nothing_to_say = !self.stream.asked && !self.all && self.names.is_empty();
        self.stream.due && !nothing_to_say
    }

    /// The request that says everything there is to say about this type now.
    pub(super) fn request(&mut self) -> DiscoveryRequest {
        self.stream.due = false;
        self.stream.asked = true;
        for progress in self.names.values_mut() {
            if *progress == Progress::Unsent {
                *progress = Progress::Sending;
            }
        }
        let wildcard = self.all.then(|| WILDCARD.to_owned());
        let names = self.names.keys().map(|name| name.to_string());
        DiscoveryRequest {
            version_info: self.version.clone(),
            resource_names: wildcard.into_iter().chain(names).collect(),
            type_url: self.kind.type_url.to_owned(),
            response_nonce: self.stream.nonce.clone(),
            error_detail: self.stream.rejection.take().map(|message| Status {
                code: INVALID_ARGUMENT,
                message,
                ..Status::default()
            }),
            ..DiscoveryRequest::default()
        }
    }

    /// The request is on its way: from now on the server may be blamed for what it does not send.
    /// Returns the resources whose deadline begins.
    pub(super) fn sent(&mut self, cache: &Cache, deadline: Instant) -> Vec<Key> {
        let type_url = self.kind.type_url;
        let mut awaited = Vec::new();
        for (name, progress) in &mut self.names {
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
        let progress = self.names.get_mut(name)?;
        let deadline = progress.deadline();
        *progress = Progress::Settled;
        deadline
    }

    /// Makes the next request an ACK, or a NACK that lists every error.
    ///
    /// A response with any error leaves the version where it was, although its valid resources are
    /// in use (gRFC A46): the version says what was accepted whole.
    pub(super) fn answer(&mut self, nonce: String, version: String, errors: &[String]) {
        self.stream.nonce = nonce;
        self.stream.due = true;
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
