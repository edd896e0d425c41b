//! Builds a snapshot, from nothing or from the snapshot before.
//!
//! A snapshot never changes once it is built, so all code that edits resources is in this module.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_model::names::canonical;
use envoy_types::pb::google::protobuf::Any;
use thiserror::Error;

use super::{Contents, Snapshot, SnapshotResource, TypeSnapshot};

/// Gathers the resources of a [`Snapshot`].
#[derive(Clone, Debug, Default)]
pub struct SnapshotBuilder {
    types: BTreeMap<String, Draft>,
}

/// One type of the snapshot that is being built.
#[derive(Clone, Debug, Default)]
struct Draft {
    /// The type in the snapshot before.
    base: Option<Arc<TypeSnapshot>>,
    /// The contents that replace `base`; `None` until the first edit.
    edited: Option<Contents>,
    /// The names that were edited.
    touched: BTreeSet<Arc<str>>,
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
        self.put(name, Arc::new(SnapshotResource::new(any, false)));
    }

    /// Adds a resource that exists already, in place of one of the same type and name. It is neither
    /// copied nor hashed again.
    ///
    /// ```
    /// use crowfly_xds::{Snapshot, SnapshotResource};
    /// use envoy_types::pb::google::protobuf::Any;
    ///
    /// let any = Any { type_url: "type.googleapis.com/x.Y".into(), value: vec![1] };
    /// let resource = std::sync::Arc::new(SnapshotResource::new(any, false));
    /// let mut builder = Snapshot::builder();
    /// builder.put("a", resource.clone());
    /// let snapshot = builder.build();
    /// assert_eq!(snapshot.resource("type.googleapis.com/x.Y", "a"), Some(&*resource));
    /// ```
    pub fn put(&mut self, name: impl Into<Arc<str>>, resource: Arc<SnapshotResource>) {
        let draft = self.types.entry(resource.any.type_url.clone()).or_default();
        draft.put(spelled(name.into()), resource);
    }

    /// Takes a resource away; `false` if there was none.
    pub fn remove(&mut self, type_url: &str, name: &str) -> bool {
        let draft = self.types.get_mut(type_url);
        let name = canonical(name).unwrap_or(Cow::Borrowed(name));
        draft.is_some_and(|draft| draft.remove(&name))
    }

    /// The finished snapshot.
    pub fn build(self) -> Snapshot {
        let types = self
            .types
            .into_iter()
            .filter_map(|(url, draft)| Some((url, draft.finish()?)))
            .collect();
        Snapshot {
            types,
            labels: BTreeMap::new(),
        }
    }

    fn insert(&mut self, name: Arc<str>, any: Any, wrapped: bool) -> Result<(), DuplicateName> {
        let draft = self.types.entry(any.type_url.clone()).or_default();
        let name = spelled(name);
        if draft.contains(&name) {
            return Err(DuplicateName {
                type_url: any.type_url,
                name: name.to_string(),
            });
        }
        draft.put(name, Arc::new(SnapshotResource::new(any, wrapped)));
        Ok(())
    }
}

impl From<&Snapshot> for SnapshotBuilder {
    fn from(snapshot: &Snapshot) -> Self {
        let mut types = BTreeMap::new();
        for (url, of) in &snapshot.types {
            let draft = Draft {
                base: Some(Arc::clone(of)),
                ..Draft::default()
            };
            types.insert(url.clone(), draft);
        }
        Self { types }
    }
}

impl Draft {
    fn contains(&self, name: &str) -> bool {
        let base = self.base.as_ref().map(|of| &of.contents);
        let contents = self.edited.as_ref().or(base);
        contents.is_some_and(|contents| contents.resources.contains_key(name))
    }

    fn put(&mut self, name: Arc<str>, resource: Arc<SnapshotResource>) {
        self.edit().insert(&name, resource);
        self.touched.insert(name);
    }

    fn remove(&mut self, name: &str) -> bool {
        let is_there = self.contains(name);
        if is_there {
            self.edit().remove(name);
            self.touched.insert(name.into());
        }
        is_there
    }

    fn edit(&mut self) -> &mut Contents {
        let base = self.base.as_ref();
        let copy = || base.map(|of| of.contents.clone()).unwrap_or_default();
        self.edited.get_or_insert_with(copy)
    }

    /// The finished type; `None` if it has no resources. Only edited names are compared with the
    /// snapshot before. A type in which nothing changed stays the same object.
    fn finish(self) -> Option<Arc<TypeSnapshot>> {
        let Some(edited) = self.edited else {
            return self.base;
        };
        if edited.resources.is_empty() {
            return None;
        }
        let Some(base) = self.base else {
            return Some(Arc::new(TypeSnapshot::new(edited)));
        };
        let mut touched = self.touched;
        touched.retain(|name| base.resources().get(name) != edited.resources.get(name));
        if touched.is_empty() {
            return Some(base);
        }
        let changed = touched.into_iter().collect();
        Some(Arc::new(TypeSnapshot::after(&base, changed, edited)))
    }
}

/// The one spelling of a name under which clients find it, whatever spelling they use (xRFC TP1). A
/// malformed name stays as it is.
///
/// ```
/// use crowfly_xds::spelled;
///
/// assert_eq!(&*spelled("xdstp://a/t/x?zone=1&env=prod".into()), "xdstp://a/t/x?env=prod&zone=1");
/// ```
pub fn spelled(name: Arc<str>) -> Arc<str> {
    match canonical(&name) {
        Ok(Cow::Owned(canonical)) => canonical.into(),
        Ok(Cow::Borrowed(_)) | Err(_) => name,
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
