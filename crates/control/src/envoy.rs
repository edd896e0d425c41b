//! The view of a snapshot for Envoys.
//!
//! One snapshot serves all clients, but Envoys and gRPC differ on some resources:
//!
//! - An Envoy takes all listeners, but has no use for the API listeners of gRPC. It logs a warning
//!   for each of them at every update. So they are left out.
//! - Listeners without an address are for node agents, and an Envoy refuses them. So they are left out,
//!   with the clusters that are made for agents.
//! - In an aggregate cluster gRPC accepts ROUND_ROBIN, and Envoy only CLUSTER_PROVIDED. So an
//!   aggregate without a policy (which means ROUND_ROBIN) is sent with CLUSTER_PROVIDED.
//! - Envoy does not support lists of clusters as resources (gRFC A99), and ignores an aggregate
//!   inside another one. So it is sent the leaves of each aggregate in the order of gRPC (gRFC
//!   A37): depth first, each leaf at its first place.
//! - gRPC finds certificates by the names of certificate providers, and Envoy by those of secrets.
//!   [`tls`] has the reasons.
//! - gRPC reads the idle timeout of sessions where an Envoy reads something else ([`upstream`]).
//! - gRPC has any number of drop categories, and Envoy one ([`drops`]).
//! - gRPC tries all addresses of a DNS name, and Envoy those of one family ([`dns`]).
//!
//! The leaves of an aggregate depend on other clusters. So the view keeps which aggregates name
//! which clusters. A change then costs a look at the changed resources and the aggregates above
//! them, not at all clusters.

mod dns;
mod drops;
mod tls;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener};
use crowfly_xds::{Snapshot, SnapshotBuilder, SnapshotResource};
use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, LbPolicy,
};
use envoy_types::pb::envoy::config::listener::v3::Listener as ListenerProto;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig as ListProto;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use crate::aggregate::Children;
use crate::canonical;
use crate::translate::cluster_ip;

/// The snapshot that Envoys are served, and the indexes that are needed to follow the next change.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvoyView {
    /// The snapshot that the view was made from.
    of: Arc<Snapshot>,
    view: Arc<Snapshot>,
    aggregates: BTreeMap<Arc<str>, Aggregate>,
    /// For each cluster, the aggregates that name it.
    parents: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// For each list that is a resource, the clusters that refer to it, even if it does not exist.
    readers: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// The name of the list of each of those clusters.
    lists: BTreeMap<Arc<str>, String>,
    /// The number of resources that were looked at so far.
    looked_at: usize,
}

impl EnvoyView {
    /// The number of resources that were looked at so far.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Updates the view to the next snapshot, and returns it. A resource that is made for Envoys is that of `twin`, if
    /// they are equal.
    pub(crate) fn follow(&mut self, snapshot: &Arc<Snapshot>, twin: &Snapshot) -> Arc<Snapshot> {
        let before = std::mem::replace(&mut self.of, Arc::clone(snapshot));
        let mut draft = Draft {
            builder: self.view.to_builder(),
            snapshot,
            twin,
        };
        let mut clusters = BTreeSet::new();
        for (url, names) in snapshot.changes_since(&before) {
            self.looked_at += names.len();
            for name in &*names {
                match url {
                    Cluster::TYPE_URL => {
                        clusters.insert(Arc::clone(name));
                    }
                    ClusterConfig::TYPE_URL => {
                        clusters.extend(self.readers.get(&**name).into_iter().flatten().cloned());
                        draft.copy(url, name);
                    }
                    Endpoints::TYPE_URL => draft.copy_endpoints(name),
                    _ => draft.copy(url, name),
                }
            }
        }
        for name in self.read(clusters, snapshot) {
            self.looked_at += 1;
            match self.aggregates.get(&name) {
                Some(aggregate) => {
                    let leaves = self.leaves_of(&name, aggregate);
                    let before = snapshot.resource(Cluster::TYPE_URL, &name);
                    let mut resource = in_place_of(before, aggregate.for_envoy(leaves));
                    resource.wrapped = false;
                    draft.put(&name, resource);
                }
                None => draft.copy_cluster(&name),
            }
        }
        self.view = Arc::new(draft.builder.build());
        Arc::clone(&self.view)
    }

    /// Reads clusters again. Returns them, and the aggregates whose leaves may have changed.
    fn read(&mut self, clusters: BTreeSet<Arc<str>>, snapshot: &Snapshot) -> BTreeSet<Arc<str>> {
        let mut open = Vec::new();
        for name in &clusters {
            let before = self.forget(name);
            self.learn(name, snapshot);
            let now = self
                .aggregates
                .get(name)
                .map(|aggregate| &aggregate.children);
            if before.map(|aggregate| aggregate.children).as_ref() != now {
                open.push(Arc::clone(name));
            }
        }
        let mut affected = clusters;
        let mut seen = HashSet::new();
        while let Some(name) = open.pop() {
            if seen.insert(Arc::clone(&name)) {
                open.extend(self.parents.get(&*name).into_iter().flatten().cloned());
                affected.insert(name);
            }
        }
        affected
    }

    fn forget(&mut self, name: &Arc<str>) -> Option<Aggregate> {
        let aggregate = self.aggregates.remove(name)?;
        for child in &aggregate.children {
            unlink(&mut self.parents, child, name);
        }
        Some(aggregate)
    }

    /// Adds a cluster to the indexes, if it is an aggregate whose list is known.
    fn learn(&mut self, name: &Arc<str>, snapshot: &Snapshot) {
        let resource = snapshot.resource(Cluster::TYPE_URL, name);
        let read =
            resource.and_then(|resource| ClusterProto::decode(resource.any.value.as_slice()).ok());
        let children = read.as_ref().and_then(Children::of);
        let list_name = match &children {
            Some(Children::Resource(list)) => Some(list.clone()),
            _ => None,
        };
        self.read_list(name, list_name);
        let (Some(mut cluster), Some(children)) = (read, children) else {
            return;
        };
        let Some(list) = list_of(children, snapshot) else {
            return;
        };
        // Only the wrapper may have had the name.
        cluster.name = name.to_string();
        for child in &list.clusters {
            let parents = self.parents.entry(child.clone()).or_default();
            parents.insert(Arc::clone(name));
        }
        let children = list.clusters;
        self.aggregates
            .insert(Arc::clone(name), Aggregate { cluster, children });
    }

    /// Notes the resource that holds the list of a cluster, or that there is none.
    fn read_list(&mut self, cluster: &Arc<str>, list: Option<String>) {
        let before = self.lists.remove(cluster);
        if let Some(before) = before {
            unlink(&mut self.readers, &before, cluster);
        }
        if let Some(list) = list {
            let readers = self.readers.entry(list.clone()).or_default();
            readers.insert(Arc::clone(cluster));
            self.lists.insert(Arc::clone(cluster), list);
        }
    }

    /// The leaves of an aggregate. Raw resources may nest to any depth, and in circles.
    fn leaves_of(&self, root: &str, aggregate: &Aggregate) -> Vec<String> {
        let mut leaves = Vec::new();
        let mut seen = HashSet::new();
        let mut open = vec![root];
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            match self.aggregates.get(name) {
                Some(aggregate) => open.extend(aggregate.children.iter().rev().map(String::as_str)),
                None => leaves.push(name.to_owned()),
            }
        }
        if leaves.is_empty() {
            // Envoy refuses an empty list, and serves nothing of a list in a circle.
            leaves.clone_from(&aggregate.children);
        }
        leaves
    }
}

/// The list of an aggregate, if it exists and can be decoded.
fn list_of(children: Children, snapshot: &Snapshot) -> Option<ListProto> {
    match children {
        Children::Inline(list) => Some(list),
        Children::Resource(name) => {
            let resource = snapshot.resource(ClusterConfig::TYPE_URL, &name)?;
            ListProto::decode(resource.any.value.as_slice()).ok()
        }
    }
}

/// The next snapshot for Envoys, while it is made.
struct Draft<'a> {
    builder: SnapshotBuilder,
    /// The snapshot that it is made from.
    snapshot: &'a Snapshot,
    /// Another snapshot for Envoys, whose resources it shares.
    twin: &'a Snapshot,
}

impl Draft<'_> {
    /// Puts a resource that was made for Envoys.
    fn put(&mut self, name: &Arc<str>, resource: SnapshotResource) {
        let twins = self.twin.of(&resource.any.type_url);
        let twin = twins.and_then(|of| of.resources().get(name));
        let twin = twin.filter(|twin| ***twin == resource).cloned();
        let resource = twin.unwrap_or_else(|| Arc::new(resource));
        self.builder.put(Arc::clone(name), resource);
    }

    /// Copies a cluster that is not an aggregate, in Envoy's form.
    fn copy_cluster(&mut self, name: &Arc<str>) {
        let resource = self.snapshot.resource(Cluster::TYPE_URL, name);
        match resource.and_then(adapted_cluster) {
            Some(resource) => self.put(name, resource),
            None => self.copy(Cluster::TYPE_URL, name),
        }
    }

    fn copy_endpoints(&mut self, name: &Arc<str>) {
        let resource = self.snapshot.resource(Endpoints::TYPE_URL, name);
        match resource.and_then(adapted_endpoints) {
            Some(resource) => self.put(name, resource),
            None => self.copy(Endpoints::TYPE_URL, name),
        }
    }

    /// Copies a resource unchanged, unless no Envoy can use it.
    fn copy(&mut self, url: &str, name: &Arc<str>) {
        let resource = self.snapshot.of(url);
        let resource = resource.and_then(|of| of.resources().get(name));
        match resource.filter(|resource| is_for_envoys(url, name, resource)) {
            Some(resource) => self.builder.put(Arc::clone(name), Arc::clone(resource)),
            None => {
                self.builder.remove(url, name);
            }
        }
    }
}

/// A cluster in Envoy's form; `None` if it needs no change.
fn adapted_cluster(resource: &SnapshotResource) -> Option<SnapshotResource> {
    let mut cluster = ClusterProto::decode(resource.any.value.as_slice()).ok()?;
    let has_changed = [
        dns::adapt(&mut cluster),
        tls::adapt(&mut cluster),
        upstream::adapt(&mut cluster),
    ];
    let is_changed = has_changed.contains(&true);
    is_changed.then(|| replaced::<Cluster>(resource, &cluster))
}

/// Endpoints in Envoy's form; `None` if they need no change.
fn adapted_endpoints(resource: &SnapshotResource) -> Option<SnapshotResource> {
    let endpoints = drops::adapted(&resource.any.value)?;
    Some(replaced::<Endpoints>(resource, &endpoints))
}

/// The resource with another message.
fn replaced<R: ResourceType>(
    resource: &SnapshotResource,
    message: &impl Message,
) -> SnapshotResource {
    let any = Any {
        type_url: R::TYPE_URL.to_owned(),
        value: message.encode_to_vec(),
    };
    in_place_of(Some(resource), canonical::normalized(any))
}

/// The resource that Envoys are sent in place of another, with its time to live.
fn in_place_of(before: Option<&SnapshotResource>, any: Any) -> SnapshotResource {
    let resource = SnapshotResource::new(any, before.is_some_and(|before| before.wrapped));
    match before.and_then(|before| before.ttl) {
        Some(ttl) => resource.with_ttl(ttl),
        None => resource,
    }
}

fn unlink(index: &mut BTreeMap<String, BTreeSet<Arc<str>>>, to: &str, from: &Arc<str>) {
    if let Some(all) = index.get_mut(to) {
        all.remove(from);
        if all.is_empty() {
            index.remove(to);
        }
    }
}

/// An aggregate whose list is known.
#[derive(Clone, Debug)]
struct Aggregate {
    cluster: ClusterProto,
    children: Vec<String>,
}

impl Aggregate {
    fn for_envoy(&self, leaves: Vec<String>) -> Any {
        let mut cluster = self.cluster.clone();
        if cluster.lb_policy == LbPolicy::RoundRobin as i32 {
            cluster.lb_policy = LbPolicy::ClusterProvided.into();
        }
        let list = ListProto { clusters: leaves };
        cluster.cluster_discovery_type =
            Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
                name: "envoy.clusters.aggregate".to_owned(),
                typed_config: Some(Any {
                    type_url: ClusterConfig::TYPE_URL.to_owned(),
                    value: list.encode_to_vec(),
                }),
            }));
        canonical::normalized(Any {
            type_url: Cluster::TYPE_URL.to_owned(),
            value: cluster.encode_to_vec(),
        })
    }
}

/// False for API listeners, listeners without an address to listen at, and all that is made for node agents.
fn is_for_envoys(type_url: &str, name: &str, resource: &SnapshotResource) -> bool {
    if name.starts_with(cluster_ip::PREFIX) {
        return false;
    }
    if type_url != Listener::TYPE_URL {
        return true;
    }
    let listener = ListenerProto::decode(resource.any.value.as_slice());
    listener.map_or(true, |listener| {
        let has_place = listener.address.is_some() || listener.listener_specifier.is_some();
        listener.api_listener.is_none() && has_place
    })
}

#[cfg(test)]
pub(crate) mod tests;
