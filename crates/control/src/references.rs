//! Finds references to resources that do not exist.
//!
//! A cluster without its endpoints is not an error, because another server may have them, or the
//! next change may add them. But its clients wait for them, so it is worth a warning.
//!
//! The references of each resource are kept, so that a change costs little. Only the resources that
//! changed are checked, and those that refer to an added or removed one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use route::route_action::ClusterSpecifier;

use crate::aggregate::Children;
use crate::translate::ResourceKey;
use crate::views::Overlay;

/// A resource that refers to one that the snapshot does not have. The order is the one in which a
/// client follows references, from listeners down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dangling {
    rank: usize,
    name: Arc<str>,
    from: &'static str,
    nth: usize,
    to: String,
}

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, from, to, .. } = self;
        write!(f, "{from} `{name}` refers to {to}, which does not exist")
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
}

/// One reference of a resource.
#[derive(Debug)]
struct Reference {
    rank: usize,
    from: &'static str,
    noun: &'static str,
    to: ResourceKey,
}

impl References {
    /// Updates the references from one snapshot to the next.
    pub(crate) fn update(&mut self, before: &Snapshot, after: &Snapshot) {
        let mut suspects = BTreeSet::new();
        for (url, names) in after.changes_since(before) {
            for name in &*names {
                let key = ResourceKey::new(url, Arc::clone(name));
                self.replace(&key, after);
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

    fn replace(&mut self, key: &ResourceKey, snapshot: &Snapshot) {
        for reference in self.of.remove(key).into_iter().flatten() {
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
        name: Arc::clone(&key.name),
        from: reference.from,
        nth,
        to: format!("{} `{}`", reference.noun, reference.to.name),
    })
}

/// The references of one resource. A message that cannot be read has none.
fn references_of(any: &Any) -> Vec<Reference> {
    let mut found = Vec::new();
    match any.type_url.as_str() {
        Listener::TYPE_URL => {
            add::<Listener, RouteConfig, _>(0, any, route_configs_of, &mut found);
        }
        RouteConfig::TYPE_URL => {
            add::<RouteConfig, Cluster, _>(1, any, clusters_of, &mut found);
        }
        Cluster::TYPE_URL => {
            add::<Cluster, Endpoints, _>(2, any, endpoints_of, &mut found);
            add::<Cluster, Cluster, _>(3, any, children_of, &mut found);
            add::<Cluster, ClusterConfig, _>(4, any, list_of, &mut found);
        }
        ClusterConfig::TYPE_URL => {
            add::<ClusterConfig, Cluster, _>(5, any, clusters_in, &mut found);
        }
        _ => {}
    }
    found
}

fn add<From: ResourceType, To: ResourceType, M: Message + Default>(
    rank: usize,
    any: &Any,
    references: impl Fn(&M) -> Vec<String>,
    found: &mut Vec<Reference>,
) {
    let Ok(message) = M::decode(any.value.as_slice()) else {
        return;
    };
    let references = references(&message).into_iter();
    found.extend(references.map(|name| Reference {
        rank,
        from: From::NOUN,
        noun: To::NOUN,
        to: ResourceKey::new(To::TYPE_URL, name.into()),
    }));
}

fn route_configs_of(listener: &listener::Listener) -> Vec<String> {
    let api = listener.api_listener.iter();
    let api = api.filter_map(|api| api.api_listener.as_ref());
    let chains = listener
        .filter_chains
        .iter()
        .chain(&listener.default_filter_chain);
    let filters = chains.flat_map(|chain| &chain.filters);
    let filters = filters.filter_map(|filter| match &filter.config_type {
        Some(listener::filter::ConfigType::TypedConfig(any)) => Some(any),
        _ => None,
    });
    api.chain(filters).filter_map(rds_name).collect()
}

fn rds_name(any: &Any) -> Option<String> {
    if !any.type_url.ends_with(".HttpConnectionManager") {
        return None;
    }
    let manager = hcm::HttpConnectionManager::decode(any.value.as_slice()).ok()?;
    match manager.route_specifier? {
        hcm::http_connection_manager::RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
        _ => None,
    }
}

fn clusters_of(config: &route::RouteConfiguration) -> Vec<String> {
    let routes = config.virtual_hosts.iter().flat_map(|host| &host.routes);
    let actions = routes.filter_map(|route| match &route.action {
        Some(route::route::Action::Route(action)) => action.cluster_specifier.as_ref(),
        _ => None,
    });
    let mut names: Vec<String> = actions.flat_map(names_of).collect();
    names.sort();
    names.dedup();
    names
}

fn names_of(clusters: &ClusterSpecifier) -> Vec<String> {
    match clusters {
        ClusterSpecifier::Cluster(name) => vec![name.clone()],
        ClusterSpecifier::WeightedClusters(weighted) => {
            let names = weighted.clusters.iter().map(|cluster| cluster.name.clone());
            names.filter(|name| !name.is_empty()).collect()
        }
        _ => Vec::new(),
    }
}

fn endpoints_of(cluster: &cluster::Cluster) -> Vec<String> {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType};
    let is_eds = matches!(
        cluster.cluster_discovery_type,
        Some(ClusterDiscoveryType::Type(kind)) if kind == DiscoveryType::Eds as i32
    );
    if !is_eds {
        return Vec::new();
    }
    let service_name = cluster
        .eds_cluster_config
        .as_ref()
        .map(|eds| &eds.service_name);
    let name = service_name.filter(|name| !name.is_empty());
    vec![name.unwrap_or(&cluster.name).clone()]
}

fn children_of(cluster: &cluster::Cluster) -> Vec<String> {
    match Children::of(cluster) {
        Some(Children::Inline(list)) => clusters_in(&list),
        _ => Vec::new(),
    }
}

fn list_of(cluster: &cluster::Cluster) -> Vec<String> {
    match Children::of(cluster) {
        Some(Children::Resource(name)) => vec![name],
        _ => Vec::new(),
    }
}

fn clusters_in(list: &aggregate::ClusterConfig) -> Vec<String> {
    list.clusters.clone()
}

/// All references of a snapshot to resources that do not exist.
#[cfg(test)]
pub(crate) fn dangling(snapshot: &Snapshot) -> Vec<Dangling> {
    let mut references = References::default();
    references.update(&Snapshot::default(), snapshot);
    references.dangling().cloned().collect()
}
