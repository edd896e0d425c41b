//! Finds references to resources that do not exist.
//!
//! A cluster without its endpoints is not an error, because another server may have them, or the
//! next change may add them. But its clients wait for them, so it is worth a warning.
//!
//! The references of each resource are kept, so that a change costs little. Only the resources that
//! changed are checked, and those that refer to an added or removed one.

mod read;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{ClusterConfig, Listener};
use crowfly_xds::Snapshot;

use crate::translate::ResourceKey;
use crate::views::Overlay;
use read::{is_root, references_of};
pub(crate) use seen::Seen;

/// A resource that refers to one that the snapshot does not have. The order is the one in which a
/// client follows references, from listeners down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dangling {
    rank: usize,
    /// The resource that refers to the other.
    pub(crate) key: ResourceKey,
    from: &'static str,
    nth: usize,
    to: String,
    /// The effect on clients. `None` if they wait for the missing resource, as most do.
    effect: Option<&'static str>,
}

/// The effect of a list that does not exist on the cluster that refers to it.
const NO_LIST: &str = "gRPC clients that do not read lists as resources (gRFC A99) are not sent the cluster, and Envoys \
                       refuse it";

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, from, to, .. } = self;
        let name = &key.name;
        write!(f, "{from} `{name}` refers to {to}, which does not exist")?;
        match self.effect {
            Some(effect) => write!(f, ": {effect}"),
            None => Ok(()),
        }
    }
}

/// The references between the resources of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// The references of each resource that has any.
    of: BTreeMap<ResourceKey, Vec<Reference>>,
    /// For each resource that is referred to, the resources that refer to it.
    users: BTreeMap<ResourceKey, BTreeSet<ResourceKey>>,
    dangling: BTreeMap<ResourceKey, Vec<Dangling>>,
    /// The listeners at which gRPC clients begin.
    roots: BTreeSet<Arc<str>>,
}

/// One reference of a resource.
#[derive(Debug, PartialEq)]
struct Reference {
    rank: usize,
    from: &'static str,
    noun: &'static str,
    to: ResourceKey,
}

impl References {
    /// Updates the references from one snapshot to the next. Returns true if any reference was added or removed.
    pub(crate) fn update(&mut self, before: &Snapshot, after: &Snapshot) -> bool {
        let mut suspects = BTreeSet::new();
        let mut is_changed = false;
        for (url, names) in after.changes_since(before) {
            for name in &*names {
                let key = ResourceKey::new(url, Arc::clone(name));
                is_changed |= self.replace(&key, after);
                let [was_there, is_there] =
                    [before, after].map(|of| of.resource(url, name).is_some());
                if was_there != is_there {
                    suspects.extend(self.users.get(&key).into_iter().flatten().cloned());
                }
                suspects.insert(key);
            }
        }
        for key in suspects {
            self.look_at(key, after);
        }
        is_changed
    }

    /// All resources that gRPC clients can ask for: API listeners, and everything that these lead to.
    pub(crate) fn reachable(&self) -> BTreeSet<ResourceKey> {
        let roots = self.roots.iter();
        let roots = roots.map(|name| ResourceKey::new(Listener::TYPE_URL, Arc::clone(name)));
        let mut open: Vec<ResourceKey> = roots.collect();
        let mut seen = BTreeSet::new();
        while let Some(key) = open.pop() {
            let references = self.of.get(&key).into_iter().flatten();
            if seen.insert(key.clone()) {
                open.extend(references.map(|reference| reference.to.clone()));
            }
        }
        seen
    }

    /// The references to resources that do not exist.
    pub(crate) fn dangling(&self) -> impl Iterator<Item = &Dangling> {
        let all: BTreeSet<_> = self.dangling.values().flatten().collect();
        all.into_iter()
    }

    /// The references that a view has in addition to those of `base`, to resources that it does not have.
    pub(crate) fn dangling_with(&self, overlay: &Overlay, base: &Snapshot) -> BTreeSet<Dangling> {
        let exists = |key: &ResourceKey| match overlay.get(key) {
            Some(laid) => laid.is_some(),
            None => base.resource(&key.type_url, &key.name).is_some(),
        };
        let mut lost = BTreeSet::new();
        for (key, laid) in overlay {
            if let Some(resource) = laid {
                let own = references_of(&resource.any);
                lost.extend(lost_of(key, &own, exists));
            } else {
                let users = self.users.get(key).into_iter().flatten();
                for user in users.filter(|user| !overlay.contains_key(*user)) {
                    let references = self.of.get(user).map_or(&[][..], Vec::as_slice);
                    lost.extend(lost_of(user, references, exists));
                }
            }
        }
        lost
    }

    /// Reads the references of a resource again. Returns true if they changed.
    fn replace(&mut self, key: &ResourceKey, snapshot: &Snapshot) -> bool {
        let before = self.of.remove(key).unwrap_or_default();
        for reference in &before {
            if let Some(users) = self.users.get_mut(&reference.to) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&reference.to);
                }
            }
        }
        let resource = snapshot.resource(&key.type_url, &key.name);
        let references = resource.map(|resource| references_of(&resource.any));
        let references = references.unwrap_or_default();
        let is_changed = references != before;
        let is_root = resource.is_some_and(|resource| is_root(&resource.any));
        let is_root_changed = if is_root {
            self.roots.insert(Arc::clone(&key.name))
        } else {
            key.type_url == Listener::TYPE_URL && self.roots.remove(&key.name)
        };
        self.insert(key, references);
        is_changed || is_root_changed
    }

    fn insert(&mut self, key: &ResourceKey, references: Vec<Reference>) {
        if references.is_empty() {
            return;
        }
        for reference in &references {
            let users = self.users.entry(reference.to.clone()).or_default();
            users.insert(key.clone());
        }
        self.of.insert(key.clone(), references);
    }

    fn look_at(&mut self, key: ResourceKey, snapshot: &Snapshot) {
        let references = self.of.get(&key).map_or(&[][..], Vec::as_slice);
        let exists = |to: &ResourceKey| snapshot.resource(&to.type_url, &to.name).is_some();
        let lost: Vec<_> = lost_of(&key, references, exists).collect();
        if lost.is_empty() {
            self.dangling.remove(&key);
        } else {
            self.dangling.insert(key, lost);
        }
    }
}

/// The references of a resource to those that do not exist.
fn lost_of(
    key: &ResourceKey,
    references: &[Reference],
    exists: impl Fn(&ResourceKey) -> bool,
) -> impl Iterator<Item = Dangling> {
    let lost = references.iter().enumerate();
    let lost = lost.filter(move |(_, reference)| !exists(&reference.to));
    lost.map(|(nth, reference)| Dangling {
        rank: reference.rank,
        key: key.clone(),
        from: reference.from,
        nth,
        to: format!("{} `{}`", reference.noun, reference.to.name),
        effect: (reference.to.type_url == ClusterConfig::TYPE_URL).then_some(NO_LIST),
    })
}

/// All references of a snapshot to resources that do not exist.
#[cfg(test)]
pub(crate) fn dangling(snapshot: &Snapshot) -> Vec<Dangling> {
    let mut references = References::default();
    references.update(&Snapshot::default(), snapshot);
    references.dangling().cloned().collect()
}
