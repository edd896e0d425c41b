//! The resources of one type that the client of a delta stream wants, and where it differs from the
//! snapshot.
//!
//! Nearly always a client has what the snapshot has. So only the names are kept of which it has
//! something else, or nothing. The state of a stream is in proportion to them and to the names that
//! it subscribed to, not to the size of the snapshot.
//!
//! Names wait in `pending` until the next response is made, and only then are looked up in the
//! snapshot. So the work is in proportion to what changed or was asked for. A name that changed
//! twice in the meantime is sent once.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::lifetime::Pulse;
use super::response::{Form, Sent};
use super::types::Interested;
use super::wish::{self, Wanted, Wish};
use super::{WILDCARD, same_spelling};
use crate::snapshot::{NamedResources, TypeSnapshot};
use crate::sorted::{Sorted, SortedSet};

/// The size at which a response is closed; the rest follows in the next one. It is well below the 4
/// MiB that gRPC clients take by default.
const RESPONSE_BYTES: usize = 1 << 20;

/// The largest number of responses that may wait for an answer. Beyond it the oldest is forgotten,
/// because a client that never answers must not fill our memory.
const MAX_IN_FLIGHT: usize = 256;

/// The resources of one type that a client wants, and where it differs from the snapshot.
#[derive(Debug, Default)]
pub(super) struct Interest {
    wildcard: bool,
    names: SortedSet<Arc<str>>,
    /// The bytes of `names`.
    name_bytes: usize,
    /// The resources that the client says it has from a stream before, and their bytes. They count
    /// until it was told what became of them, because the names may be inventions.
    claims: usize,
    claimed_bytes: usize,
    /// The names that no resource had when the client unsubscribed from them, and their bytes. They count until it was
    /// told that there is none, which a wildcard makes necessary, because it may invent one after the other.
    left: SortedSet<Arc<str>>,
    left_bytes: usize,
    /// The version that the client was sent or said it has, of each wanted name of which that is
    /// not the version in the snapshot. `None` means that the client has no such resource. Refused
    /// versions count as sent, so that they are not sent again.
    differs: Sorted<Arc<str>, Option<Arc<str>>>,
    pending: Sorted<Arc<str>, Reason>,
    /// The names of resources that do not exist and that the client has not been told of yet.
    gone: SortedSet<Arc<str>>,
    /// True if a wildcard was subscribed to and has not been answered yet.
    unanswered: bool,
    /// Names that are no longer wanted but may be in a response in flight. If the client asks for
    /// everything again before that response arrives, it takes the response for the answer.
    lingering: SortedSet<Arc<str>>,
    /// The responses that have not been answered, oldest first.
    in_flight: VecDeque<InFlight>,
    /// The names of resources with a time to live whose newest version the client refused.
    refused: SortedSet<Arc<str>>,
    /// The time of the next heartbeat.
    pub(super) pulse: Pulse,
}

/// A response that has not been answered.
#[derive(Debug)]
struct InFlight {
    nonce: String,
    version: String,
    /// The names of its resources with a time to live. They are few.
    mortal: Box<[Arc<str>]>,
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
    pub(super) resources: Vec<Sent>,
    pub(super) removed: Vec<Arc<str>>,
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
            self.claims += 1;
            self.claimed_bytes += name.len() + version.len();
            let name: Arc<str> = Arc::from(&*name);
            // The reason is not `Asked`, because that would send a version that the client already
            // has.
            self.pending.insert(Arc::clone(&name), Reason::Changed);
            self.differs.insert(name, Some(version.into()));
            self.pulse.beat_at_once();
        }
    }

    /// Subscribes to the names of a request, and returns the number of resources that a wildcard among them stands for.
    /// They are listed once, because a request of a few kilobytes may repeat the wildcard thousands of times.
    pub(super) fn subscribe(
        &mut self,
        names: &[String],
        available: Option<&TypeSnapshot>,
    ) -> usize {
        let mut listed = 0;
        if names.iter().any(|name| name == WILDCARD) {
            listed = self.subscribe_to_all(available);
        }
        for name in names.iter().filter(|name| *name != WILDCARD) {
            self.subscribe_to(name, available);
        }
        listed
    }

    /// Subscribes to a name. A name that is already subscribed to is sent again, because the client
    /// may have forgotten it (xDS protocol: Subscribing to Resources).
    fn subscribe_to(&mut self, name: &str, available: Option<&TypeSnapshot>) {
        let resources = available.map(TypeSnapshot::resources);
        let name = same_spelling(name);
        let shared = resources.and_then(|resources| resources.get_key_value(&name));
        let name = shared.map_or_else(|| Arc::from(&*name), |(name, _)| Arc::clone(name));
        self.look_at(&name, Reason::Asked);
        if !self.wants(&name) {
            self.differs.insert(Arc::clone(&name), None);
        }
        let bytes = name.len();
        if self.left.remove(&name).is_some() {
            self.left_bytes -= bytes;
        }
        if self.names.add(name) {
            self.name_bytes += bytes;
        }
    }

    /// Subscribes to all resources, and returns their number.
    pub(super) fn subscribe_to_all(&mut self, available: Option<&TypeSnapshot>) -> usize {
        let resources = available.map(TypeSnapshot::resources);
        self.unanswered = true;
        let lingering = mem::take(&mut self.lingering);
        for name in resources.into_iter().flat_map(NamedResources::keys) {
            if !self.wants(name) {
                // A response in flight may give it to the client. It is then told if the resource goes.
                let has = lingering.contains_key(name).then(Arc::default);
                self.differs.insert(Arc::clone(name), has);
            }
            self.look_at(name, Reason::Listed);
        }
        // Of the names that the client was sent and that no longer exist it is told.
        for (name, ()) in lingering {
            if resources.is_none_or(|resources| !resources.contains_key(&name)) {
                self.look_at(&name, Reason::Listed);
                self.differs.insert(name, Some(Arc::default()));
            }
        }
        self.wildcard = true;
        resources.map_or(0, NamedResources::len)
    }

    /// Ends the subscriptions to the names of a request, and returns the number of resources that a wildcard among them
    /// stood for.
    pub(super) fn unsubscribe(
        &mut self,
        names: &[String],
        available: Option<&TypeSnapshot>,
    ) -> usize {
        let mut listed = 0;
        for name in names {
            if name == WILDCARD {
                listed += self.unsubscribe_from_all(available);
            } else {
                self.unsubscribe_from(name, available);
            }
        }
        listed
    }

    /// Ends a subscription; a name that is not subscribed to is ignored. If a wildcard is still
    /// subscribed to, the client is sent the resource, or told that it does not exist. Otherwise it
    /// could not know whether to keep it (xDS protocol: Unsubscribing from Resources).
    fn unsubscribe_from(&mut self, name: &str, available: Option<&TypeSnapshot>) {
        let Some((name, ())) = self.names.remove_entry(&*same_spelling(name)) else {
            return;
        };
        self.name_bytes -= name.len();
        let is_there = || available.is_some_and(|of| of.resources().contains_key(&name));
        if self.wildcard {
            self.look_at(&name, Reason::Asked);
            if !is_there() {
                self.left_bytes += name.len();
                self.left.add(name);
            }
            return;
        }
        self.pending.remove(&name);
        self.gone.remove(&name);
        let was_sent = self
            .differs
            .remove(&name)
            .map_or_else(is_there, |has| has.is_some());
        // Names that never were resources are not kept, because the client could invent any number.
        if was_sent && !self.in_flight.is_empty() {
            self.lingering.add(name);
        }
    }

    fn unsubscribe_from_all(&mut self, available: Option<&TypeSnapshot>) -> usize {
        if !self.wildcard {
            return 0;
        }
        let resources = available.map(TypeSnapshot::resources);
        if !self.in_flight.is_empty() {
            let existing = resources.into_iter().flat_map(NamedResources::keys);
            // Names of which the client has nothing are not kept, because it could invent any number.
            let sent = self.differs.iter().filter(|(_, has)| has.is_some());
            let all = existing.chain(sent.map(|(name, _)| name));
            let unwanted = all.filter(|name| !self.names.contains_key(*name));
            self.lingering
                .extend(unwanted.map(|name| (Arc::clone(name), ())));
        }
        self.wildcard = false;
        self.unanswered = false;
        let names = &self.names;
        self.pending.retain(|name, _| names.contains_key(name));
        self.gone.retain(|name, ()| names.contains_key(name));
        self.differs.retain(|name, _| names.contains_key(name));
        // Without a wildcard there is nothing to tell of them.
        self.forget_left();
        self.settle();
        resources.map_or(0, NamedResources::len)
    }

    /// Notes that these resources are no longer those of `old`.
    pub(super) fn changed(&mut self, names: &[Arc<str>], old: Option<&TypeSnapshot>) {
        for name in names {
            if !self.wants(name) {
                continue;
            }
            if !self.differs.contains_key(name) {
                let before = old.and_then(|of| of.resources().get(name));
                let before = before.map(|before| Arc::clone(&before.version));
                self.differs.insert(Arc::clone(name), before);
            }
            self.look_at(name, Reason::Changed);
        }
    }

    /// Sends `name` again although it has not changed, if it is wanted. If it is subscribed to by
    /// name and does not exist, that is told again. Envoy waits for either.
    pub(super) fn resend(&mut self, name: &str) {
        if let Some(name) = self.names.key(name).cloned() {
            self.look_at(&name, Reason::Asked);
        } else if self.wildcard {
            self.look_at(&name.into(), Reason::Listed);
        }
    }

    /// Sends again whatever the client says it has from a stream before.
    pub(super) fn resend_all(&mut self) {
        for (_, reason) in self.pending.iter_mut() {
            *reason = (*reason).max(Reason::Listed);
        }
    }

    /// True if [`take`](Self::take) may return a response.
    pub(super) fn may_be_due(&self) -> bool {
        !self.pending.is_empty() || self.unanswered
    }

    /// The next response. It lists removed resources too, unless `removals_wait` leaves them to
    /// [`take_removals`](Self::take_removals). Resources have their time to live if the client
    /// understands it.
    pub(super) fn take(
        &mut self,
        available: Option<&TypeSnapshot>,
        removals_wait: bool,
        with_ttl: bool,
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
            let is_back = self.gone.remove(name).is_some();
            let has = self.differs.remove(name);
            let before = has.unwrap_or_else(|| Some(Arc::clone(&resource.version)));
            let is_known = before.as_ref() == Some(&resource.version);
            if is_known && reason == Reason::Changed && !is_back {
                continue;
            }
            self.refused.remove(name);
            bytes += name.len() + resource.any.value.len();
            batch.resources.push(Sent {
                name: Arc::clone(name),
                resource: Arc::clone(resource),
                form: Form::Wrapped {
                    ttl: resource.ttl.filter(|_| with_ttl),
                },
                before,
            });
        }
        if !removals_wait {
            batch.removed = self.drain_gone();
        }
        self.settle();
        // Envoy's start waits for the first answer to a wildcard, even if that is "nothing".
        let first_answer = self.unanswered && self.gone.is_empty();
        // Otherwise the removals are sent later in a response of their own, which answers it.
        self.unanswered = false;
        (!batch.is_empty() || first_answer).then_some(batch)
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

    /// The response that renews the time to live of all resources that the client has; `None` if there are none. A
    /// refused version is left out. An Envoy would take its heartbeat for a resource without content, and refuse it
    /// again.
    pub(super) fn take_heartbeats(
        &mut self,
        available: Option<&TypeSnapshot>,
        now: Instant,
    ) -> Option<Batch> {
        let mut batch = Batch::default();
        for (name, resource, ttl) in available.into_iter().flat_map(TypeSnapshot::mortal) {
            let has_it = !self.differs.contains_key(name) && !self.refused.contains_key(name);
            if self.wants(name) && has_it {
                batch.resources.push(Sent {
                    name: Arc::clone(name),
                    resource: Arc::clone(resource),
                    form: Form::Heartbeat {
                        ttl,
                        version: Arc::clone(&resource.version),
                    },
                    before: None,
                });
            }
        }
        self.pulse.beaten(&batch.resources, now);
        (!batch.is_empty()).then_some(batch)
    }

    /// Notes that a response with these resources was sent.
    pub(super) fn sent(&mut self, nonce: String, version: String, resources: &[Sent]) {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        let mortal = resources.iter().filter(|sent| sent.ttl().is_some());
        self.in_flight.push_back(InFlight {
            nonce,
            version,
            mortal: mortal.map(|sent| Arc::clone(&sent.name)).collect(),
        });
    }

    /// Takes the answer to a response, which may refuse it. Returns the version of that response; `None` if no answer to
    /// it is expected.
    pub(super) fn answered(&mut self, nonce: &str, is_refusal: bool) -> Option<String> {
        let position = self.in_flight.iter().position(|sent| sent.nonce == nonce)?;
        let InFlight {
            version, mortal, ..
        } = self.in_flight.remove(position)?;
        for name in mortal {
            if is_refusal {
                self.refused.add(name);
            } else {
                self.refused.remove(&name);
            }
        }
        if self.in_flight.is_empty() {
            self.in_flight = VecDeque::new();
            self.lingering = SortedSet::default();
            self.settle();
        }
        Some(version)
    }

    fn look_at(&mut self, name: &Arc<str>, reason: Reason) {
        let pending = self.pending.get_or_insert_with(Arc::clone(name), || reason);
        *pending = reason.max(*pending);
    }

    fn note_absence(&mut self, name: Arc<str>, reason: Reason) {
        let has_it = matches!(self.differs.get(&name), Some(Some(_)));
        if has_it || reason == Reason::Asked {
            self.gone.add(name);
        } else {
            self.differs.remove(&name);
        }
    }

    fn drain_gone(&mut self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        let mut bytes = 0;
        while bytes < RESPONSE_BYTES
            && let Some((name, ())) = self.gone.pop_first()
        {
            bytes += name.len();
            self.differs.remove(&name);
            self.refused.remove(&name);
            names.push(name);
        }
        self.settle();
        names
    }

    fn forget_left(&mut self) {
        self.left = SortedSet::default();
        self.left_bytes = 0;
    }

    /// Forgets the names that count until the client was told of them, once it was told of all. A claim may linger longer,
    /// because the client need not have the resources that it says it has.
    fn settle(&mut self) {
        if !self.pending.is_empty() || !self.gone.is_empty() {
            return;
        }
        self.forget_left();
        if self.lingering.is_empty() {
            self.claims = 0;
            self.claimed_bytes = 0;
        }
    }
}

impl Interested for Interest {
    fn held(&self) -> (usize, usize) {
        let names = self.names.len().max(self.claims) + self.left.len();
        let bytes = self.name_bytes + self.claimed_bytes + self.left_bytes;
        (names, bytes)
    }

    fn wish(&self, available: Option<&TypeSnapshot>) -> Wish {
        Wish {
            wildcard: self.wildcard,
            resources: wish::count(self.wildcard, &self.names, available),
            waiting: self.pending.len() + self.gone.len(),
        }
    }

    fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.gone.is_empty()
    }

    fn wanted(&self, available: Option<&TypeSnapshot>) -> Vec<Wanted> {
        let names = wish::names(self.wildcard, &self.names, self.differs.keys(), available);
        let wanted = names.into_iter().map(|name| {
            let resource = available.and_then(|of| of.resources().get(name)).cloned();
            let in_snapshot = || resource.as_ref().map(|of| Arc::clone(&of.version));
            let differs = self.differs.get(name).cloned();
            Wanted {
                name: Arc::clone(name),
                sent: differs.unwrap_or_else(in_snapshot),
                waiting: self.pending.contains_key(name) || self.gone.contains_key(name),
                resource,
            }
        });
        wanted.collect()
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains_key(name)
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }
}
