//! From the catalog to xDS: a pure function.
//!
//! Each service becomes four resources of its own name: an API listener, its routes, a cluster and
//! the cluster's endpoints. They are made so that gRPC clients and Envoys read the same thing out
//! of them.
//!
//! With fallbacks, the cluster is an aggregate (gRFC A37), so whoever is routed to the service, or
//! names it as a fallback, gets its endpoints first and then its fallbacks. The endpoints are then
//! those of one more cluster, `NAME/endpoints`, and each DNS name is a cluster `dns:HOST:PORT`.

mod clusters;

use std::collections::{BTreeSet, HashMap, HashSet};

use crowfly_model::grpc::cluster::DnsName;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType};
use crowfly_xds::{Snapshot, SnapshotBuilder};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;

use crate::catalog::{Catalog, Origin};
use crate::error::{ConfigError, ConfigErrors};
use crate::fallback::{Fallback, ListForm};
use crate::service::{Endpoint, Health, Locality, Service};

const HCM: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// The resources of a catalog.
///
/// A name that two entries claim is an error, and so is a service whose resources gRPC would
/// refuse: that is found here, not by the clients.
pub fn translate(catalog: &Catalog) -> Result<Snapshot, ConfigErrors> {
    let mut translation = Translation::default();
    for entry in &catalog.services {
        translation.service(&entry.value, &entry.origin);
    }
    for entry in &catalog.resources {
        let resource = &entry.value;
        let any = resource.any.clone();
        translation.add(&resource.name, any, resource.wrapped, &entry.origin);
    }
    ConfigErrors::check(translation.errors, translation.builder.build())
}

#[derive(Default)]
struct Translation<'a> {
    builder: SnapshotBuilder,
    origins: HashMap<(String, String), &'a Origin>,
    /// Those that have their cluster.
    dns_names: HashSet<&'a DnsName>,
    errors: Vec<ConfigError>,
}

impl<'a> Translation<'a> {
    fn service(&mut self, service: &'a Service, origin: &'a Origin) {
        let name = &service.name;
        self.named::<Listener>(name, &listener_of(service), origin);
        self.named::<RouteConfig>(name, &routes_of(service), origin);
        self.named::<Cluster>(name, &clusters::of_service(service), origin);
        self.named::<Endpoints>(name, &endpoints_of(service), origin);
        if let Some(own) = clusters::own_of(service) {
            self.named::<Cluster>(&own.name, &own, origin);
        }
        if service.fallback_as == ListForm::Resource {
            let list = self.checked::<ClusterConfig>(&clusters::list_of(service), origin);
            self.add(name, list, true, origin);
        }
        for fallback in &service.fallback {
            if let Fallback::Dns(name) = fallback
                && self.dns_names.insert(name)
            {
                let cluster = clusters::of_dns(name);
                self.named::<Cluster>(&cluster.name, &cluster, origin);
            }
        }
    }

    /// Adds a resource whose message holds its name.
    fn named<R: ResourceType<Context = Features>>(
        &mut self,
        name: &str,
        message: &impl Message,
        origin: &'a Origin,
    ) {
        let any = self.checked::<R>(message, origin);
        self.add(name, any, false, origin);
    }

    fn checked<R: ResourceType<Context = Features>>(
        &mut self,
        message: &impl Message,
        origin: &Origin,
    ) -> Any {
        let value = message.encode_to_vec();
        if let Err(errors) = R::parse(&value, &Features::ALL).value {
            let message = format!(
                "gRPC would refuse the {} of this service: {errors}",
                R::NOUN
            );
            self.errors.push(origin.error(message));
        }
        Any {
            type_url: R::TYPE_URL.to_owned(),
            value,
        }
    }

    fn add(&mut self, name: &str, any: Any, wrapped: bool, origin: &'a Origin) {
        let key = (any.type_url.clone(), name.to_owned());
        let added = if wrapped {
            self.builder.add_wrapped(name, any)
        } else {
            self.builder.add(name, any)
        };
        if added.is_ok() {
            self.origins.insert(key, origin);
            return;
        }
        let mut message = format!("resource `{name}` of type {} is defined twice", key.0);
        if let Some(first) = self.origins.get(&key) {
            message.push_str(&format!("; first at {first}"));
        }
        self.errors.push(origin.error(message));
    }
}

fn listener_of(service: &Service) -> listener::Listener {
    let routes = hcm::Rds {
        config_source: Some(ads()),
        route_config_name: service.name.clone(),
    };
    let router = hcm::HttpFilter {
        name: "router".to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(packed(
            ROUTER,
            &Router::default(),
        ))),
        ..hcm::HttpFilter::default()
    };
    let manager = hcm::HttpConnectionManager {
        stat_prefix: service.name.clone(),
        http_filters: vec![router],
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(routes)),
        ..hcm::HttpConnectionManager::default()
    };
    listener::Listener {
        name: service.name.clone(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(packed(HCM, &manager)),
        }),
        ..listener::Listener::default()
    }
}

/// The listener's name has picked the service already, so any `:authority` is welcome: a client
/// may set its own.
fn routes_of(service: &Service) -> route::RouteConfiguration {
    let action = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            service.name.clone(),
        )),
        ..route::RouteAction::default()
    };
    let everything = route::Route {
        r#match: Some(route::RouteMatch {
            path_specifier: Some(route::route_match::PathSpecifier::Prefix(String::from("/"))),
            ..route::RouteMatch::default()
        }),
        action: Some(route::route::Action::Route(action)),
        ..route::Route::default()
    };
    route::RouteConfiguration {
        name: service.name.clone(),
        virtual_hosts: vec![route::VirtualHost {
            name: service.name.clone(),
            domains: vec!["*".to_owned()],
            routes: vec![everything],
            ..route::VirtualHost::default()
        }],
        ..route::RouteConfiguration::default()
    }
}

/// gRPC asks for priorities without a gap, and leaves out a locality of weight 0, which Envoy
/// refuses; so it is left out here, and the priorities that remain are numbered anew.
fn endpoints_of(service: &Service) -> endpoint::ClusterLoadAssignment {
    let mut localities = service.localities();
    localities.retain(|locality| locality.weight > 0);
    let priorities: BTreeSet<u32> = localities.iter().map(|l| l.priority).collect();
    let ranks: HashMap<u32, u32> = priorities.into_iter().zip(0..).collect();
    endpoint::ClusterLoadAssignment {
        cluster_name: service.name.clone(),
        endpoints: localities
            .iter()
            .map(|locality| locality_of(locality, ranks[&locality.priority]))
            .collect(),
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn locality_of(locality: &Locality, priority: u32) -> endpoint::LocalityLbEndpoints {
    endpoint::LocalityLbEndpoints {
        locality: Some(core::Locality {
            region: locality.region.clone(),
            zone: locality.zone.clone(),
            sub_zone: locality.sub_zone.clone(),
        }),
        lb_endpoints: locality.endpoints.iter().map(endpoint_of).collect(),
        load_balancing_weight: Some(UInt32Value {
            value: locality.weight,
        }),
        priority,
        ..endpoint::LocalityLbEndpoints::default()
    }
}

fn endpoint_of(source: &Endpoint) -> endpoint::LbEndpoint {
    let health = match source.health {
        Health::Draining => core::HealthStatus::Draining,
        Health::Healthy => core::HealthStatus::Healthy,
        Health::Unhealthy => core::HealthStatus::Unhealthy,
        Health::Unknown => core::HealthStatus::Unknown,
    };
    let address = core::SocketAddress {
        address: source.address.ip().to_string(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
            source.address.port().into(),
        )),
        ..core::SocketAddress::default()
    };
    endpoint::LbEndpoint {
        health_status: health.into(),
        load_balancing_weight: Some(UInt32Value {
            value: source.weight.get(),
        }),
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(
            endpoint::Endpoint {
                address: Some(core::Address {
                    address: Some(core::address::Address::SocketAddress(address)),
                }),
                ..endpoint::Endpoint::default()
            },
        )),
        ..endpoint::LbEndpoint::default()
    }
}

fn ads() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        resource_api_version: core::ApiVersion::V3.into(),
        ..core::ConfigSource::default()
    }
}

fn packed(message_name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{message_name}"),
        value: message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests;
