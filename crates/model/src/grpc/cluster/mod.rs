//! `envoy.config.cluster.v3.Cluster`: where a cluster's endpoints come from and how calls are
//! spread over them.

mod lb_policy;

use envoy_types::pb::envoy::config::cluster::v3::{
    self as pb,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};

pub use self::lb_policy::{EndpointPolicy, LbPolicy};
use super::{
    config_source::{require_ads_or_self, require_self},
    decode::decode,
};
use crate::{
    Decoded, ResourceType, Validator,
    names::{Authority, authority_of},
};

/// A cluster whose endpoints come from EDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The resource's name.
    pub name: String,
    /// The name of its endpoints resource, if it differs from `name`.
    pub eds_service_name: Option<String>,
    /// How calls are spread over the endpoints.
    pub lb_policy: LbPolicy,
    /// Whether load is reported, to the server the cluster came from.
    pub load_reporting: bool,
}

impl Cluster {
    /// The name of its endpoints resource.
    pub fn eds_name(&self) -> &str {
        self.eds_service_name.as_deref().unwrap_or(&self.name)
    }
}

impl ResourceType for Cluster {
    type Parsed = Self;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const NOUN: &'static str = "cluster";
    const ALL_IN_SOTW: bool = true;

    fn parse(bytes: &[u8]) -> Decoded<Self> {
        decode(bytes, "name", |proto: &pb::Cluster| &proto.name, parse)
    }
}

fn parse(proto: pb::Cluster, v: &mut Validator) -> Option<Cluster> {
    let eds_service_name = match &proto.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(kind)) if *kind == DiscoveryType::Eds as i32 => {
            parse_eds(&proto, v)
        }
        other => {
            reject_type(other.as_ref(), v);
            None
        }
    };
    let lb_policy = lb_policy::parse(&proto, v);
    if let Some(server) = &proto.lrs_server {
        require_self(server, "lrs_server", v);
    }
    Some(Cluster {
        name: proto.name,
        eds_service_name,
        lb_policy: lb_policy?,
        load_reporting: proto.lrs_server.is_some(),
    })
}

fn parse_eds(proto: &pb::Cluster, v: &mut Validator) -> Option<String> {
    v.field("eds_cluster_config", |v| {
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
    })
}

fn reject_type(kind: Option<&ClusterDiscoveryType>, v: &mut Validator) {
    match kind {
        Some(ClusterDiscoveryType::Type(number)) => {
            let got = DiscoveryType::try_from(*number)
                .map_or_else(|_| number.to_string(), |kind| kind.as_str_name().to_owned());
            v.error_at("type", format!("expected EDS, got {got}"));
        }
        Some(ClusterDiscoveryType::ClusterType(custom)) => {
            let got = custom
                .typed_config
                .as_ref()
                .map_or(custom.name.as_str(), |any| any.type_url.as_str());
            v.error_at("cluster_type", format!("expected type EDS, got {got}"));
        }
        None => v.error_at("type", "expected EDS, got none"),
    }
}
