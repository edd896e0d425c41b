//! Names that lead nowhere.
//!
//! A cluster whose endpoints are not there is not an error (they may be served by someone else, or
//! come with the next change), but its clients will wait in vain; so it is worth a warning.

use std::fmt;

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

/// A resource that refers to one which the snapshot does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dangling {
    from: String,
    to: String,
}

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} refers to {}, which does not exist",
            self.from, self.to
        )
    }
}

/// Every such reference in a snapshot.
pub(crate) fn dangling(snapshot: &Snapshot) -> Vec<Dangling> {
    let mut found = Vec::new();
    check::<Listener, RouteConfig, _>(snapshot, route_configs_of, &mut found);
    check::<RouteConfig, Cluster, _>(snapshot, clusters_of, &mut found);
    check::<Cluster, Endpoints, _>(snapshot, endpoints_of, &mut found);
    check::<Cluster, Cluster, _>(snapshot, children_of, &mut found);
    check::<Cluster, ClusterConfig, _>(snapshot, list_of, &mut found);
    check::<ClusterConfig, Cluster, _>(snapshot, clusters_in, &mut found);
    found
}

fn check<From: ResourceType, To: ResourceType, M: Message + Default>(
    snapshot: &Snapshot,
    references: impl Fn(&M) -> Vec<String>,
    found: &mut Vec<Dangling>,
) {
    let Some(of_type) = snapshot.of(From::TYPE_URL) else {
        return;
    };
    for (name, resource) in of_type.resources() {
        let Ok(message) = M::decode(resource.any.value.as_slice()) else {
            continue;
        };
        for target in references(&message) {
            if snapshot.resource(To::TYPE_URL, &target).is_none() {
                found.push(Dangling {
                    from: format!("{} `{name}`", From::NOUN),
                    to: format!("{} `{target}`", To::NOUN),
                });
            }
        }
    }
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
