//! Valid messages, which tests spoil one field at a time. An error then comes from that field
//! alone.

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{
                    ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig,
                },
            },
            core::v3::{
                self as core, Address, AggregatedConfigSource, ConfigSource, SelfConfigSource,
                SocketAddress, address, config_source::ConfigSourceSpecifier, socket_address,
            },
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
            },
            listener::v3::{ApiListener, Listener},
            route::v3::{
                Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
                route_action::ClusterSpecifier, route_match::PathSpecifier,
            },
        },
        extensions::clusters::aggregate::v3::ClusterConfig,
        extensions::filters::{
            http::router::v3::Router,
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
                http_filter::ConfigType,
            },
        },
    },
    google::protobuf::{self, Any, Struct, UInt32Value, value::Kind},
};
use prost::{Message, Name};

pub(crate) fn any<P: Message + Name>(proto: &P) -> Any {
    Any {
        type_url: P::type_url(),
        value: proto.encode_to_vec(),
    }
}

pub(crate) fn ads() -> ConfigSource {
    source(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}))
}

pub(crate) fn self_source() -> ConfigSource {
    source(ConfigSourceSpecifier::Self_(SelfConfigSource::default()))
}

pub(crate) fn file_source() -> ConfigSource {
    source(ConfigSourceSpecifier::PathConfigSource(
        core::PathConfigSource::default(),
    ))
}

fn source(specifier: ConfigSourceSpecifier) -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(specifier),
        ..ConfigSource::default()
    }
}

/// An API listener around `manager`.
pub(crate) fn listener(manager: &HttpConnectionManager) -> Listener {
    Listener {
        name: "payments".to_owned(),
        api_listener: Some(ApiListener {
            api_listener: Some(any(manager)),
        }),
        ..Listener::default()
    }
}

/// Routes by RDS; the router is the only filter.
pub(crate) fn manager() -> HttpConnectionManager {
    HttpConnectionManager {
        http_filters: vec![filter("router", any(&Router::default()))],
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads()),
            route_config_name: "payments-routes".to_owned(),
        })),
        ..HttpConnectionManager::default()
    }
}

pub(crate) fn filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}

/// The message `name` as a `TypedStruct` of either package, with text fields.
pub(crate) fn typed_struct(wrapper: &str, name: &str, fields: &[(&str, &str)]) -> Any {
    #[derive(Clone, PartialEq, Message)]
    struct TypedStruct {
        #[prost(string, tag = "1")]
        type_url: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Struct>,
    }
    let text = |text: &str| protobuf::Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), text(value)));
    let message = TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: Some(Struct {
            fields: fields.collect(),
        }),
    };
    Any {
        type_url: format!("type.googleapis.com/{wrapper}"),
        value: message.encode_to_vec(),
    }
}

/// One virtual host for `*` with one route for everything.
pub(crate) fn route_config() -> RouteConfiguration {
    RouteConfiguration {
        name: "payments-routes".to_owned(),
        virtual_hosts: vec![virtual_host("all", &["*"], vec![route("", "payments")])],
        ..RouteConfiguration::default()
    }
}

pub(crate) fn virtual_host(name: &str, domains: &[&str], routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name: name.to_owned(),
        domains: domains.iter().map(ToString::to_string).collect(),
        routes,
        ..VirtualHost::default()
    }
}

pub(crate) fn route(prefix: &str, cluster: &str) -> Route {
    Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(prefix.to_owned())),
            ..RouteMatch::default()
        }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
            ..RouteAction::default()
        })),
        ..Route::default()
    }
}

pub(crate) fn cluster() -> Cluster {
    Cluster {
        name: "payments".to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ads()),
            service_name: String::new(),
        }),
        ..Cluster::default()
    }
}

/// A cluster that is the host name `host` with port 443.
pub(crate) fn logical_dns() -> Cluster {
    Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns as i32)),
        eds_cluster_config: None,
        load_assignment: Some(ClusterLoadAssignment {
            endpoints: vec![locality("", 0, vec![endpoint("host", 443)])],
            ..ClusterLoadAssignment::default()
        }),
        ..cluster()
    }
}

/// A cluster that stands for `a` and `b`.
pub(crate) fn aggregate() -> Cluster {
    let clusters = vec!["a".to_owned(), "b".to_owned()];
    of_type(any(&ClusterConfig { clusters }))
}

/// A cluster of an extension type, which `config` configures.
pub(crate) fn of_type(config: Any) -> Cluster {
    let custom = CustomClusterType {
        name: "whatever".to_owned(),
        typed_config: Some(config),
    };
    Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
        eds_cluster_config: None,
        ..cluster()
    }
}

/// Two localities in priority 0 and one in priority 1, with an endpoint each.
pub(crate) fn assignment() -> ClusterLoadAssignment {
    ClusterLoadAssignment {
        cluster_name: "payments".to_owned(),
        endpoints: vec![
            locality("b", 0, vec![endpoint("10.0.0.2", 80)]),
            locality("a", 0, vec![endpoint("10.0.0.1", 80)]),
            locality("c", 1, vec![endpoint("::1", 80)]),
        ],
        ..ClusterLoadAssignment::default()
    }
}

pub(crate) fn locality(
    zone: &str,
    priority: u32,
    lb_endpoints: Vec<LbEndpoint>,
) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(core::Locality {
            region: "eu".to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }),
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        priority,
        lb_endpoints,
        ..LocalityLbEndpoints::default()
    }
}

pub(crate) fn endpoint(ip: &str, port: u32) -> LbEndpoint {
    LbEndpoint {
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(Endpoint {
            address: Some(address(ip, port)),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    }
}

pub(crate) fn address(ip: &str, port: u32) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: ip.to_owned(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..SocketAddress::default()
        })),
    }
}
