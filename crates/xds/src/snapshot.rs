//! What a server has to say: every resource of every type, at one instant.
//!
//! Versions are hashes of content, not counters, so two replicas that hold the same resources call
//! them by the same version, and a client that moves from one to the other is sent nothing twice.
//!
//! Snapshots share what they have in common: a resource, and a type of which nothing changed, are
//! held once for all snapshots that were made from one another.

mod builder;
mod changes;

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

pub use builder::{DuplicateName, SnapshotBuilder};
use changes::Memo;
pub(crate) use changes::changed_names;

/// All resources at one instant; built whole and never edited.
///
/// ```
/// use crowfly_xds::Snapshot;
/// use envoy_types::pb::google::protobuf::Any;
///
/// let mut builder = Snapshot::builder();
/// let any = Any { type_url: "type.googleapis.com/x.Y".into(), value: vec![1] };
/// builder.add("a", any.clone()).unwrap();
/// assert!(builder.add("a", any).is_err(), "a name is given once per type");
/// assert_eq!(builder.build().of("type.googleapis.com/x.Y").unwrap().resources().len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    types: BTreeMap<String, Arc<TypeSnapshot>>,
}

impl Snapshot {
    /// An empty snapshot to add resources to.
    pub fn builder() -> SnapshotBuilder {
        SnapshotBuilder::default()
    }

    /// A builder of the next snapshot, which shares with this one whatever stays the same.
    ///
    /// ```
    /// use crowfly_xds::Snapshot;
    /// use envoy_types::pb::google::protobuf::Any;
    ///
    /// let any = |byte| Any { type_url: "type.googleapis.com/x.Y".into(), value: vec![byte] };
    /// let mut builder = Snapshot::builder();
    /// builder.set("a", any(1));
    /// builder.set("b", any(1));
    /// let first = builder.build();
    ///
    /// let mut builder = first.to_builder();
    /// builder.set("a", any(2));
    /// builder.remove("type.googleapis.com/x.Y", "b");
    /// let second = builder.build();
    /// assert_eq!(second.of("type.googleapis.com/x.Y").unwrap().resources().len(), 1);
    /// ```
    pub fn to_builder(&self) -> SnapshotBuilder {
        SnapshotBuilder::from(self)
    }

    /// The resources of one type, if there are any.
    pub fn of(&self, type_url: &str) -> Option<&TypeSnapshot> {
        self.types.get(type_url).map(AsRef::as_ref)
    }

    /// One resource.
    pub fn resource(&self, type_url: &str, name: &str) -> Option<&SnapshotResource> {
        self.of(type_url)?.resources.get(name).map(AsRef::as_ref)
    }

    /// Every type that has resources, by type URL.
    pub fn types(&self) -> impl Iterator<Item = (&str, &TypeSnapshot)> {
        self.types.iter().map(|(url, of)| (url.as_str(), &**of))
    }

    /// The same snapshot less the resources for which `keep` is false.
    pub fn filter(&self, mut keep: impl FnMut(&str, &str, &SnapshotResource) -> bool) -> Self {
        let mut types = BTreeMap::new();
        for (url, of) in &self.types {
            let kept: BTreeMap<_, _> = of
                .resources
                .iter()
                .filter(|(name, resource)| keep(url, name, resource))
                .map(|(name, resource)| (Arc::clone(name), Arc::clone(resource)))
                .collect();
            if kept.len() == of.resources.len() {
                types.insert(url.clone(), Arc::clone(of));
            } else if !kept.is_empty() {
                types.insert(url.clone(), Arc::new(TypeSnapshot::new(kept)));
            }
        }
        Self { types }
    }
}

/// The resources of one type.
#[derive(Clone, Debug)]
pub struct TypeSnapshot {
    version: Arc<str>,
    resources: BTreeMap<Arc<str>, Arc<SnapshotResource>>,
    memo: Memo,
}

impl TypeSnapshot {
    fn new(resources: BTreeMap<Arc<str>, Arc<SnapshotResource>>) -> Self {
        let mut contents = Xxh3Default::new();
        for (name, resource) in &resources {
            for part in [name, &resource.version] {
                contents.update(part.as_bytes());
                contents.update(&[0]);
            }
        }
        Self {
            version: version(contents.digest()),
            resources,
            memo: Memo::default(),
        }
    }

    /// Changes when, and only when, a resource of this type does.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The resources by name.
    pub fn resources(&self) -> &BTreeMap<Arc<str>, Arc<SnapshotResource>> {
        &self.resources
    }
}

impl PartialEq for TypeSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.resources == other.resources
    }
}

/// One resource as it will be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotResource {
    /// A hash of the content.
    pub version: Arc<str>,
    /// The resource itself.
    pub any: Any,
    /// Whether it travels in a `Resource` wrapper: its message has no name field.
    pub wrapped: bool,
}

impl SnapshotResource {
    fn new(any: Any, wrapped: bool) -> Self {
        Self {
            version: version(xxh3_64(&any.value)),
            any,
            wrapped,
        }
    }
}

fn version(hash: u64) -> Arc<str> {
    format!("{hash:016x}").into()
}
