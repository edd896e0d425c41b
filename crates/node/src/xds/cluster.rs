//! Clusters: the name of a service, its protocol and rules, and where its endpoints are.
//!
//! The agent has a reading of its own, because a cluster is a port of a service here. A cluster that needs a proxy,
//! such as one with TLS, is refused.

use std::sync::Arc;

use crowfly_model::grpc::steps;
use crowfly_model::{Decoded, ResourceType, Unsupported, Validator};
use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::google::protobuf::{Struct, value::Kind};

use super::address;
use super::chain::ChainProtocol;
use super::endpoints::{self, NodeEndpoints};
use super::envoy_policy;
use super::mapping::Mapping;
use super::metadata;
use super::traffic_policy::{self, TrafficPolicy};
use crate::model::{Protocol, ServiceName};

/// The namespace of services whose metadata names none, as in Kubernetes.
const DEFAULT_NAMESPACE: &str = "default";

/// The namespace of services that have the name of their cluster. It is none that Kubernetes allows.
const SYNTHETIC_NAMESPACE: &str = "(xds)";

/// A cluster, as the agent reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCluster {
    /// The service that it is a port of. It is made from the name of the cluster if metadata has none.
    pub service: ServiceName,
    /// The protocol, if metadata has it. TCP otherwise.
    pub protocol: Option<Protocol>,
    /// The name of the port; it may be empty.
    pub port_name: Arc<str>,
    /// The rules by which a connection gets one of its backends.
    pub policy: TrafficPolicy,
    /// Where its endpoints are.
    pub endpoints: EndpointsFrom,
    /// True if its load is to be reported to the server that it came from.
    pub reports_load: bool,
    /// Fields that are set and have no effect.
    pub unsupported: Box<[Unsupported]>,
}

/// Where the endpoints of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointsFrom {
    /// In the endpoints resource of this name.
    Eds(Arc<str>),
    /// In the cluster itself.
    Inline(Arc<NodeEndpoints>),
}

impl NodeCluster {
    /// The service that a cluster without metadata is.
    pub fn synthetic_service(cluster: &str) -> ServiceName {
        ServiceName::new(SYNTHETIC_NAMESPACE, cluster)
    }

    /// Its protocol behind a chain. A UDP proxy stands in for metadata that says none.
    pub(super) fn protocol_behind(&self, chain: ChainProtocol) -> Protocol {
        match (self.protocol, chain) {
            (Some(protocol), _) => protocol,
            (None, ChainProtocol::OfCluster) => Protocol::default(),
            (None, ChainProtocol::Udp) => Protocol::Udp,
        }
    }
}

impl ResourceType for NodeCluster {
    type Parsed = Self;
    type Context = Mapping;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const NOUN: &'static str = "cluster";
    const ALL_IN_SOTW: bool = true;
    const KEEPS_BYTES: bool = false;

    fn parse(bytes: &[u8], mapping: &Mapping) -> Decoded<Self> {
        steps::decode(
            bytes,
            "name",
            |proto: &pb::Cluster| &proto.name,
            |proto, v| {
                let (cluster, unsupported) = v.take_unsupported(|v| parse(&proto, mapping, v));
                Some(Self {
                    unsupported,
                    ..cluster?
                })
            },
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

fn parse(proto: &pb::Cluster, mapping: &Mapping, v: &mut Validator) -> Option<NodeCluster> {
    check_connections(proto, v);
    let said = metadata::read(proto.metadata.as_ref(), mapping, v, |fields, v| {
        Some(Said::read(fields, v))
    });
    let said = said.unwrap_or_default();
    if let Some(server) = &proto.lrs_server {
        steps::require_self(server, "lrs_server", v);
    }
    envoy_policy::check_cluster(proto, v);
    let policy = traffic_policy::parse(proto, v);
    let endpoints = endpoints_from(proto, mapping, v);
    Some(NodeCluster {
        service: said.service(&proto.name),
        protocol: said.protocol,
        port_name: said.port_name.unwrap_or_default(),
        policy,
        endpoints: endpoints?,
        reports_load: proto.lrs_server.is_some(),
        unsupported: Box::default(),
    })
}

/// The metadata of a cluster.
#[derive(Default)]
struct Said {
    name: Option<Arc<str>>,
    namespace: Option<Arc<str>>,
    port_name: Option<Arc<str>>,
    protocol: Option<Protocol>,
}

impl Said {
    fn read(fields: &Struct, v: &mut Validator) -> Self {
        Self {
            name: metadata::name(fields, "service_name", v),
            namespace: metadata::name(fields, "service_namespace", v),
            port_name: port_name(fields, v),
            protocol: protocol(fields, v),
        }
    }

    fn service(&self, cluster: &str) -> ServiceName {
        match (&self.namespace, &self.name) {
            (namespace, Some(name)) => ServiceName {
                namespace: namespace
                    .clone()
                    .unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
                name: Arc::clone(name),
            },
            (Some(namespace), None) => ServiceName {
                namespace: Arc::clone(namespace),
                name: cluster.into(),
            },
            (None, None) => NodeCluster::synthetic_service(cluster),
        }
    }
}

/// The name of a port may be empty, unlike others.
fn port_name(fields: &Struct, v: &mut Validator) -> Option<Arc<str>> {
    match fields.fields.get("port_name")?.kind.as_ref() {
        Some(Kind::StringValue(text)) => Some(text.as_str().into()),
        other => {
            let message = format!("expected a text, got {}", metadata::shown(other));
            v.error_at("port_name", message);
            None
        }
    }
}

fn protocol(fields: &Struct, v: &mut Validator) -> Option<Protocol> {
    let text = metadata::text(fields, "protocol", v)?;
    let protocol = match text.to_ascii_uppercase().as_str() {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        _ => None,
    };
    if protocol.is_none() {
        v.error_at("protocol", format!("expected TCP or UDP, got {text:?}"));
    }
    protocol
}

/// Refuses what a proxy would do to connections, because none is there.
fn check_connections(proto: &pb::Cluster, v: &mut Validator) {
    let impossible = [
        ("transport_socket", proto.transport_socket.is_some()),
        (
            "transport_socket_matches",
            !proto.transport_socket_matches.is_empty(),
        ),
        ("upstream_bind_config", proto.upstream_bind_config.is_some()),
        ("filters", !proto.filters.is_empty()),
    ];
    for (field, is_set) in impossible {
        if is_set {
            v.error_at(field, "cannot be done at connect()");
        }
    }
    let without_effect = [
        (
            "health_checks",
            !proto.health_checks.is_empty(),
            "health_status of endpoints alone counts",
        ),
        (
            "outlier_detection",
            proto.outlier_detection.is_some(),
            "no backend is ejected",
        ),
        (
            "circuit_breakers",
            proto.circuit_breakers.is_some(),
            "connections are not limited",
        ),
        (
            "lb_subset_config",
            proto.lb_subset_config.is_some(),
            "all endpoints are used",
        ),
    ];
    for (field, is_set, reason) in without_effect {
        if is_set {
            v.unsupported_at(field, reason);
        }
    }
}

fn endpoints_from(
    proto: &pb::Cluster,
    mapping: &Mapping,
    v: &mut Validator,
) -> Option<EndpointsFrom> {
    let kind = match &proto.cluster_discovery_type {
        // No type is STATIC, which is 0.
        None => Ok(DiscoveryType::Static),
        Some(ClusterDiscoveryType::Type(number)) => {
            DiscoveryType::try_from(*number).map_err(|_| number.to_string())
        }
        Some(ClusterDiscoveryType::ClusterType(custom)) => Err(custom.name.clone()),
    };
    match (kind, &proto.load_assignment) {
        (Ok(DiscoveryType::Eds), None) => Some(EndpointsFrom::Eds(eds_name(proto, v))),
        (Ok(DiscoveryType::Eds), Some(_)) => {
            v.error_at("load_assignment", "expected none with type EDS, got some");
            None
        }
        (Ok(DiscoveryType::Static), Some(assignment)) => v.field("load_assignment", |v| {
            let endpoints = endpoints::parse(assignment, mapping, v);
            Some(EndpointsFrom::Inline(Arc::new(endpoints)))
        }),
        (Ok(DiscoveryType::Static), None) => {
            v.error_at("load_assignment", "expected it with type STATIC, got none");
            None
        }
        (kind, _) => {
            let got = kind.map_or_else(|other| other, |kind| kind.as_str_name().to_owned());
            v.error_at("type", format!("expected EDS or STATIC, got {got}"));
            None
        }
    }
}

fn eds_name(proto: &pb::Cluster, v: &mut Validator) -> Arc<str> {
    let config = proto.eds_cluster_config.as_ref();
    v.field("eds_cluster_config", |v| match config {
        Some(config) => steps::require_ads_or_self(config.eds_config.as_ref(), "eds_config", v),
        None => v.error("expected it with type EDS, got none"),
    });
    let name = match config.map(|config| config.service_name.as_str()) {
        Some(name) if !name.is_empty() => name,
        _ => proto.name.as_str(),
    };
    address::resource_name(name, v)
}
