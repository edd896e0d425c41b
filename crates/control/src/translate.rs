//! Turns definitions of the catalog into xDS, by pure functions, one definition at a time.
//!
//! Each service becomes four resources with its name: an API listener, its routes, a cluster and
//! the endpoints of the cluster. They are made so that gRPC clients and Envoys read the same
//! meaning.
//!
//! With fallbacks, the cluster is an aggregate (gRFC A37). A client that is routed to it uses the
//! endpoints of the service first and then its fallbacks. The endpoints belong to one more cluster,
//! `NAME/endpoints`, and each DNS name is a cluster `dns:HOST:PORT`.
//!
//! With ClusterIPs, a service has resources for node agents as well ([`cluster_ip`]).
//!
//! The resources of a service depend on that service alone. So a change of one service costs the
//! translation of that one, and the resources of the others stay.

pub(crate) mod cluster_ip;
mod clusters;
mod faults;
mod listener;
mod matchers;
mod outlier;
mod routes;
mod security;
mod sessions;

pub(crate) use clusters::{is_of_dns, service_of_cluster};
pub(crate) use routes::duration;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_source::yaml::{ConfigError, ConfigErrors};
use crowfly_xds::{Snapshot, SnapshotResource, spelled};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::{Message, Name};

use crate::canonical;
use crate::catalog::{Catalog, Definition, Origin};
use crate::door::{self, Refusal};
use crate::fallback::{Fallback, ListForm};
use crate::raw::RawResource;
use crate::service::drops::Drops;
use crate::service::{Endpoint, Health, Locality, Service, Treatment};

/// The resources of a catalog.
///
/// A name that two definitions claim is an error. A resource that gRPC clients would refuse is an
/// error too, if such a client can come to it. So it is found here and not by the clients.
pub fn translate(catalog: &Catalog) -> Result<Snapshot, ConfigErrors> {
    let written = catalog.written();
    let translated: Vec<_> = written
        .iter()
        .map(|(_, definition, origin)| (Arc::new(Translated::new(definition)), *origin))
        .collect();
    check(&translated)?;
    let mut builder = Snapshot::builder();
    for (translated, _) in &translated {
        for made in &translated.resources {
            builder.put(Arc::clone(&made.key.name), Arc::clone(&made.resource));
        }
    }
    let snapshot = builder.build();
    door::check(&snapshot, &translated, catalog)?;
    Ok(snapshot)
}

/// All problems of translated definitions, in their order.
///
/// # Errors
/// If there is any.
pub(crate) fn check(all: &[(Arc<Translated>, &Origin)]) -> Result<(), ConfigErrors> {
    let mut first: HashMap<&ResourceKey, (&Origin, bool)> = HashMap::new();
    let mut errors = Vec::new();
    for (translated, origin) in all {
        for made in &translated.resources {
            let before = first.get(&made.key);
            // The cluster of a DNS name is shared by all services that list it.
            if made.is_shared && before.is_some_and(|(_, is_shared)| *is_shared) {
                continue;
            }
            match before {
                Some((first, _)) => errors.push(duplicate(&made.key, origin, first)),
                None => {
                    first.insert(&made.key, (origin, made.is_shared));
                }
            }
        }
    }
    ConfigErrors::check(errors, ())
}

fn duplicate(key: &ResourceKey, origin: &Origin, first: &Origin) -> ConfigError {
    let ResourceKey { type_url, name } = key;
    origin.error(format!(
        "resource `{name}` of type {type_url} is defined twice; first at {first}"
    ))
}

/// The type and the name of a resource. The name has the one spelling that all spellings of an `xdstp` name share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceKey {
    pub(crate) name: Arc<str>,
    pub(crate) type_url: Cow<'static, str>,
}

impl ResourceKey {
    pub(crate) fn new(type_url: &str, name: Arc<str>) -> Self {
        const KNOWN: [&str; 5] = [
            Cluster::TYPE_URL,
            ClusterConfig::TYPE_URL,
            Endpoints::TYPE_URL,
            Listener::TYPE_URL,
            RouteConfig::TYPE_URL,
        ];
        let known = KNOWN.into_iter().find(|known| *known == type_url);
        let type_url = known.map_or_else(|| Cow::Owned(type_url.to_owned()), Cow::Borrowed);
        let name = spelled(name);
        Self { name, type_url }
    }
}

/// The resources of one definition.
#[derive(Debug, PartialEq)]
pub(crate) struct Translated {
    /// The service, if it is one.
    pub(crate) service: Option<Arc<Service>>,
    pub(crate) resources: Vec<Made>,
}

/// A resource that a definition was translated to.
#[derive(Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) key: ResourceKey,
    pub(crate) resource: Arc<SnapshotResource>,
    /// True if other definitions may make the same resource.
    pub(crate) is_shared: bool,
    /// The reasons why gRPC clients would refuse the resource; `None` if they would not.
    pub(crate) refusal: Option<Arc<Refusal>>,
}

impl Translated {
    pub(crate) fn new(definition: &Definition) -> Self {
        match definition {
            Definition::Service(service) => Self {
                service: Some(Arc::clone(service)),
                resources: resources_of(service),
            },
            Definition::Resource(resource) => Self {
                service: None,
                resources: vec![Made::raw(resource)],
            },
            // A view is laid over the others, which its own module does.
            Definition::View(_) => Self {
                service: None,
                resources: Vec::new(),
            },
        }
    }

    /// True if the definition makes no resource twice.
    pub(crate) fn is_sound(&self) -> bool {
        let keys: BTreeSet<_> = self.resources.iter().map(|made| &made.key).collect();
        keys.len() == self.resources.len()
    }

    pub(crate) fn made(&self, key: &ResourceKey) -> Option<&Made> {
        self.resources.iter().find(|made| made.key == *key)
    }
}

impl Made {
    /// A resource whose message holds its name.
    fn named<R: ResourceType>(name: &str, message: &impl Message) -> Self {
        let any = Any {
            type_url: R::TYPE_URL.to_owned(),
            value: message.encode_to_vec(),
        };
        Self {
            key: ResourceKey::new(R::TYPE_URL, name.into()),
            refusal: Refusal::of_service(&any).map(Arc::new),
            resource: Arc::new(SnapshotResource::new(any, false)),
            is_shared: false,
        }
    }

    /// A resource for node agents, which gRPC does not ask for. Its maps are in the order of their keys.
    fn for_agents(name: &str, message: &impl Name) -> Self {
        let any = canonical::normalized(packed(message));
        Self {
            key: ResourceKey::new(&any.type_url, name.into()),
            resource: Arc::new(SnapshotResource::new(any, false)),
            is_shared: false,
            refusal: None,
        }
    }

    /// A resource whose message has no name field, so that it is sent in a wrapper.
    fn wrapped<R: ResourceType>(name: &str, message: &impl Message) -> Self {
        let mut made = Self::named::<R>(name, message);
        let any = made.resource.any.clone();
        made.resource = Arc::new(SnapshotResource::new(any, true));
        made
    }

    /// The resource with its maps in the order of their keys.
    fn in_order(mut self) -> Self {
        let any = canonical::normalized(self.resource.any.clone());
        self.resource = Arc::new(SnapshotResource::new(any, self.resource.wrapped));
        self
    }

    fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    fn raw(resource: &RawResource) -> Self {
        let RawResource {
            any, wrapped, ttl, ..
        } = resource;
        let mut made = SnapshotResource::new(any.clone(), *wrapped);
        if let Some(ttl) = *ttl {
            made = made.with_ttl(ttl);
        }
        Self {
            key: resource.key(),
            resource: Arc::new(made),
            is_shared: false,
            refusal: Refusal::of_raw(resource).map(Arc::new),
        }
    }
}

fn resources_of(service: &Service) -> Vec<Made> {
    let name = &service.name;
    let mut made = vec![
        Made::named::<Listener>(name, &listener::of_service(service)),
        routes_of(service),
        Made::named::<Cluster>(name, &clusters::of_service(service)),
        Made::named::<Endpoints>(name, &endpoints_of(service)),
    ];
    if let Some(own) = clusters::own_of(service) {
        made.push(Made::named::<Cluster>(&own.name, &own));
    }
    if service.fallback_as == ListForm::Resource {
        let list = clusters::list_of(service);
        made.push(Made::wrapped::<ClusterConfig>(name, &list));
    }
    for fallback in &service.fallback {
        if let Fallback::Dns(name) = fallback {
            let cluster = clusters::of_dns(service, name);
            let cluster = Made::named::<Cluster>(&cluster.name, &cluster);
            made.push(if clusters::has_own_dns(service) {
                cluster
            } else {
                cluster.shared()
            });
        }
    }
    made.append(&mut cluster_ip::of_service(service));
    made
}

/// The routes of a service. If a route has two filters, they are in a map, whose order is left to
/// chance.
fn routes_of(service: &Service) -> Made {
    let made = Made::named::<RouteConfig>(&service.name, &routes::of_service(service));
    let has_two =
        |treatment: Treatment<'_>| treatment.fault.is_some() && treatment.cookie.is_some();
    if service.treatments().any(has_two) {
        made.in_order()
    } else {
        made
    }
}

/// The endpoints of a service. A locality of weight 0 is left out, because gRPC ignores it and
/// Envoy refuses it. The remaining priorities are renumbered, because gRPC requires them without a
/// gap.
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
        policy: service.drops.as_ref().map(policy_of),
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn policy_of(drops: &Drops) -> endpoint::cluster_load_assignment::Policy {
    use endpoint::cluster_load_assignment::{Policy, policy::DropOverload};
    let drops = drops.0.iter().map(|(category, share)| DropOverload {
        category: category.clone(),
        drop_percentage: Some(matchers::fraction(*share)),
    });
    Policy {
        drop_overloads: drops.collect(),
        ..Policy::default()
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

pub(crate) fn ads() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        resource_api_version: core::ApiVersion::V3.into(),
        ..core::ConfigSource::default()
    }
}

fn packed<M: Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests;
