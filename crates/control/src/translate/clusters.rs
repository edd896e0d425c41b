//! The clusters of a service.
//!
//! An Envoy needs explicit settings for what gRPC does by default: HTTP/2 to the backends, and
//! locality weights.
//!
//! The settings of a service are those of its own endpoints. Its TLS is also that of its DNS names,
//! because these stand in for the endpoints and would be reached in plaintext otherwise. Load
//! reports are for these names too, because calls to them are load of the service.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crowfly_model::grpc::cluster::DnsName;
use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::load_balancing_policies::{
    common::v3 as lb, pick_first::v3::PickFirst, round_robin::v3::RoundRobin,
};
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstream;
use envoy_types::pb::google::protobuf::{Any, UInt32Value, UInt64Value};
use prost::Name;

use super::{ads, outlier, packed, security, sessions};
use crate::fallback::{Fallback, ListForm};
use crate::service::Service;
use crate::service::limits::Limits;
use crate::service::policy::Policy;
use crate::service::text::Time;

/// The cluster that calls to a service are routed to.
pub(super) fn of_service(service: &Service) -> pb::Cluster {
    if service.is_aggregate() {
        aggregate_of(service)
    } else {
        of_endpoints(service, &service.name, "")
    }
}

/// The cluster of the own endpoints of a service, if the service is an aggregate.
pub(super) fn own_of(service: &Service) -> Option<pb::Cluster> {
    let name = service.is_aggregate().then(|| own_name(service))?;
    Some(of_endpoints(service, &name, &service.name))
}

/// The list of an aggregate: the clusters of a service, the preferred one first.
pub(super) fn list_of(service: &Service) -> aggregate::ClusterConfig {
    let fallbacks = service.fallback.iter().map(|fallback| match fallback {
        Fallback::Service(name) => name.clone(),
        Fallback::Dns(name) => dns_cluster_name(service, name),
    });
    aggregate::ClusterConfig {
        clusters: [own_name(service)].into_iter().chain(fallbacks).collect(),
    }
}

/// True if the DNS names of a service have clusters of their own. All other services that name a host
/// share its cluster.
pub(super) fn has_own_dns(service: &Service) -> bool {
    service.tls.is_some() || service.reported().is_some()
}

/// The cluster of a host name.
pub(super) fn of_dns(service: &Service, name: &DnsName) -> pb::Cluster {
    let address = core::SocketAddress {
        address: name.host.clone(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(
            name.port.into(),
        )),
        ..core::SocketAddress::default()
    };
    let endpoint = endpoint::Endpoint {
        address: Some(core::Address {
            address: Some(core::address::Address::SocketAddress(address)),
        }),
        ..endpoint::Endpoint::default()
    };
    let endpoint = endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        ..endpoint::LbEndpoint::default()
    };
    let cluster_name = dns_cluster_name(service, name);
    pb::Cluster {
        name: cluster_name.clone(),
        cluster_discovery_type: kind(cluster::DiscoveryType::LogicalDns),
        load_assignment: Some(endpoint::ClusterLoadAssignment {
            cluster_name,
            endpoints: vec![endpoint::LocalityLbEndpoints {
                lb_endpoints: vec![endpoint],
                ..endpoint::LocalityLbEndpoints::default()
            }],
            ..endpoint::ClusterLoadAssignment::default()
        }),
        lb_policy: cluster::LbPolicy::RoundRobin.into(),
        transport_socket: service.tls.as_ref().map(security::of_cluster),
        typed_extension_protocol_options: http2(None),
        ..with_load_reports(service)
    }
}

/// The name of the cluster of a host name.
fn dns_cluster_name(service: &Service, name: &DnsName) -> String {
    if has_own_dns(service) {
        format!("{}/dns:{name}", service.name)
    } else {
        format!("dns:{name}")
    }
}

/// True for the name of a cluster that [`of_dns`] makes.
pub(crate) fn is_of_dns(cluster: &str) -> bool {
    cluster.starts_with("dns:") || cluster.contains("/dns:")
}

/// The aggregate cluster of a service. Its policy is ROUND_ROBIN because gRPC requires that, though
/// it has no effect there (gRFC A75). Envoys are sent another form.
fn aggregate_of(service: &Service) -> pb::Cluster {
    pb::Cluster {
        name: service.name.clone(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::ClusterType(
            cluster::CustomClusterType {
                name: "envoy.clusters.aggregate".to_owned(),
                typed_config: Some(children_of(service)),
            },
        )),
        lb_policy: cluster::LbPolicy::RoundRobin.into(),
        ..pb::Cluster::default()
    }
}

fn children_of(service: &Service) -> Any {
    match service.fallback_as {
        ListForm::Inline => packed(&list_of(service)),
        ListForm::Resource => {
            let resource = aggregate::AggregateClusterResource {
                config_source: Some(ads()),
                resource_name: service.name.clone(),
            };
            packed(&resource)
        }
    }
}

fn own_name(service: &Service) -> String {
    format!("{}/endpoints", service.name)
}

/// The service whose name is a part of the name of this cluster. `None` for all other names, and
/// for the cluster that calls to the service are routed to.
pub(crate) fn service_of_cluster(cluster: &str) -> Option<&str> {
    let own = cluster.strip_suffix("/endpoints");
    own.or_else(|| cluster.split_once("/dns:").map(|(service, _)| service))
        .or_else(|| super::cluster_ip::service_of_cluster(cluster))
}

/// A cluster with endpoints; `service_name` is their name, if that differs from the cluster's.
fn of_endpoints(service: &Service, name: &str, service_name: &str) -> pb::Cluster {
    let affinity = service.session_affinity.as_ref();
    let common = cluster::CommonLbConfig {
        override_host_status: affinity.and_then(sessions::statuses),
        ..cluster::CommonLbConfig::default()
    };
    let idle_timeout = affinity.and_then(|affinity| affinity.idle_timeout);
    let outliers = service.outlier_detection.as_ref();
    let of_endpoints = pb::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: kind(cluster::DiscoveryType::Eds),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            service_name: service_name.to_owned(),
        }),
        common_lb_config: Some(common),
        circuit_breakers: service.limits.map(circuit_breakers),
        outlier_detection: outliers.map(outlier::of_cluster),
        transport_socket: service.tls.as_ref().map(security::of_cluster),
        upstream_config: idle_timeout.map(sessions::upstream_config),
        typed_extension_protocol_options: http2(idle_timeout),
        ..with_load_reports(service)
    };
    with_policy(service.policy, of_endpoints)
}

/// A cluster of nothing but the load reports of a service.
fn with_load_reports(service: &Service) -> pb::Cluster {
    let Some(metrics) = service.reported() else {
        return pb::Cluster::default();
    };
    pb::Cluster {
        lrs_server: Some(core::ConfigSource {
            config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Self_(
                core::SelfConfigSource::default(),
            )),
            resource_api_version: core::ApiVersion::V3.into(),
            ..core::ConfigSource::default()
        }),
        lrs_report_endpoint_metrics: metrics.iter().map(|metric| metric.0.clone()).collect(),
        ..pb::Cluster::default()
    }
}

fn with_policy(policy: Policy, cluster: pb::Cluster) -> pb::Cluster {
    use cluster::{LbConfig, LbPolicy, LeastRequestLbConfig, RingHashLbConfig};
    let size = |size: Option<u32>| {
        size.map(|value| UInt64Value {
            value: value.into(),
        })
    };
    let weighted = cluster::common_lb_config::LocalityConfigSpecifier::LocalityWeightedLbConfig(
        cluster::common_lb_config::LocalityWeightedLbConfig {},
    );
    let (lb_policy, lb_config) = match policy {
        Policy::LeastRequest { choices } => {
            let config = choices.map(|choices| LeastRequestLbConfig {
                choice_count: Some(UInt32Value { value: choices }),
                ..LeastRequestLbConfig::default()
            });
            let config = config.map(LbConfig::LeastRequestLbConfig);
            (LbPolicy::LeastRequest, config)
        }
        Policy::PickFirst { shuffle } => return with_pick_first(shuffle, cluster),
        Policy::RingHash { min, max } => {
            let config = RingHashLbConfig {
                minimum_ring_size: size(min),
                maximum_ring_size: size(max),
                ..RingHashLbConfig::default()
            };
            (LbPolicy::RingHash, Some(LbConfig::RingHashLbConfig(config)))
        }
        Policy::RoundRobin => (LbPolicy::RoundRobin, None),
    };
    pb::Cluster {
        lb_policy: lb_policy.into(),
        lb_config,
        common_lb_config: Some(cluster::CommonLbConfig {
            locality_config_specifier: Some(weighted),
            ..cluster.common_lb_config.unwrap_or_default()
        }),
        ..cluster
    }
}

/// The list of policies of `pick_first`. Envoy does not have that policy, so it takes the next one,
/// which is round_robin with locality weights.
fn with_pick_first(shuffle: bool, cluster: pb::Cluster) -> pb::Cluster {
    let pick_first = PickFirst {
        shuffle_address_list: shuffle,
    };
    let weighted = lb::locality_lb_config::LocalityConfigSpecifier::LocalityWeightedLbConfig(
        lb::locality_lb_config::LocalityWeightedLbConfig {},
    );
    let round_robin = RoundRobin {
        locality_lb_config: Some(lb::LocalityLbConfig {
            locality_config_specifier: Some(weighted),
        }),
        ..RoundRobin::default()
    };
    let policies = vec![
        policy("envoy.load_balancing_policies.pick_first", &pick_first),
        policy("envoy.load_balancing_policies.round_robin", &round_robin),
    ];
    // An Envoy refuses a list of policies beside locality weights.
    let common = cluster.common_lb_config;
    let common = common.filter(|common| common.override_host_status.is_some());
    pb::Cluster {
        load_balancing_policy: Some(pb::LoadBalancingPolicy { policies }),
        common_lb_config: common,
        ..cluster
    }
}

fn policy(name: &str, config: &impl Name) -> pb::load_balancing_policy::Policy {
    pb::load_balancing_policy::Policy {
        typed_extension_config: Some(core::TypedExtensionConfig {
            name: name.to_owned(),
            typed_config: Some(packed(config)),
        }),
    }
}

fn circuit_breakers(limits: Limits) -> pb::CircuitBreakers {
    let limit = |limit: Option<NonZeroU32>| limit.map(|limit| UInt32Value { value: limit.get() });
    let threshold = pb::circuit_breakers::Thresholds {
        max_connections: limit(limits.max_connections),
        max_pending_requests: limit(limits.max_pending),
        max_requests: limit(limits.max_requests),
        max_retries: limit(limits.max_retries),
        ..pb::circuit_breakers::Thresholds::default()
    };
    pb::CircuitBreakers {
        thresholds: vec![threshold],
        ..pb::CircuitBreakers::default()
    }
}

fn kind(kind: cluster::DiscoveryType) -> Option<cluster::ClusterDiscoveryType> {
    Some(cluster::ClusterDiscoveryType::Type(kind.into()))
}

/// The options that an Envoy needs. It reads the idle timeout of connections here.
fn http2(idle_timeout: Option<Time>) -> HashMap<String, Any> {
    use upstream::http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions,
        explicit_http_config::ProtocolConfig::Http2ProtocolOptions,
    };
    let options = upstream::HttpProtocolOptions {
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(Http2ProtocolOptions(core::Http2ProtocolOptions::default())),
            },
        )),
        ..sessions::http_options(idle_timeout)
    };
    let name = upstream::HttpProtocolOptions::full_name();
    HashMap::from([(name, packed(&options))])
}
