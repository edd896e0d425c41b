//! Aggregate clusters: a list of other clusters, in order of preference (gRFC A37, A99).
//!
//! The list may be inside the cluster or a resource of its own. One parser reads both, because both have the same
//! rules.

use std::sync::Arc;

use envoy_types::pb::envoy::{
    config::cluster::v3::cluster::CustomClusterType,
    extensions::clusters::aggregate::v3::{self as pb, AggregateClusterResource},
};
use prost::Name;

use super::LbPolicy;
use crate::{
    Features, Validator,
    features::AGGREGATE_CLUSTER_RESOURCE,
    grpc::{
        ClusterConfig, any::Extension, cluster_config, config_source::require_ads_or_self,
        decode::require_text,
    },
};

/// A cluster that consists of other clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The clusters that the aggregate consists of.
    pub children: Children,
    /// The policy of the aggregate itself; `None` if it is not valid or not supported.
    ///
    /// Each child balances by its own policy. The aggregate's policy is used only if the channel asks for the behaviour
    /// before gRFC A75 (`GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT`). No value is an error, because Envoy requires
    /// CLUSTER_PROVIDED here, and one control plane must be able to serve both.
    pub lb_policy: Option<LbPolicy>,
}

/// The place of the list of children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Children {
    /// In the cluster.
    Inline(Arc<ClusterConfig>),
    /// In the [`ClusterConfig`] resource of this name (gRFC A99).
    Resource(String),
}

/// Reads `cluster_type`. The type of its configuration decides, because its name is free text.
pub(super) fn parse(
    custom: &CustomClusterType,
    features: &Features,
    v: &mut Validator,
) -> Option<Children> {
    v.field("cluster_type.typed_config", |v| {
        let Some(any) = &custom.typed_config else {
            v.error(format!("expected {}, got none", expected(features)));
            return None;
        };
        let extension = Extension::unwrap(any.clone())
            .inspect_err(|error| v.error(error))
            .ok()?;
        let name = &extension.type_name;
        if *name == pb::ClusterConfig::full_name() {
            let proto = extension.decode(v)?;
            let config = cluster_config::parse(proto, v);
            return Some(Children::Inline(Arc::new(config)));
        }
        let is_resource = *name == AggregateClusterResource::full_name();
        if is_resource && features.aggregate_cluster_resource {
            return parse_resource(&extension.decode(v)?, v);
        }
        let (expected, got) = (expected(features), &any.type_url);
        let hint = if is_resource {
            format!(" (an experiment: {AGGREGATE_CLUSTER_RESOURCE}=true allows it)")
        } else {
            String::new()
        };
        v.error(format!("expected {expected}, got {got}{hint}"));
        None
    })
}

fn parse_resource(proto: &AggregateClusterResource, v: &mut Validator) -> Option<Children> {
    require_ads_or_self(proto.config_source.as_ref(), "config_source", v);
    require_text(&proto.resource_name, "resource_name", v);
    Some(Children::Resource(proto.resource_name.clone()))
}

/// The types that are known here. Without the feature of gRFC A99 its type is refused like an unknown one. The error
/// then names the variable that switches the feature on.
fn expected(features: &Features) -> String {
    let inline = pb::ClusterConfig::full_name();
    if features.aggregate_cluster_resource {
        format!("{inline} or {}", AggregateClusterResource::full_name())
    } else {
        inline
    }
}
