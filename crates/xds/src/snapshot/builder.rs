//! Gathers the resources of a snapshot, from nothing or from the snapshot before.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use thiserror::Error;

use super::{Snapshot, SnapshotResource, TypeSnapshot};

type ByName = BTreeMap<Arc<str>, Arc<SnapshotResource>>;

/// Gathers the resources of a [`Snapshot`].
#[derive(Clone, Debug, Default)]
pub struct SnapshotBuilder {
    types: BTreeMap<String, Draft>,
}

/// One type of a snapshot to be.
#[derive(Clone, Debug, Default)]
struct Draft {
    /// As it is in the snapshot before: neither copied nor hashed again.
    kept: Option<Arc<TypeSnapshot>>,
    /// What replaces it.
    edited: ByName,
}

impl SnapshotBuilder {
    /// Adds a resource whose message holds its name.
    pub fn add(&mut self, name: impl Into<Arc<str>>, any: Any) -> Result<(), DuplicateName> {
        self.insert(name.into(), any, false)
    }

    /// Adds a resource that is named by its wrapper only.
    pub fn add_wrapped(
        &mut self,
        name: impl Into<Arc<str>>,
        any: Any,
    ) -> Result<(), DuplicateName> {
        self.insert(name.into(), any, true)
    }

    /// Adds a resource whose message holds its name, in place of one of the same type and name.
    pub fn set(&mut self, name: impl Into<Arc<str>>, any: Any) {
        let of_type = self.edit(any.type_url.clone());
        of_type.insert(name.into(), Arc::new(SnapshotResource::new(any, false)));
    }

    /// Takes a resource away; `false` if there was none.
    pub fn remove(&mut self, type_url: &str, name: &str) -> bool {
        let Some(draft) = self.types.get_mut(type_url) else {
            return false;
        };
        draft.resources().contains_key(name) && draft.edit().remove(name).is_some()
    }

    /// The finished snapshot.
    pub fn build(self) -> Snapshot {
        let types = self
            .types
            .into_iter()
            .filter_map(|(url, draft)| Some((url, draft.finish()?)))
            .collect();
        Snapshot { types }
    }

    fn insert(&mut self, name: Arc<str>, any: Any, wrapped: bool) -> Result<(), DuplicateName> {
        let of_type = self.edit(any.type_url.clone());
        if of_type.contains_key(&name) {
            return Err(DuplicateName {
                type_url: any.type_url,
                name: name.to_string(),
            });
        }
        of_type.insert(name, Arc::new(SnapshotResource::new(any, wrapped)));
        Ok(())
    }

    fn edit(&mut self, type_url: String) -> &mut ByName {
        self.types.entry(type_url).or_default().edit()
    }
}

impl From<&Snapshot> for SnapshotBuilder {
    fn from(snapshot: &Snapshot) -> Self {
        let mut types = BTreeMap::new();
        for (url, of) in &snapshot.types {
            let draft = Draft {
                kept: Some(Arc::clone(of)),
                edited: ByName::new(),
            };
            types.insert(url.clone(), draft);
        }
        Self { types }
    }
}

impl Draft {
    fn resources(&self) -> &ByName {
        self.kept.as_ref().map_or(&self.edited, |of| &of.resources)
    }

    fn edit(&mut self) -> &mut ByName {
        if let Some(of) = self.kept.take() {
            self.edited = of.resources.clone();
        }
        &mut self.edited
    }

    /// `None` if there is nothing of this type.
    fn finish(self) -> Option<Arc<TypeSnapshot>> {
        if self.kept.is_some() || self.edited.is_empty() {
            return self.kept;
        }
        Some(Arc::new(TypeSnapshot::new(self.edited)))
    }
}

/// Two resources of one type have one name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("two resources of type {type_url} are named `{name}`, expected one")]
pub struct DuplicateName {
    /// The type of both.
    pub type_url: String,
    /// The name of both.
    pub name: String,
}
