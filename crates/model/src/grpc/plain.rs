//! The resources of a channel without a control plane.
//!
//! A channel to a DNS name or to addresses has the same parts as one by xDS: a listener, a route and a cluster. This
//! module makes those parts as messages, and the parsers read them, so that every field has the value of an empty one.

use std::{net::SocketAddr, num::NonZeroU32};

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as cluster, CircuitBreakers, LoadBalancingPolicy,
                circuit_breakers::Thresholds,
                cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
                load_balancing_policy,
            },
            core::v3::{
                Address, AggregatedConfigSource, ConfigSource, SocketAddress, TypedExtensionConfig,
                address, config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
            },
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
                lb_endpoint::HostIdentifier,
            },
            listener::v3 as listener,
            route::v3::{
                Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
                route_action::ClusterSpecifier, route_match::PathSpecifier,
            },
        },
        extensions::{
            filters::{
                http::router::v3::Router,
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier,
                    http_filter::ConfigType,
                },
            },
            load_balancing_policies::{pick_first::v3::PickFirst, round_robin::v3::RoundRobin},
        },
    },
    google::protobuf::{Any, UInt32Value},
};
use prost::{Message, Name};

use super::{
    Cluster, Endpoints, Listener,
    cluster::DnsName,
    endpoints::{EdsEndpoint, EdsLocality, Health, LocalityId},
};
use crate::{Errors, Features, ResourceType};

/// The policies that a channel without a control plane can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainPolicy {
    /// One address is used, the first that can be reached.
    #[default]
    PickFirst,
    /// All addresses are used in turn.
    RoundRobin,
}

/// A listener whose calls all go to one cluster, both of this name.
///
/// ```
/// # use crowfly_model::grpc::{listener::ListenerKind, plain};
/// let listener = plain::listener("dns:///payments").unwrap();
/// assert!(matches!(listener.kind, ListenerKind::Api(_)));
/// ```
pub fn listener(name: &str) -> Result<Listener, Errors> {
    let route = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(String::new())),
            ..RouteMatch::default()
        }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(name.to_owned())),
            ..RouteAction::default()
        })),
        ..Route::default()
    };
    let host = VirtualHost {
        name: name.to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..VirtualHost::default()
    };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(RouteConfiguration {
            name: name.to_owned(),
            virtual_hosts: vec![host],
            ..RouteConfiguration::default()
        })),
        http_filters: vec![HttpFilter {
            name: "router".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(&Router::default()))),
            ..HttpFilter::default()
        }],
        ..HttpConnectionManager::default()
    };
    let proto = listener::Listener {
        name: name.to_owned(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(any(&manager)),
        }),
        ..listener::Listener::default()
    };
    Listener::parse(&proto.encode_to_vec(), &Features::default()).value
}

/// A cluster without a limit on calls. The addresses of the cluster are those of the host name, or are given.
///
/// ```
/// # use crowfly_model::grpc::plain::{self, PlainPolicy};
/// let cluster = plain::cluster("ipv4:10.0.0.1:80", None, PlainPolicy::RoundRobin).unwrap();
/// assert_eq!(cluster.eds_name(), Some("ipv4:10.0.0.1:80"));
/// ```
pub fn cluster(name: &str, dns: Option<&DnsName>, policy: PlainPolicy) -> Result<Cluster, Errors> {
    let kind = match dns {
        Some(_) => DiscoveryType::LogicalDns,
        None => DiscoveryType::Eds,
    };
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let policy = match policy {
        PlainPolicy::PickFirst => any(&PickFirst::default()),
        PlainPolicy::RoundRobin => any(&RoundRobin::default()),
    };
    let proto = cluster::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ConfigSource {
                config_source_specifier: Some(ads),
                ..ConfigSource::default()
            }),
            service_name: String::new(),
        }),
        load_assignment: dns.map(assignment),
        load_balancing_policy: Some(LoadBalancingPolicy {
            policies: vec![load_balancing_policy::Policy {
                typed_extension_config: Some(TypedExtensionConfig {
                    name: "policy".to_owned(),
                    typed_config: Some(policy),
                }),
            }],
        }),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                max_requests: Some(UInt32Value { value: u32::MAX }),
                ..Thresholds::default()
            }],
            ..CircuitBreakers::default()
        }),
        ..cluster::Cluster::default()
    };
    Cluster::parse(&proto.encode_to_vec(), &Features::default()).value
}

/// Endpoints with one address each, all alike.
///
/// ```
/// # use crowfly_model::grpc::plain;
/// let two = plain::endpoints("payments", &["10.0.0.1:80".parse()?, "10.0.0.2:80".parse()?]);
/// assert_eq!(two.priorities[0][0].endpoints.len(), 2);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn endpoints(name: &str, addresses: &[SocketAddr]) -> Endpoints {
    let endpoints = addresses.iter().map(|address| EdsEndpoint {
        addresses: vec![*address],
        weight: NonZeroU32::MIN,
        health: Health::Unknown,
        hash_key: None,
        hostname: None,
    });
    Endpoints {
        name: name.to_owned(),
        priorities: vec![vec![EdsLocality {
            id: LocalityId::default(),
            weight: NonZeroU32::MIN,
            endpoints: endpoints.collect(),
        }]],
        drops: Vec::new(),
        unsupported: Box::default(),
    }
}

fn assignment(dns: &DnsName) -> ClusterLoadAssignment {
    let address = SocketAddress {
        address: dns.host.clone(),
        port_specifier: Some(PortSpecifier::PortValue(dns.port.into())),
        ..SocketAddress::default()
    };
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(Address {
                address: Some(address::Address::SocketAddress(address)),
            }),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    };
    ClusterLoadAssignment {
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: vec![endpoint],
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    }
}

fn any<P: Message + Name>(proto: &P) -> Any {
    Any {
        type_url: P::type_url(),
        value: proto.encode_to_vec(),
    }
}
