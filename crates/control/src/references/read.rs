//! Reads the references of one resource.
//!
//! Resources of services and raw resources are read in the same way, as messages, because clients follow the
//! references of both. A message that cannot be decoded has none.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::Any;
use hcm::http_connection_manager::RouteSpecifier;
use prost::Message;
use route::route_action::ClusterSpecifier;

use super::Reference;
use crate::aggregate::Children;
use crate::translate::ResourceKey;

/// True if gRPC clients can begin at this resource: it is an API listener, whose name is that of a target.
pub(super) fn is_root(any: &Any) -> bool {
    any.type_url == Listener::TYPE_URL
        && listener::Listener::decode(any.value.as_slice())
            .is_ok_and(|listener| listener.api_listener.is_some())
}

/// The references of one resource. A message that cannot be read has none.
pub(super) fn references_of(any: &Any) -> Vec<Reference> {
    let mut found = Vec::new();
    match any.type_url.as_str() {
        Listener::TYPE_URL => {
            add::<Listener, RouteConfig, _>(0, any, route_configs_of, &mut found);
            add::<Listener, Cluster, _>(0, any, clusters_of_inline_routes, &mut found);
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
    let names = routes_of(listener).filter_map(|routes| match routes {
        RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
        _ => None,
    });
    names.collect()
}

fn clusters_of_inline_routes(listener: &listener::Listener) -> Vec<String> {
    let clusters = routes_of(listener).map(|routes| match routes {
        RouteSpecifier::RouteConfig(config) => clusters_of(&config),
        _ => Vec::new(),
    });
    clusters.flatten().collect()
}

/// The routes of all HTTP connection managers of a listener.
fn routes_of(listener: &listener::Listener) -> impl Iterator<Item = RouteSpecifier> {
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
    let managers = api.chain(filters);
    let managers = managers.filter(|any| any.type_url.ends_with(".HttpConnectionManager"));
    managers.filter_map(|any| {
        let manager = hcm::HttpConnectionManager::decode(any.value.as_slice()).ok()?;
        manager.route_specifier
    })
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
