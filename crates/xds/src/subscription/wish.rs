//! The view of a server on what its client wants and has, for people who look at a stream.
//!
//! It is worked out when somebody asks. So a stream holds nothing for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::snapshot::{NamedResources, SnapshotResource, TypeSnapshot};
use crate::sorted::SortedSet;

/// The wish of a client for one type: how much it asked for, and how much of it is not sent yet.
///
/// ```
/// use std::sync::Arc;
/// use crowfly_xds::{ServerHalf, Snapshot, Subscription, Wish};
/// use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
///
/// let mut stream = Subscription::new(Arc::new(Snapshot::default()));
/// let url = "type.googleapis.com/x.Y";
/// assert_eq!(stream.wish(url), None);
/// stream.handle_request(DiscoveryRequest {
///     type_url: url.into(),
///     resource_names: vec!["a".into()],
///     ..Default::default()
/// });
/// assert_eq!(stream.wish(url), Some(Wish { wildcard: false, resources: 1, waiting: 1 }));
/// stream.poll_response();
/// assert_eq!(stream.wish(url), Some(Wish { wildcard: false, resources: 1, waiting: 0 }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// True if the client wants all resources of the type.
    pub wildcard: bool,
    /// The number of resources that it wants. Named ones that do not exist count too.
    pub resources: usize,
    /// The number of resources to look at before the next response. Some may turn out to be the same.
    pub waiting: usize,
}

/// A resource that a client wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The name of the resource.
    pub name: Arc<str>,
    /// The version that the client was sent, or that it said it has; `None` if there is none.
    pub sent: Option<Arc<str>>,
    /// The resource in the snapshot; `None` if it does not exist.
    pub resource: Option<Arc<SnapshotResource>>,
    /// True if the client is not sent the resource yet, or not told that it is gone.
    pub waiting: bool,
}

/// A resource in a response, and the version that the client was sent before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The name of the resource.
    pub name: &'a Arc<str>,
    /// The version in the response.
    pub version: &'a Arc<str>,
    /// The version that the client was sent before, or said it has; `None` if there is none.
    pub before: Option<&'a Arc<str>>,
}

impl Delivery<'_> {
    /// True if the client did not have this version.
    pub fn is_new(&self) -> bool {
        self.before != Some(self.version)
    }
}

/// The number of resources that a client wants.
pub(super) fn count(
    wildcard: bool,
    names: &SortedSet<Arc<str>>,
    available: Option<&TypeSnapshot>,
) -> usize {
    if !wildcard {
        return names.len();
    }
    let resources = available.map(TypeSnapshot::resources);
    let exists = |name: &&Arc<str>| resources.is_some_and(|of| of.contains_key(name));
    let is_missing = |name: &&Arc<str>| !exists(name) && &***name != super::WILDCARD;
    resources.map_or(0, NamedResources::len) + names.keys().filter(is_missing).count()
}

/// The names that a client wants, and those in `held`.
pub(super) fn names<'a>(
    wildcard: bool,
    names: &'a SortedSet<Arc<str>>,
    held: impl Iterator<Item = &'a Arc<str>>,
    available: Option<&'a TypeSnapshot>,
) -> BTreeSet<&'a Arc<str>> {
    let mut all: BTreeSet<_> = names.keys().chain(held).collect();
    if wildcard {
        let resources = available.map(TypeSnapshot::resources);
        all.extend(resources.into_iter().flat_map(NamedResources::keys));
    }
    all.retain(|name| &***name != super::WILDCARD);
    all
}
