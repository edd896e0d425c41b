//! What a server has to say: every resource of every type, at one instant.
//!
//! Versions are hashes of content, not counters, so two replicas that hold the same resources call
//! them by the same version, and a client that moves from one to the other is sent nothing twice.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::Any;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

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
    types: BTreeMap<String, TypeSnapshot>,
}

impl Snapshot {
    /// An empty snapshot to add resources to.
    pub fn builder() -> SnapshotBuilder {
        SnapshotBuilder::default()
    }

    /// The resources of one type, if there are any.
    pub fn of(&self, type_url: &str) -> Option<&TypeSnapshot> {
        self.types.get(type_url)
    }

    /// One resource.
    pub fn resource(&self, type_url: &str, name: &str) -> Option<&SnapshotResource> {
        self.of(type_url)?.resources.get(name)
    }

    /// Every type that has resources, by type URL.
    pub fn types(&self) -> impl Iterator<Item = (&str, &TypeSnapshot)> {
        self.types.iter().map(|(url, of)| (url.as_str(), of))
    }

    /// The same snapshot less the resources for which `keep` is false.
    pub fn filter(&self, mut keep: impl FnMut(&str, &str, &SnapshotResource) -> bool) -> Self {
        let mut types = BTreeMap::new();
        for (url, of) in &self.types {
            let kept: BTreeMap<_, _> = of
                .resources
                .iter()
                .filter(|(name, resource)| keep(url, name, resource))
                .map(|(name, resource)| (name.clone(), resource.clone()))
                .collect();
            if !kept.is_empty() {
                types.insert(url.clone(), TypeSnapshot::new(kept));
            }
        }
        Self { types }
    }
}

/// The resources of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSnapshot {
    version: String,
    resources: BTreeMap<String, SnapshotResource>,
}

impl TypeSnapshot {
    fn new(resources: BTreeMap<String, SnapshotResource>) -> Self {
        let mut contents = Vec::new();
        for (name, resource) in &resources {
            contents.extend_from_slice(name.as_bytes());
            contents.push(0);
            contents.extend_from_slice(resource.version.as_bytes());
            contents.push(0);
        }
        Self {
            version: content_version(&contents),
            resources,
        }
    }

    /// Changes when, and only when, a resource of this type does.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The resources by name.
    pub fn resources(&self) -> &BTreeMap<String, SnapshotResource> {
        &self.resources
    }
}

/// One resource as it will be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotResource {
    /// A hash of the content.
    pub version: String,
    /// The resource itself.
    pub any: Any,
    /// Whether it travels in a `Resource` wrapper: its message has no name field.
    pub wrapped: bool,
}

/// Gathers the resources of a [`Snapshot`].
#[derive(Clone, Debug, Default)]
pub struct SnapshotBuilder {
    types: BTreeMap<String, BTreeMap<String, SnapshotResource>>,
}

impl SnapshotBuilder {
    /// Adds a resource whose message holds its name.
    pub fn add(&mut self, name: impl Into<String>, any: Any) -> Result<(), DuplicateName> {
        self.insert(name.into(), any, false)
    }

    /// Adds a resource that is named by its wrapper only.
    pub fn add_wrapped(&mut self, name: impl Into<String>, any: Any) -> Result<(), DuplicateName> {
        self.insert(name.into(), any, true)
    }

    /// The finished snapshot.
    pub fn build(self) -> Snapshot {
        let types = self
            .types
            .into_iter()
            .map(|(url, resources)| (url, TypeSnapshot::new(resources)))
            .collect();
        Snapshot { types }
    }

    fn insert(&mut self, name: String, any: Any, wrapped: bool) -> Result<(), DuplicateName> {
        let of_type = self.types.entry(any.type_url.clone()).or_default();
        if of_type.contains_key(&name) {
            return Err(DuplicateName {
                type_url: any.type_url,
                name,
            });
        }
        let version = content_version(&any.value);
        of_type.insert(
            name,
            SnapshotResource {
                version,
                any,
                wrapped,
            },
        );
        Ok(())
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

fn content_version(contents: &[u8]) -> String {
    format!("{:016x}", xxh3_64(contents))
}
