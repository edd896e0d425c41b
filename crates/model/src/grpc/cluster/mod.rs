//! `envoy.config.cluster.v3.Cluster`: the source of a cluster's endpoints, and the policy that spreads calls over them.
//!
//! Endpoints are a resource of their own, because they change often and the settings here seldom.

mod aggregate;
mod custom;
mod dns;
mod endpoint_policy;
mod lb_policy;
mod load_reporting;
mod named_policy;
mod outlier_detection;
mod override_host;
mod security;
mod settings;
mod unsupported;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use envoy_types::pb::envoy::config::cluster::v3::{
    self as pb,
    cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType},
};

use self::settings::Settings;
pub use self::{
    aggregate::{Aggregate, Children},
    custom::{CustomPolicies, CustomPolicyConfig, MadePolicy, ReadPolicy},
    dns::DnsName,
    endpoint_policy::{EndpointPolicy, RingSizeBounds},
    lb_policy::LbPolicy,
    load_reporting::{LoadReporting, MetricPropagation, NamedMetricPropagation},
    outlier_detection::{FailurePercentage, OutlierDetection, SuccessRate},
    security::{ProviderNames, Sni, TrustedRoots, UpstreamTls},
};
use super::{config_source::require_ads_or_self, decode::decode, endpoints::Health};
use crate::{
    Decoded, Features, ResourceType, Unsupported, Validator,
    names::{Authority, authority_of},
};

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The resource's name.
    pub name: String,
    /// The kind of the cluster: it has endpoints, or consists of other clusters.
    pub kind: ClusterKind,
    /// Fields of the cluster that are set and have no effect yet.
    pub unsupported: Box<[Unsupported]>,
}

/// The kinds of clusters.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all clusters are leaves, so a box would save nothing"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// The cluster consists of other clusters.
    Aggregate(Aggregate),
    /// The cluster has endpoints of its own.
    Leaf(LeafCluster),
}

/// A cluster with endpoints of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafCluster {
    /// The source of the endpoints.
    pub source: EndpointSource,
    /// The policy by which calls are spread over the endpoints.
    pub lb_policy: LbPolicy,
    /// The greatest number of calls that may be open at a time. Calls over the limit fail (gRFC A32).
    pub max_concurrent_requests: u32,
    /// The load reports to the server that the cluster came from; `None` if it asks for none (gRFC A27).
    pub load_reporting: Option<Box<LoadReporting>>,
    /// The health of endpoints that sessions may stick to (gRFC A55).
    pub session_health: BTreeSet<Health>,
    /// The time for which a connection is kept for a session that makes no call (gRFC A75).
    pub session_idle_timeout: Duration,
    /// The ejection of endpoints that fail too often; `None` if none is ejected (gRFC A50).
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS of connections to the endpoints; `None` if the cluster asks for none (gRFC A29).
    pub security: Option<Arc<UpstreamTls>>,
}

/// The source of the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointSource {
    /// One endpoint with all the addresses of a host name.
    Dns(DnsName),
    /// An endpoints resource.
    Eds {
        /// The name of the resource, if that differs from the cluster's.
        service_name: Option<String>,
    },
}

impl Cluster {
    /// The name of the cluster's endpoints resource, if it has one.
    pub fn eds_name(&self) -> Option<&str> {
        match &self.kind {
            ClusterKind::Leaf(LeafCluster {
                source: EndpointSource::Eds { service_name },
                ..
            }) => Some(service_name.as_deref().unwrap_or(&self.name)),
            _ => None,
        }
    }
}

impl ResourceType for Cluster {
    type Parsed = Self;
    type Context = Features;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const NOUN: &'static str = "cluster";
    const ALL_IN_SOTW: bool = true;

    fn parse(bytes: &[u8], features: &Features) -> Decoded<Self> {
        decode(
            bytes,
            "name",
            |proto: &pb::Cluster| &proto.name,
            |proto, v| parse(proto, features, v),
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

fn parse(proto: pb::Cluster, features: &Features, v: &mut Validator) -> Option<Cluster> {
    let (kind, unsupported) = v.take_unsupported(|v| match &proto.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(custom)) => {
            parse_aggregate(custom, &proto, features, v).map(ClusterKind::Aggregate)
        }
        Some(ClusterDiscoveryType::Type(kind)) => {
            parse_leaf(Some(*kind), &proto, features, v).map(ClusterKind::Leaf)
        }
        None => parse_leaf(None, &proto, features, v).map(ClusterKind::Leaf),
    });
    Some(Cluster {
        name: proto.name,
        kind: kind?,
        unsupported,
    })
}

fn parse_aggregate(
    custom: &CustomClusterType,
    proto: &pb::Cluster,
    features: &Features,
    v: &mut Validator,
) -> Option<Aggregate> {
    let children = aggregate::parse(custom, features, v);
    // The settings must be valid, but are not kept, because each leaf has settings of its own.
    Settings::parse(proto, v);
    load_reporting::check_aggregate(proto, v);
    unsupported::in_aggregate(proto, v);
    v.take_unsupported(|v| security::parse(proto, features, v));
    // A bad policy of an aggregate is no error, because leaves use their own (gRFC A75).
    let lb_policy = lb_policy::parse(proto, features, &mut Validator::default());
    Some(Aggregate {
        children: children?,
        lb_policy,
    })
}

fn parse_leaf(
    kind: Option<i32>,
    proto: &pb::Cluster,
    features: &Features,
    v: &mut Validator,
) -> Option<LeafCluster> {
    let source = parse_source(kind, proto, v);
    let lb_policy = lb_policy::parse(proto, features, v);
    let settings = Settings::parse(proto, v);
    let load_reporting = load_reporting::parse(proto, features, v);
    let security = security::parse(proto, features, v);
    let session_health = override_host::parse(proto.common_lb_config.as_ref(), v);
    unsupported::find(proto, lb_policy.as_ref(), v);
    Some(LeafCluster {
        source: source?,
        lb_policy: lb_policy?,
        max_concurrent_requests: settings.max_concurrent_requests,
        load_reporting: load_reporting.map(Box::new),
        session_health,
        session_idle_timeout: settings.session_idle_timeout,
        outlier_detection: settings.outlier_detection.map(Box::new),
        security: security.map(Arc::new),
    })
}

fn parse_source(
    kind: Option<i32>,
    proto: &pb::Cluster,
    v: &mut Validator,
) -> Option<EndpointSource> {
    let known = kind.and_then(|kind| DiscoveryType::try_from(kind).ok());
    let got = match (known, kind) {
        (Some(DiscoveryType::Eds), _) => return Some(parse_eds(proto, v)),
        (Some(DiscoveryType::LogicalDns), _) => {
            return dns::parse(proto, v).map(EndpointSource::Dns);
        }
        (Some(other), _) => other.as_str_name().to_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => "none".to_owned(),
    };
    v.error_at("type", format!("expected EDS or LOGICAL_DNS, got {got}"));
    None
}

fn parse_eds(proto: &pb::Cluster, v: &mut Validator) -> EndpointSource {
    let service_name = v.field("eds_cluster_config", |v| {
        let Some(config) = &proto.eds_cluster_config else {
            v.error("expected it with type EDS, got none");
            return None;
        };
        require_ads_or_self(config.eds_config.as_ref(), "eds_config", v);
        // gRFC A47: the cluster's name has the cluster's type in it, and so cannot name endpoints.
        if config.service_name.is_empty() && authority_of(&proto.name) != Authority::Default {
            v.error_at(
                "service_name",
                "expected it for a cluster with an xdstp name, got none",
            );
        }
        (!config.service_name.is_empty()).then(|| config.service_name.clone())
    });
    EndpointSource::Eds { service_name }
}
