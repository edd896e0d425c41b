//! The load reports that a cluster asks for (gRFC A27, A85). The reader keeps the server with the cluster, because
//! reports go back to the server that sent it.

use std::{collections::BTreeSet, sync::Arc};

use envoy_types::pb::envoy::config::cluster::v3 as pb;

use crate::{Features, Validator, bootstrap::ServerConfig, grpc::config_source::require_self};

/// The load reports of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReporting {
    /// The server that the cluster came from, which gets the reports. `None` if the reader of the cluster is
    /// no client of a server.
    pub server: Option<Arc<ServerConfig>>,
    /// The metrics of backends that are propagated into the reports.
    pub metrics: MetricPropagation,
}

/// The metrics of backends (ORCA, gRFC A51) that load reports propagate (gRFC A85). The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricPropagation {
    /// Propagates `cpu_utilization`.
    pub cpu_utilization: bool,
    /// Propagates `mem_utilization`.
    pub mem_utilization: bool,
    /// Propagates `application_utilization`.
    pub application_utilization: bool,
    /// Propagates entries of `named_metrics`.
    pub named_metrics: NamedMetricPropagation,
}

/// The entries of ORCA's `named_metrics` that load reports propagate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamedMetricPropagation {
    /// None of them.
    #[default]
    None,
    /// All of them, as `named_metrics.NAME`.
    All,
    /// All of them, as `NAME` alone, as in gRFC A64 before A85.
    AllUnprefixed,
    /// The entries with these names, as `named_metrics.NAME`.
    Only(BTreeSet<String>),
}

/// Reads `lrs_server`; `None` if the cluster asks for no load reports, or after an error.
pub(super) fn parse(
    proto: &pb::Cluster,
    features: &Features,
    v: &mut Validator,
) -> Option<LoadReporting> {
    let Some(server) = &proto.lrs_server else {
        if !proto.lrs_report_endpoint_metrics.is_empty() {
            v.unsupported_at(METRICS, "no effect without lrs_server");
        }
        return None;
    };
    // gRFC A27: load reports go to the server that the cluster came from, or nowhere.
    require_self(server, "lrs_server", v);
    let metrics = if features.orca_lrs_propagation {
        metrics(&proto.lrs_report_endpoint_metrics, v)
    } else {
        if !proto.lrs_report_endpoint_metrics.is_empty() {
            let message = "no effect while GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION is off: \
                           all named metrics are in load reports (gRFC A64)";
            v.unsupported_at(METRICS, message);
        }
        MetricPropagation {
            named_metrics: NamedMetricPropagation::AllUnprefixed,
            ..MetricPropagation::default()
        }
    };
    Some(LoadReporting {
        server: features.server.clone(),
        metrics,
    })
}

/// Checks `lrs_server` of an aggregate, which has no effect, because each of its leaves reports by its own. gRFC A37
/// ignored the field of the leaves. gRFC A75 is newer and makes each leaf a tree of its own.
pub(super) fn check_aggregate(proto: &pb::Cluster, v: &mut Validator) {
    if let Some(server) = &proto.lrs_server {
        require_self(server, "lrs_server", v);
        let message =
            "no effect in an aggregate: each of its clusters reports its own load (gRFC A75)";
        v.unsupported_at("lrs_server", message);
    }
}

const METRICS: &str = "lrs_report_endpoint_metrics";

/// Reads the names of metrics. gRFC A85: those that are not known are ignored.
fn metrics(names: &[String], v: &mut Validator) -> MetricPropagation {
    let mut wanted = MetricPropagation::default();
    let (mut all, mut only) = (false, BTreeSet::new());
    for (index, name) in names.iter().enumerate() {
        match (name.as_str(), name.strip_prefix("named_metrics.")) {
            ("cpu_utilization", _) => wanted.cpu_utilization = true,
            ("mem_utilization", _) => wanted.mem_utilization = true,
            ("application_utilization", _) => wanted.application_utilization = true,
            (_, Some("*")) => all = true,
            (_, Some(key)) => _ = only.insert(key.to_owned()),
            (_, None) => {
                let message = format!("not supported: {name} is not in load reports (gRFC A85)");
                v.unsupported_at(&format!("{METRICS}[{index}]"), message);
            }
        }
    }
    wanted.named_metrics = match (all, only.is_empty()) {
        (true, _) => NamedMetricPropagation::All,
        (false, true) => NamedMetricPropagation::None,
        (false, false) => NamedMetricPropagation::Only(only),
    };
    wanted
}
