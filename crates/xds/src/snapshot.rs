//! The state that a server serves: all resources of all types at one instant.
//!
//! Versions are hashes of content, not counters. So two replicas that hold the same resources give
//! them the same versions. A client that moves from one to the other is sent nothing twice.
//!
//! Snapshots that were built from one another share memory: each resource and each unchanged type
//! is held once.

mod builder;
mod changes;
mod resources;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::names::canonical;
use envoy_types::pb::google::protobuf::Any;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

pub use builder::{DuplicateName, SnapshotBuilder, spelled};
use changes::Memo;
pub(crate) use changes::changed_names;
pub use resources::NamedResources;

/// The version of a type that has no resources.
const EMPTY_VERSION: &str = "empty";

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
    /// Versions of types that are not hashes of their content.
    labels: BTreeMap<String, String>,
}

impl Snapshot {
    /// An empty snapshot to add resources to.
    pub fn builder() -> SnapshotBuilder {
        SnapshotBuilder::default()
    }

    /// A builder of the next snapshot, which shares with this one everything that stays the same.
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

    /// The version of a type in responses: a hash of its content, unless
    /// [`with_versions`](Self::with_versions) gave it another.
    pub fn version_of(&self, type_url: &str) -> &str {
        let label = self.labels.get(type_url).map(String::as_str);
        let version = || self.of(type_url).map(TypeSnapshot::version);
        label.or_else(version).unwrap_or(EMPTY_VERSION)
    }

    /// True if the version of a type is not a hash of its content.
    pub(crate) fn is_labelled(&self, type_url: &str) -> bool {
        self.labels.contains_key(type_url)
    }

    /// The snapshot with versions of its own for these types, for a test suite that sets them.
    /// Changes are found by content all the same. The next snapshot does not inherit the versions.
    #[must_use]
    pub fn with_versions(mut self, versions: BTreeMap<String, String>) -> Self {
        self.labels = versions;
        self
    }

    /// One resource, by any spelling of its name.
    pub fn resource(&self, type_url: &str, name: &str) -> Option<&SnapshotResource> {
        let name = canonical(name).unwrap_or(Cow::Borrowed(name));
        self.of(type_url)?.resources().get(&name).map(AsRef::as_ref)
    }

    /// Every type that has resources, by type URL.
    pub fn types(&self) -> impl Iterator<Item = (&str, &TypeSnapshot)> {
        self.types.iter().map(|(url, of)| (url.as_str(), &**of))
    }

    /// The names that differ from `before`, by type: new ones, removed ones, and those whose
    /// resource has another version. Types without such names are left out.
    ///
    /// The work is in proportion to the changes if this snapshot was built from `before` with
    /// [`to_builder`](Self::to_builder).
    ///
    /// ```
    /// use crowfly_xds::Snapshot;
    /// use envoy_types::pb::google::protobuf::Any;
    ///
    /// let before = Snapshot::default();
    /// let mut builder = before.to_builder();
    /// builder.set("a", Any { type_url: "type.googleapis.com/x.Y".into(), value: vec![1] });
    /// let snapshot = builder.build();
    /// let changes: Vec<_> = snapshot.changes_since(&before).collect();
    /// assert_eq!(changes, [("type.googleapis.com/x.Y", ["a".into()].into())]);
    /// assert_eq!(snapshot.changes_since(&snapshot).count(), 0);
    /// ```
    pub fn changes_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Arc<[Arc<str>]>)> {
        let urls: BTreeSet<&str> = self
            .types
            .keys()
            .chain(before.types.keys())
            .map(String::as_str)
            .collect();
        let changes = urls
            .into_iter()
            .map(|url| (url, changed_names(before.of(url), self.of(url))));
        changes.filter(|(_, names)| !names.is_empty())
    }

    /// A copy of this snapshot without the resources for which `keep` returns false.
    pub fn filter(&self, mut keep: impl FnMut(&str, &str, &SnapshotResource) -> bool) -> Self {
        let mut builder = self.to_builder();
        for (url, of) in &self.types {
            for (name, resource) in of.resources() {
                if !keep(url, name, resource) {
                    builder.remove(url, name);
                }
            }
        }
        builder.build()
    }
}

/// The resources of one type.
#[derive(Clone, Debug)]
pub struct TypeSnapshot {
    version: Arc<str>,
    contents: Contents,
    memo: Memo,
}

impl TypeSnapshot {
    fn new(contents: Contents) -> Self {
        Self {
            version: version(xxh3_64(&contents.sum.to_le_bytes())),
            contents,
            memo: Memo::default(),
        }
    }

    /// The type in the snapshot after `base`, from which the names in `changed` differ.
    fn after(base: &Self, changed: Arc<[Arc<str>]>, contents: Contents) -> Self {
        Self {
            memo: Memo::known(&base.version, changed),
            ..Self::new(contents)
        }
    }

    /// The version of the type. It changes when, and only when, a resource of this type changes.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The resources by name.
    pub fn resources(&self) -> &NamedResources {
        &self.contents.resources
    }

    /// The resources that have a time to live, with it.
    pub fn mortal(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<SnapshotResource>, Duration)> {
        let names = self.contents.mortal.iter();
        names.filter_map(|name| {
            let (name, resource) = self.contents.resources.get_key_value(name)?;
            Some((name, resource, resource.ttl?))
        })
    }
}

/// Resources and the sum of their hashes. A sum does not depend on the order in which resources
/// were added. A change of one resource updates it without reading the others.
#[derive(Clone, Debug, Default)]
struct Contents {
    resources: NamedResources,
    sum: u128,
    /// The names of the resources that have a time to live. They are few.
    mortal: BTreeSet<Arc<str>>,
}

impl Contents {
    fn insert(&mut self, name: &Arc<str>, resource: Arc<SnapshotResource>) {
        self.sum = self.sum.wrapping_add(hash_of(name, &resource));
        if resource.ttl.is_some() {
            self.mortal.insert(Arc::clone(name));
        } else {
            self.mortal.remove(name);
        }
        if let Some(before) = self.resources.insert(Arc::clone(name), resource) {
            self.sum = self.sum.wrapping_sub(hash_of(name, &before));
        }
    }

    fn remove(&mut self, name: &str) {
        self.mortal.remove(name);
        if let Some(before) = self.resources.remove(name) {
            self.sum = self.sum.wrapping_sub(hash_of(name, &before));
        }
    }
}

fn hash_of(name: &str, resource: &SnapshotResource) -> u128 {
    xxh3_128(format!("{name}\0{}", resource.version).as_bytes())
}

impl PartialEq for TypeSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.contents.resources == other.contents.resources
    }
}

/// One resource as it will be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotResource {
    /// A hash of the content.
    pub version: Arc<str>,
    /// The resource itself.
    pub any: Any,
    /// True if the resource is sent in a `Resource` wrapper, because its message has no name field.
    pub wrapped: bool,
    /// The time after which clients remove the resource, if the server is silent. Servers renew it.
    pub ttl: Option<Duration>,
}

impl SnapshotResource {
    /// A resource, and the version that its content gives it.
    pub fn new(any: Any, wrapped: bool) -> Self {
        Self {
            version: version(xxh3_64(&any.value)),
            any,
            wrapped,
            ttl: None,
        }
    }

    /// The resource with a time to live, and a version of its own. A client that has the resource
    /// with another time to live is sent it again.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        let seed = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        self.version = version(xxh3_64_with_seed(&self.any.value, seed));
        self.ttl = Some(ttl);
        self
    }
}

fn version(hash: u64) -> Arc<str> {
    format!("{hash:016x}").into()
}
