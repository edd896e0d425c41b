//! The ClusterIPs of a service, for node agents (CFP-30235).
//!
//! Each address is a Listener `cluster_ip:ADDRESS`, so that two services cannot have the same one. Each port is
//! a Cluster `cluster_ip:SERVICE:PORT/PROTOCOL` with endpoints of the same name. `docs/xds-mapping.md` has the
//! meaning of every field.

use std::net::IpAddr;

use crowfly_model::grpc::steps;
use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use envoy_types::pb::envoy::extensions::load_balancing_policies::random::v3::Random;
use envoy_types::pb::envoy::r#type::v3::{HashPolicy, hash_policy};
use envoy_types::pb::google::protobuf::{Any, Struct, UInt32Value, Value, value::Kind};

use super::{Made, ads, endpoints_of, packed};
use crate::service::cluster_ip::{
    ClientIpAffinity, InternalTrafficPolicy, ServicePort, TrafficDistribution,
};
use crate::service::{Endpoint, Service};

/// The beginning of the names of all resources for node agents.
pub(crate) const PREFIX: &str = "cluster_ip:";

/// The namespace of the metadata that agents read.
const METADATA: &str = "io.cilium.service";

/// The type of the struct with the rules of a cluster.
const TRAFFIC_POLICY: &str = "type.googleapis.com/cilium_io_traffic_policy";

/// The resources of a service for node agents. There are none if it has no ClusterIP.
pub(super) fn of_service(service: &Service) -> Vec<Made> {
    let mut made = Vec::new();
    for address in service.cluster_ips() {
        let listener = listener_of(service, address);
        made.push(Made::for_agents(&listener.name, &listener));
    }
    if made.is_empty() {
        return made;
    }
    for port in &service.ports {
        let cluster = cluster_of(service, port);
        made.push(Made::for_agents(&cluster.name, &cluster));
        let endpoints = assignment_of(service, port);
        made.push(Made::for_agents(&endpoints.cluster_name, &endpoints));
    }
    made
}

/// The service of a cluster that was made here.
pub(crate) fn service_of_cluster(cluster: &str) -> Option<&str> {
    let (service, _port) = cluster.strip_prefix(PREFIX)?.rsplit_once(':')?;
    Some(service)
}

fn cluster_name(service: &Service, port: &ServicePort) -> String {
    format!("{PREFIX}{}:{}/{}", service.name, port.port, port.protocol)
}

fn listener_of(service: &Service, address: IpAddr) -> listener::Listener {
    let chains = service
        .ports
        .iter()
        .map(|port| chain_of(service, address, port));
    listener::Listener {
        name: format!("{PREFIX}{address}"),
        filter_chains: chains.collect(),
        ..listener::Listener::default()
    }
}

fn chain_of(service: &Service, address: IpAddr, port: &ServicePort) -> listener::FilterChain {
    use listener::filter::ConfigType;
    let cluster = cluster_name(service, port);
    let source_ip = hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {});
    let has_affinity = affinity(service) != ClientIpAffinity::Off;
    let proxy = TcpProxy {
        stat_prefix: cluster.clone(),
        cluster_specifier: Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)),
        hash_policy: Vec::from_iter(has_affinity.then_some(HashPolicy {
            policy_specifier: Some(source_ip),
        })),
        ..TcpProxy::default()
    };
    let length = if address.is_ipv4() { 32 } else { 128 };
    let range = core::CidrRange {
        address_prefix: address.to_string(),
        prefix_len: Some(UInt32Value { value: length }),
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            prefix_ranges: vec![range],
            destination_port: Some(UInt32Value {
                value: port.port.get().into(),
            }),
            ..listener::FilterChainMatch::default()
        }),
        filters: vec![listener::Filter {
            name: "envoy.filters.network.tcp_proxy".to_owned(),
            config_type: Some(ConfigType::TypedConfig(packed(&proxy))),
        }],
        // Envoy tells chains apart by name; one address may have a port by both protocols.
        name: format!("{}/{}", port.port, port.protocol),
        ..listener::FilterChain::default()
    }
}

fn affinity(service: &Service) -> ClientIpAffinity {
    service.client_ip_affinity.unwrap_or(ClientIpAffinity::Off)
}

fn cluster_of(service: &Service, port: &ServicePort) -> pb::Cluster {
    let (namespace, name) = service.namespaced();
    let protocol = port.protocol.to_string();
    let facts = [
        ("service_name", name),
        ("service_namespace", namespace),
        ("port_name", &port.name),
        ("protocol", &protocol),
    ];
    let lrs_server = service.reported().map(|_| core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Self_(
            core::SelfConfigSource::default(),
        )),
        resource_api_version: core::ApiVersion::V3.into(),
        ..core::ConfigSource::default()
    });
    pb::Cluster {
        name: cluster_name(service, port),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            service_name: String::new(),
        }),
        metadata: Some(metadata(facts)),
        load_balancing_policy: policy_of(service),
        lrs_server,
        ..pb::Cluster::default()
    }
}

/// The rules of a cluster. The last policy is for agents that do not know the first.
fn policy_of(service: &Service) -> Option<pb::LoadBalancingPolicy> {
    let internal = service.internal_traffic_policy.map(|policy| match policy {
        InternalTrafficPolicy::Cluster => "Cluster".to_owned(),
        InternalTrafficPolicy::Local => "Local".to_owned(),
    });
    let distribution = service.traffic_distribution.map(|wish| match wish {
        TrafficDistribution::PreferSameZone => "PreferSameZone".to_owned(),
        TrafficDistribution::PreferSameNode => "PreferSameNode".to_owned(),
    });
    let timeout = match affinity(service) {
        ClientIpAffinity::For(time) => Some(format!("{}s", time.0.as_secs())),
        ClientIpAffinity::Off | ClientIpAffinity::On => None,
    };
    let rules = [
        ("internal_traffic_policy", internal),
        ("session_affinity_timeout", timeout),
        ("traffic_distribution", distribution),
    ];
    let rules = rules
        .into_iter()
        .filter_map(|(key, rule)| Some((key, rule?)));
    let rules = texts(rules);
    if rules.fields.is_empty() {
        return None;
    }
    let policy = |name: &str, config: Any| pb::load_balancing_policy::Policy {
        typed_extension_config: Some(core::TypedExtensionConfig {
            name: name.to_owned(),
            typed_config: Some(config),
        }),
    };
    let rules = steps::to_typed_struct(TRAFFIC_POLICY, rules);
    Some(pb::LoadBalancingPolicy {
        policies: vec![
            policy("cilium_io_traffic_policy", rules),
            policy(
                "envoy.load_balancing_policies.random",
                packed(&Random::default()),
            ),
        ],
    })
}

/// The endpoints of a port: those of the service, at the port that it leads to.
fn assignment_of(service: &Service, port: &ServicePort) -> endpoint::ClusterLoadAssignment {
    let mut assignment = endpoints_of(service);
    assignment.cluster_name = cluster_name(service, port);
    // Calls can be dropped, connections cannot.
    assignment.policy = None;
    let mut localities = service.localities();
    localities.retain(|locality| locality.weight > 0);
    let given = localities.iter().flat_map(|locality| &locality.endpoints);
    let made = assignment.endpoints.iter_mut();
    let made = made.flat_map(|locality| &mut locality.lb_endpoints);
    for (given, made) in given.zip(made) {
        adapt(given, port, made);
    }
    assignment
}

fn adapt(given: &Endpoint, port: &ServicePort, made: &mut endpoint::LbEndpoint) {
    use core::address::Address::SocketAddress;
    use core::socket_address::PortSpecifier;
    use endpoint::lb_endpoint::HostIdentifier;
    if let Some(node) = &given.node {
        made.metadata = Some(metadata([("node_name", node)]));
    }
    let Some(HostIdentifier::Endpoint(endpoint)) = &mut made.host_identifier else {
        return;
    };
    let address = endpoint.address.as_mut().and_then(|it| it.address.as_mut());
    if let (Some(SocketAddress(address)), Some(target)) = (address, port.target_port) {
        address.port_specifier = Some(PortSpecifier::PortValue(target.get().into()));
    }
}

fn metadata<'a>(facts: impl IntoIterator<Item = (&'a str, impl Into<String>)>) -> core::Metadata {
    core::Metadata {
        filter_metadata: [(METADATA.to_owned(), texts(facts))].into(),
        ..core::Metadata::default()
    }
}

fn texts<'a>(facts: impl IntoIterator<Item = (&'a str, impl Into<String>)>) -> Struct {
    let fields = facts.into_iter().map(|(key, text)| {
        let value = Value {
            kind: Some(Kind::StringValue(text.into())),
        };
        (key.to_owned(), value)
    });
    Struct {
        fields: fields.collect(),
    }
}
