//! The clusters of a service.
//!
//! An Envoy needs explicit settings for what gRPC does by default: HTTP/2 to the backends, and
//! locality weights.

use std::collections::HashMap;

use crowfly_model::grpc::cluster::DnsName;
use envoy_types::pb::envoy::config::cluster::v3::{self as pb, cluster};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstream;
use envoy_types::pb::google::protobuf::Any;
use prost::Name;

use super::{ads, packed};
use crate::fallback::{Fallback, ListForm};
use crate::service::Service;

const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The cluster that calls to a service are routed to.
pub(super) fn of_service(service: &Service) -> pb::Cluster {
    if service.is_aggregate() {
        aggregate_of(service)
    } else {
        of_endpoints(&service.name, "")
    }
}

/// The cluster of the own endpoints of a service, if the service is an aggregate.
pub(super) fn own_of(service: &Service) -> Option<pb::Cluster> {
    let name = service.is_aggregate().then(|| own_name(service))?;
    Some(of_endpoints(&name, &service.name))
}

/// The list of an aggregate: the clusters of a service, the preferred one first.
pub(super) fn list_of(service: &Service) -> aggregate::ClusterConfig {
    let fallbacks = service.fallback.iter().map(|fallback| match fallback {
        Fallback::Service(name) => name.clone(),
        Fallback::Dns(name) => dns_cluster_name(name),
    });
    aggregate::ClusterConfig {
        clusters: [own_name(service)].into_iter().chain(fallbacks).collect(),
    }
}

/// The cluster of a host name, which all services that name it share.
pub(super) fn of_dns(name: &DnsName) -> pb::Cluster {
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
    let cluster_name = dns_cluster_name(name);
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
        typed_extension_protocol_options: http2(),
        ..pb::Cluster::default()
    }
}

/// The name of the cluster of a host name.
pub(super) fn dns_cluster_name(name: &DnsName) -> String {
    format!("dns:{name}")
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
        ListForm::Inline => packed(&aggregate::ClusterConfig::full_name(), &list_of(service)),
        ListForm::Resource => {
            let resource = aggregate::AggregateClusterResource {
                config_source: Some(ads()),
                resource_name: service.name.clone(),
            };
            packed(&aggregate::AggregateClusterResource::full_name(), &resource)
        }
    }
}

fn own_name(service: &Service) -> String {
    format!("{}/endpoints", service.name)
}

/// A cluster with endpoints; `service_name` is their name, if that differs from the cluster's.
fn of_endpoints(name: &str, service_name: &str) -> pb::Cluster {
    let weighted = cluster::CommonLbConfig {
        locality_config_specifier: Some(
            cluster::common_lb_config::LocalityConfigSpecifier::LocalityWeightedLbConfig(
                cluster::common_lb_config::LocalityWeightedLbConfig {},
            ),
        ),
        ..cluster::CommonLbConfig::default()
    };
    pb::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: kind(cluster::DiscoveryType::Eds),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            service_name: service_name.to_owned(),
        }),
        lb_policy: cluster::LbPolicy::RoundRobin.into(),
        common_lb_config: Some(weighted),
        typed_extension_protocol_options: http2(),
        ..pb::Cluster::default()
    }
}

fn kind(kind: cluster::DiscoveryType) -> Option<cluster::ClusterDiscoveryType> {
    Some(cluster::ClusterDiscoveryType::Type(kind.into()))
}

fn http2() -> HashMap<String, Any> {
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
        ..upstream::HttpProtocolOptions::default()
    };
    let options = packed(HTTP_PROTOCOL_OPTIONS, &options);
    HashMap::from([(HTTP_PROTOCOL_OPTIONS.to_owned(), options)])
}
