//! The resources of one type that the client of a state-of-the-world stream wants, and those that
//! it was sent.
//!
//! Only names that changed or were asked for are looked at, so that the work is in proportion to
//! them.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::super::lifetime::Pulse;
use super::super::response::{Form, Sent};
use super::super::types::Interested;
use super::super::wish::{self, Wanted, Wish};
use super::super::{REMOVED_LAST, WILDCARD, same_spelling};
use super::renewal::Renewal;
use crate::snapshot::{NamedResources, SnapshotResource, TypeSnapshot};
use crate::sorted::{Sorted, SortedSet};

/// The resources of one type that a client wants, and those that it was sent.
#[derive(Debug, Default)]
pub(super) struct Interest {
    wildcard: bool,
    names: SortedSet<Arc<str>>,
    /// The bytes of `names`.
    name_bytes: usize,
    /// True once a request had a name. An empty list of names means "everything" only before that.
    has_named: bool,
    /// The version of each resource that was sent and is still wanted. Refused versions are
    /// included, so that they are not sent again.
    sent: Sorted<Arc<str>, Arc<str>>,
    /// Resources that were sent and no longer exist, and whose removal waits for other types.
    leaving: Sorted<Arc<str>, Arc<SnapshotResource>>,
    /// Names that do not exist, and that the client was told of.
    told_missing: SortedSet<Arc<str>>,
    /// True if a response of this type was sent on this stream, and no request without a nonce came
    /// after it.
    responded: bool,
    /// True if the client has not yet accepted or refused the newest response.
    pub(super) awaits_answer: bool,
    /// The time of the newest response, if the driver has a clock.
    pub(super) sent_at: Option<Instant>,
    /// The nonce of the newest response.
    pub(super) nonce: Box<str>,
    /// The version of the newest response.
    pub(super) version: Box<str>,
    pending: Pending,
    pub(super) renewal: Renewal,
}

/// The names to check for the next response.
#[derive(Debug, Default)]
enum Pending {
    /// Every name that is wanted or was sent.
    #[default]
    All,
    Names(SortedSet<Arc<str>>),
}

impl Pending {
    fn none() -> Self {
        Self::Names(SortedSet::default())
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Names(names) if names.is_empty())
    }

    fn add(&mut self, name: &Arc<str>) {
        if let Self::Names(names) = self {
            names.add(Arc::clone(name));
        }
    }
}

/// The part of the stream that the content of a response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) available: Option<&'a TypeSnapshot>,
    /// True if absence means deletion, so that each response lists all resources (gRFC A53).
    pub(super) full_state: bool,
    /// True if the client understands `resource_errors`.
    pub(super) tells_missing: bool,
    /// Names whose change waits for another type, unless the client has nothing of that name.
    pub(super) waiting: &'a BTreeSet<String>,
}

/// The content of a response.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) resources: Vec<(Arc<str>, Arc<SnapshotResource>)>,
    /// The names in `resources` that the client does not have in this version.
    pub(super) changed: Vec<Arc<str>>,
    /// The version before of each name in `changed`, by name.
    pub(super) before: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Names that are subscribed to and do not exist.
    pub(super) missing: Vec<Arc<str>>,
    /// The number of resources in the response that the snapshot no longer has.
    pub(super) kept: usize,
    /// True if the resources are only to be renewed.
    pub(super) heartbeats: bool,
}

impl Interest {
    /// True if the nonce is of an earlier response, because the client has not seen the newest one
    /// yet. The client will repeat its names in the answer to the newest.
    pub(super) fn is_stale(&self, nonce: &str) -> bool {
        !nonce.is_empty() && !self.nonce.is_empty() && nonce != &*self.nonce
    }

    /// True if the next response has something to check.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// True if the next response has something to check beside the names that are `waiting`.
    pub(super) fn is_pending_beside(&self, waiting: &BTreeSet<String>) -> bool {
        match &self.pending {
            Pending::All => true,
            Pending::Names(names) => names.keys().any(|name| !self.must_wait(name, waiting)),
        }
    }

    /// The names to check for the next response. There are none if all are to be checked, because
    /// the client has just asked for them.
    pub(super) fn pending_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let names = match &self.pending {
            Pending::All => None,
            Pending::Names(names) => Some(names.keys()),
        };
        names.into_iter().flatten()
    }

    /// True if `name` is among those that are `waiting`, and the client has something of that name.
    fn must_wait(&self, name: &str, waiting: &BTreeSet<String>) -> bool {
        waiting.contains(name) && self.sent.contains_key(name)
    }

    /// True if the removal of resources waits for other types.
    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Takes the answer to the newest response, which may refuse it. An acceptance has the version of the response, and a
    /// client that only changes its names may have another one.
    pub(super) fn answered(&mut self, is_refusal: bool, version: &str) {
        self.awaits_answer = false;
        if is_refusal {
            self.renewal.refused();
        } else if *version == *self.version {
            self.renewal.accepted();
        }
        self.renewal.keep(|name| self.sent.contains_key(name));
    }

    /// The time of the next heartbeat. It waits for the answer to the response before it, like every other response.
    pub(super) fn beat(&self) -> Pulse {
        if self.awaits_answer {
            return Pulse::None;
        }
        self.renewal.beat()
    }

    /// Forgets what was sent. A request without a nonce comes from a client that has seen no
    /// response, or has forgotten them all. So nothing is known about the resources that it holds.
    ///
    /// A version that the client has from an earlier stream says nothing either. An Envoy that refuses a response may have
    /// applied a part of it, and keeps the version before.
    pub(super) fn start_over(&mut self) {
        self.sent = Sorted::default();
        self.leaving = Sorted::default();
        self.told_missing = SortedSet::default();
        self.responded = false;
        self.renewal.start_over();
        self.pending = Pending::All;
    }

    /// Takes the names of a request, and returns true if they changed. An empty list is a wildcard
    /// only at first, and only if `legacy_wildcard` allows it.
    pub(super) fn set_names(
        &mut self,
        names: Vec<String>,
        legacy_wildcard: bool,
        available: Option<&TypeSnapshot>,
    ) -> bool {
        let means_all = names.is_empty() && !self.has_named && legacy_wildcard;
        self.has_named |= !names.is_empty();
        let mut named = SortedSet::default();
        for name in names {
            named.add(self.shared(&name, available));
        }
        let wildcard = means_all || named.contains_key(WILDCARD);
        let has_changed = wildcard != self.wildcard || named != self.names;
        if !has_changed {
            return false;
        }
        self.pending = Pending::All;
        self.name_bytes = named.keys().map(|name| name.len()).sum();
        self.wildcard = wildcard;
        self.names = named;
        let (wildcard, names) = (self.wildcard, &self.names);
        // A name that is left out is forgotten, so that it is sent again if the client asks for it
        // later.
        let is_wanted = |name: &Arc<str>| wildcard || names.contains_key(name);
        self.sent.retain(|name, _| is_wanted(name));
        self.leaving.retain(|name, _| is_wanted(name));
        self.told_missing
            .retain(|name, ()| names.contains_key(name));
        true
    }

    /// The number of resources that a wildcard makes the next response look at.
    pub(super) fn listed(&self, available: Option<&TypeSnapshot>) -> usize {
        let lists_all = self.wildcard && matches!(self.pending, Pending::All);
        let available = available.filter(|_| lists_all);
        available.map_or(0, |of| of.resources().len())
    }

    /// Sends `name` again although it has not changed, if it was sent.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some((name, _)) = self.sent.remove_entry(name) {
            self.pending.add(&name);
        }
    }

    /// Notes that these resources changed, and became those of `new`.
    pub(super) fn changed(
        &mut self,
        type_url: &str,
        names: &[Arc<str>],
        old: Option<&TypeSnapshot>,
        new: Option<&TypeSnapshot>,
    ) {
        let removed_last = REMOVED_LAST.contains(&type_url);
        for name in names {
            if !self.wants(name) {
                continue;
            }
            self.pending.add(name);
            let is_gone = new.is_none_or(|of| !of.resources().contains_key(name));
            if removed_last && is_gone && self.sent.contains_key(name) {
                let before = old.and_then(|of| of.resources().get(name));
                let before = before.map(|before| (Arc::clone(name), Arc::clone(before)));
                self.leaving.extend(before);
            }
        }
    }

    /// The next response; `None` if the client has all of it.
    pub(super) fn take_due(&mut self, context: Context<'_>) -> Option<Due> {
        let looked_at = match mem::replace(&mut self.pending, Pending::none()) {
            Pending::All => self.wanted_or_sent(context.available),
            Pending::Names(names) => names,
        };
        let mut due = Due::default();
        let mut removed = false;
        for (name, ()) in looked_at {
            if self.must_wait(&name, context.waiting) {
                self.pending.add(&name);
                continue;
            }
            let found = context.available.and_then(|of| of.resources().get(&name));
            let Some(resource) = found else {
                if !self.leaving.contains_key(&name) {
                    removed |= self.sent.remove(&name).is_some();
                    self.tell_missing(name, context, &mut due);
                }
                continue;
            };
            self.leaving.remove(&name);
            self.told_missing.remove(&name);
            if self.sent.get(&name) != Some(&resource.version) {
                due.changed.push(Arc::clone(&name));
                due.resources.push((name, Arc::clone(resource)));
            }
        }
        // Envoy's start waits for the first answer to a wildcard, even if that is empty. A client
        // that comes from another stream may hold resources that were deleted in the meantime.
        let first_answer = (self.wildcard || context.full_state) && !self.responded;
        let deletes = context.full_state && removed;
        if due.resources.is_empty() && due.missing.is_empty() && !first_answer && !deletes {
            return None;
        }
        Some(self.complete(due, context))
    }

    /// The response that removes what other types no longer refer to; `None` if there is no way to
    /// say that to this client.
    pub(super) fn take_leaving(&mut self, context: Context<'_>) -> Option<Due> {
        let mut due = Due::default();
        for (name, _) in mem::take(&mut self.leaving) {
            self.sent.remove(&name);
            self.tell_missing(name, context, &mut due);
        }
        let is_said = context.full_state || !due.missing.is_empty();
        is_said.then(|| self.complete(due, context))
    }

    /// The response that renews the time to live of all resources that the client has; `None` if
    /// there are none.
    ///
    /// A full state is sent whole, because a client may take a response of heartbeats alone for one
    /// that deletes everything. After a refusal it is not renewed, because it would repeat what was
    /// refused.
    pub(super) fn take_heartbeats(&mut self, context: Context<'_>) -> Option<Due> {
        self.renewal.stop();
        let mortal = context.available.into_iter().flat_map(TypeSnapshot::mortal);
        let has = |name: &Arc<str>, of: &SnapshotResource| {
            self.sent.get(name) == Some(&of.version) && self.renewal.covers(name)
        };
        let mortal = mortal.filter(|(name, of, _)| has(name, of));
        let resources: Vec<_> = mortal
            .map(|(name, of, _)| (Arc::clone(name), Arc::clone(of)))
            .collect();
        if resources.is_empty() {
            return None;
        }
        if context.full_state {
            return Some(self.complete(Due::default(), context));
        }
        Some(Due {
            resources,
            heartbeats: true,
            ..Due::default()
        })
    }

    /// The version of a response of heartbeats, and of each heartbeat in it. An Envoy compares it with the version that it
    /// accepted last.
    pub(super) fn version_of_heartbeats(&self) -> Box<str> {
        self.renewal.version().unwrap_or(&self.version).into()
    }

    /// The heartbeats of these resources.
    pub(super) fn heartbeats(
        &self,
        resources: Vec<(Arc<str>, Arc<SnapshotResource>)>,
    ) -> Vec<Sent> {
        let version: Arc<str> = Arc::from(&*self.version);
        let heartbeat = |(name, resource): (Arc<str>, Arc<SnapshotResource>)| {
            let form = Form::Heartbeat {
                ttl: resource.ttl?,
                version: Arc::clone(&version),
            };
            Some(Sent {
                name,
                resource,
                form,
                before: None,
            })
        };
        resources.into_iter().filter_map(heartbeat).collect()
    }

    /// Notes that a response is sent, and adds what a full state needs.
    fn complete(&mut self, mut due: Due, context: Context<'_>) -> Due {
        self.responded = true;
        for (name, resource) in &due.resources {
            let version = Arc::clone(&resource.version);
            let before = self.sent.insert(Arc::clone(name), version);
            due.before.push((Arc::clone(name), before));
        }
        if !context.full_state {
            return due;
        }
        let resources = context.available.map(TypeSnapshot::resources);
        due.resources.clear();
        for (name, version) in self.sent.iter_mut() {
            let found = resources.and_then(|resources| resources.get(name));
            let Some(resource) = found.or_else(|| self.leaving.get(name)) else {
                continue;
            };
            if found.is_none() {
                due.kept += 1;
                // It may have changed before it was removed.
                *version = Arc::clone(&resource.version);
            }
            let resource = Arc::clone(resource);
            due.resources.push((Arc::clone(name), resource));
        }
        due
    }

    fn tell_missing(&mut self, name: Arc<str>, context: Context<'_>, due: &mut Due) {
        let is_named = self.names.contains_key(&name) && !name.is_empty() && &*name != WILDCARD;
        if context.tells_missing && is_named && self.told_missing.add(Arc::clone(&name)) {
            due.missing.push(name);
        }
    }

    /// A name, which shares its memory with that of the names before, or with the name of the resource.
    fn shared(&self, name: &str, available: Option<&TypeSnapshot>) -> Arc<str> {
        let name = same_spelling(name);
        let known = self.names.key(&*name).or_else(|| self.sent.key(&*name));
        let known = known.or_else(|| {
            let (key, _) = available?.resources().get_key_value(&name)?;
            Some(key)
        });
        known.map_or_else(|| Arc::from(&*name), Arc::clone)
    }

    /// The names that are wanted, and those that were sent and may be deleted.
    fn wanted_or_sent(&self, available: Option<&TypeSnapshot>) -> SortedSet<Arc<str>> {
        let mut names: SortedSet<Arc<str>> = self
            .sent
            .keys()
            .map(|name| (Arc::clone(name), ()))
            .collect();
        let resources = available.map(TypeSnapshot::resources);
        if self.wildcard {
            let all = resources.into_iter().flat_map(NamedResources::keys);
            names.extend(all.map(|name| (Arc::clone(name), ())));
        }
        for name in self.names.keys() {
            let found = resources.and_then(|resources| resources.get_key_value(name));
            names.add(found.map_or_else(|| Arc::clone(name), |(name, _)| Arc::clone(name)));
        }
        names
    }
}

impl Interested for Interest {
    fn held(&self) -> (usize, usize) {
        (self.names.len(), self.name_bytes)
    }

    fn wish(&self, available: Option<&TypeSnapshot>) -> Wish {
        let resources = wish::count(self.wildcard, &self.names, available);
        let pending = match &self.pending {
            Pending::All => resources.max(1),
            Pending::Names(names) => names.len(),
        };
        Wish {
            wildcard: self.wildcard,
            resources,
            waiting: pending + self.leaving.len(),
        }
    }

    fn is_waiting(&self) -> bool {
        self.is_pending() || self.has_leaving()
    }

    fn wanted(&self, available: Option<&TypeSnapshot>) -> Vec<Wanted> {
        let names = wish::names(self.wildcard, &self.names, self.sent.keys(), available);
        let wanted = names.into_iter().map(|name| {
            let is_pending = match &self.pending {
                Pending::All => true,
                Pending::Names(names) => names.contains_key(name),
            };
            Wanted {
                name: Arc::clone(name),
                sent: self.sent.get(name).cloned(),
                resource: available.and_then(|of| of.resources().get(name)).cloned(),
                waiting: is_pending || self.leaving.contains_key(name),
            }
        });
        wanted.collect()
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains_key(name)
    }
}
