//! The resources of one type that the client of a delta stream wants, and the versions that it has.
//!
//! Names wait in `pending` until the next response is made, and only then are looked up in the
//! snapshot. So the work is in proportion to what changed or was asked for. A name that changed
//! twice in the meantime is sent once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::Resource;

use super::{WILDCARD, same_spelling, wrapped};
use crate::snapshot::{NamedResources, TypeSnapshot};

/// The size at which a response is closed; the rest follows in the next one. It is well below the 4
/// MiB that gRPC clients take by default.
const RESPONSE_BYTES: usize = 1 << 20;

/// The largest number of responses that may wait for an answer. Beyond it the oldest is forgotten,
/// because a client that never answers must not fill our memory.
const MAX_IN_FLIGHT: usize = 256;

/// The resources of one type that a client wants, and the versions that it has.
#[derive(Debug, Default)]
pub(super) struct Interest {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// The version of each resource that the client was sent, or said it has. `None` means that the
    /// client was told that there is no such resource. Refused versions are included, so that they
    /// are not sent again.
    known: BTreeMap<Arc<str>, Option<Arc<str>>>,
    pending: BTreeMap<Arc<str>, Reason>,
    /// The names of resources that do not exist and that the client has not been told of yet.
    gone: BTreeSet<Arc<str>>,
    /// True if a wildcard was subscribed to and has not been answered yet.
    unanswered: bool,
    /// True if `known` holds names that are no longer wanted but may be in a response in flight. If
    /// the client asks for one again before that response arrives, it takes the response for the
    /// answer.
    lingering: bool,
    /// The nonce and version of each response that has not been answered, oldest first.
    in_flight: VecDeque<(String, String)>,
}

/// The reason why a name is checked; the strongest one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// The resource may have changed. It is sent if the client has another version.
    Changed,
    /// The resource belongs to a wildcard that was asked for. It is sent even if the client has it.
    Listed,
    /// The resource was asked for by name. It is sent even if the client has it, and reported if it
    /// does not exist.
    Asked,
}

/// The content of one response.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) resources: Vec<Resource>,
    pub(super) removed: Vec<String>,
}

impl Interest {
    /// Takes the versions that the client says it has. Only the first request for a type on a
    /// stream may say so (xDS protocol: Incremental xDS).
    pub(super) fn continue_from(&mut self, versions: impl IntoIterator<Item = (String, String)>) {
        for (name, version) in versions {
            let name = same_spelling(&name);
            if !self.wants(&name) {
                continue;
            }
            let name: Arc<str> = Arc::from(&*name);
            // The reason is not `Asked`, because that would send a version that the client already
            // has.
            self.pending.insert(Arc::clone(&name), Reason::Changed);
            self.known.insert(name, Some(version.into()));
        }
    }

    /// Subscribes to a name. A name that is already subscribed to is sent again, because the client
    /// may have forgotten it (xDS protocol: Subscribing to Resources).
    pub(super) fn subscribe(&mut self, name: &str, available: Option<&TypeSnapshot>) {
        let resources = available.map(TypeSnapshot::resources);
        if name == WILDCARD {
            self.wildcard = true;
            self.unanswered = true;
            let listed = resources.into_iter().flat_map(NamedResources::keys);
            // Names that the client was sent are listed too, so that it is told which of them no
            // longer exist.
            let listed: Vec<_> = listed.chain(self.known.keys()).cloned().collect();
            for name in &listed {
                self.look_at(name, Reason::Listed);
            }
            return;
        }
        let name = same_spelling(name);
        let shared = resources.and_then(|resources| resources.get_key_value(&name));
        let name = shared.map_or_else(|| Arc::from(&*name), |(name, _)| Arc::clone(name));
        self.look_at(&name, Reason::Asked);
        self.names.insert(name);
    }

    /// Ends a subscription; a name that is not subscribed to is ignored. If a wildcard is still
    /// subscribed to, the client is sent the resource, or told that it does not exist. Otherwise it
    /// could not know whether to keep it (xDS protocol: Unsubscribing from Resources).
    pub(super) fn unsubscribe(&mut self, name: &str) {
        if name == WILDCARD {
            self.wildcard = false;
            self.unanswered = false;
            let names = &self.names;
            self.pending.retain(|name, _| names.contains(name));
            self.gone.retain(|name| names.contains(name));
            self.forget_unwanted();
            return;
        }
        let Some(name) = self.names.take(&*same_spelling(name)) else {
            return;
        };
        if self.wildcard {
            self.look_at(&name, Reason::Asked);
            return;
        }
        self.pending.remove(&name);
        self.gone.remove(&name);
        if self.in_flight.is_empty() {
            self.known.remove(&name);
        } else {
            self.lingering = true;
        }
    }

    /// Notes that these resources changed in the snapshot.
    pub(super) fn changed(&mut self, names: &[Arc<str>]) {
        for name in names {
            if self.wants(name) {
                self.look_at(name, Reason::Changed);
            }
        }
    }

    /// Sends `name` again although it has not changed, if it is wanted. If it is subscribed to by
    /// name and does not exist, that is told again. Envoy waits for either.
    pub(super) fn resend(&mut self, name: &str) {
        if let Some(name) = self.names.get(name).cloned() {
            self.look_at(&name, Reason::Asked);
        } else if self.wildcard {
            self.look_at(&name.into(), Reason::Listed);
        }
    }

    /// True if [`take`](Self::take) may return a response.
    pub(super) fn may_be_due(&self) -> bool {
        !self.pending.is_empty() || self.unanswered
    }

    /// The next response. It lists removed resources too, unless `removals_wait` leaves them to
    /// [`take_removals`](Self::take_removals).
    pub(super) fn take(
        &mut self,
        available: Option<&TypeSnapshot>,
        removals_wait: bool,
    ) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while bytes < RESPONSE_BYTES
            && let Some((name, reason)) = self.pending.pop_first()
        {
            let found = available.and_then(|of| of.resources().get_key_value(&name));
            let Some((name, resource)) = found else {
                self.note_absence(name, reason);
                continue;
            };
            // The client may have asked for the resource while it did not exist.
            let is_back = self.gone.remove(name);
            let current = Some(Arc::clone(&resource.version));
            let is_known = self.known.get(name) == Some(&current);
            if is_known && reason == Reason::Changed && !is_back {
                continue;
            }
            self.known.insert(Arc::clone(name), current);
            bytes += name.len() + resource.any.value.len();
            batch.resources.push(wrapped(name, resource));
        }
        if !removals_wait {
            batch.removed = self.drain_gone();
        }
        // Envoy's start waits for the first answer to a wildcard, even if that is "nothing".
        let first_answer = self.unanswered && self.gone.is_empty();
        if batch.is_empty() && !first_answer {
            // The removals are sent later in a response of their own, which answers the wildcard.
            self.unanswered = false;
            return None;
        }
        self.unanswered = false;
        Some(batch)
    }

    /// True if [`take_removals`](Self::take_removals) has names to report.
    pub(super) fn has_removals(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The response that reports removed resources.
    pub(super) fn take_removals(&mut self) -> Batch {
        Batch {
            removed: self.drain_gone(),
            ..Batch::default()
        }
    }

    /// Notes that a response was sent.
    pub(super) fn sent(&mut self, nonce: String, version: String) {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back((nonce, version));
    }

    /// Takes the answer to a response. Returns the version of that response; `None` if no answer to
    /// it is expected.
    pub(super) fn answered(&mut self, nonce: &str) -> Option<String> {
        let position = self.in_flight.iter().position(|(sent, _)| sent == nonce)?;
        let (_, version) = self.in_flight.remove(position)?;
        if self.lingering {
            self.forget_unwanted();
        }
        Some(version)
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    fn forget_unwanted(&mut self) {
        self.lingering = !self.in_flight.is_empty();
        if !self.lingering && !self.wildcard {
            let names = &self.names;
            self.known.retain(|name, _| names.contains(name));
        }
    }

    fn look_at(&mut self, name: &Arc<str>, reason: Reason) {
        let pending = self.pending.entry(Arc::clone(name)).or_insert(reason);
        *pending = reason.max(*pending);
    }

    fn note_absence(&mut self, name: Arc<str>, reason: Reason) {
        let has_it = matches!(self.known.get(&name), Some(Some(_)));
        if has_it || reason == Reason::Asked {
            self.gone.insert(name);
        }
    }

    fn drain_gone(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        let mut bytes = 0;
        while bytes < RESPONSE_BYTES
            && let Some(name) = self.gone.pop_first()
        {
            bytes += name.len();
            names.push(name.to_string());
            if self.names.contains(&name) {
                self.known.insert(name, None);
            } else {
                self.known.remove(&name);
            }
        }
        names
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }
}
