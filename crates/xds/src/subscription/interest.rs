//! What the client of an incremental stream wants of one type, and what it knows of it.
//!
//! Names wait in `pending` until the next response is made, and only then is the snapshot asked what
//! has become of them. So the work is in proportion to what changed or was asked for, not to what
//! there is, and whatever happened twice in the meantime is sent once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::Resource;

use super::{WILDCARD, wrapped};
use crate::snapshot::{NamedResources, TypeSnapshot};

/// A response is closed once it holds this much, well below the 4 MiB that gRPC clients take by
/// default; the rest follows in the next.
const RESPONSE_BYTES: usize = 1 << 20;

/// How many responses may wait for an answer before the oldest is no longer waited for: a client
/// that never answers must not fill our memory.
const MAX_IN_FLIGHT: usize = 256;

/// What a client wants of one type, and what it was sent of it.
#[derive(Debug, Default)]
pub(super) struct Interest {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// What the client was sent, or said it has, as name and version; `None` if it was told that
    /// there is no such resource. It holds what the client refused as well, so that a refused version
    /// is not sent again.
    known: BTreeMap<Arc<str>, Option<Arc<str>>>,
    pending: BTreeMap<Arc<str>, Reason>,
    /// What the client is yet to be told does not exist.
    gone: BTreeSet<Arc<str>>,
    /// A wildcard has not been answered yet.
    unanswered: bool,
    /// `known` holds what is no longer wanted but may still be on its way to the client, which will
    /// take it for the answer if it asks again before it comes.
    lingering: bool,
    /// Nonce and version of the responses that have not been answered, the oldest first.
    in_flight: VecDeque<(String, String)>,
}

/// Why a name is looked at; the strongest reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// It may have changed: it is sent if the client's version is another one.
    Changed,
    /// It belongs to a wildcard that was asked for: it is sent even if it is known.
    Listed,
    /// It was asked for: it is sent even if it is known, and reported if there is no such resource.
    Asked,
}

/// The content of one response.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) resources: Vec<Resource>,
    pub(super) removed: Vec<String>,
}

impl Interest {
    /// Takes what the client says it has; only the first request of a stream may
    /// (xDS protocol: Incremental xDS).
    pub(super) fn continue_from(&mut self, versions: impl IntoIterator<Item = (String, String)>) {
        for (name, version) in versions {
            if !self.wants(&name) {
                continue;
            }
            let name: Arc<str> = name.into();
            // Not asked for again, whatever its subscription says: it would be sent in any case.
            self.pending.insert(Arc::clone(&name), Reason::Changed);
            self.known.insert(name, Some(version.into()));
        }
    }

    /// A name that is subscribed to once more is sent once more: the client may have forgotten it
    /// (xDS protocol: Subscribing to Resources).
    pub(super) fn subscribe(&mut self, name: &str, available: Option<&TypeSnapshot>) {
        let resources = available.map(TypeSnapshot::resources);
        if name == WILDCARD {
            self.wildcard = true;
            self.unanswered = true;
            let listed = resources.into_iter().flat_map(NamedResources::keys);
            // What the client was sent and is gone by now, it is told is gone.
            let listed: Vec<_> = listed.chain(self.known.keys()).cloned().collect();
            for name in &listed {
                self.look_at(name, Reason::Listed);
            }
            return;
        }
        let shared = resources.and_then(|resources| resources.get_key_value(name));
        let name = shared.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.look_at(&name, Reason::Asked);
        self.names.insert(name);
    }

    /// What is not subscribed to is passed over. A name that a wildcard may still cover is answered,
    /// for the client cannot know whether to keep it (xDS protocol: Unsubscribing from Resources).
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
        let Some(name) = self.names.take(name) else {
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

    /// These are not as they were.
    pub(super) fn changed(&mut self, names: &[Arc<str>]) {
        for name in names {
            if self.wants(name) {
                self.look_at(name, Reason::Changed);
            }
        }
    }

    /// Sends `name` again although it has not changed, if it is wanted. Where it is named, its
    /// absence is told again as well: that ends Envoy's wait just as its presence does.
    pub(super) fn resend(&mut self, name: &str) {
        if let Some(name) = self.names.get(name).cloned() {
            self.look_at(&name, Reason::Asked);
        } else if self.wildcard {
            self.look_at(&name.into(), Reason::Listed);
        }
    }

    /// Whether [`take`](Self::take) may have something.
    pub(super) fn may_be_due(&self) -> bool {
        !self.pending.is_empty() || self.unanswered
    }

    /// The next response. Unless `removals_wait`, it says what is gone too; otherwise that is left
    /// to [`take_removals`](Self::take_removals).
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
            // It may have been asked for while it was away.
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
            // The removals, for which there is a turn of their own, are the answer.
            self.unanswered = false;
            return None;
        }
        self.unanswered = false;
        Some(batch)
    }

    /// Whether there is something for [`take_removals`](Self::take_removals).
    pub(super) fn has_removals(&self) -> bool {
        !self.gone.is_empty()
    }

    /// What the client is yet to be told is gone.
    pub(super) fn take_removals(&mut self) -> Batch {
        Batch {
            removed: self.drain_gone(),
            ..Batch::default()
        }
    }

    /// A response was sent.
    pub(super) fn sent(&mut self, nonce: String, version: String) {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back((nonce, version));
    }

    /// The client answered a response; its version, unless no answer to it is expected.
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
