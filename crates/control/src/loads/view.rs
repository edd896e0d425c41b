//! The loads as a value. `/loads`, `crowfly loads --json` and the table of `crowfly loads` are made from it,
//! because all three must have the same facts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// All loads that clients have reported since the control plane started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// The seconds since the control plane started. All totals began at zero then.
    pub up_seconds: f64,
    /// The seconds between two reports that clients are asked for.
    pub interval_seconds: f64,
    /// The reports that were taken.
    pub reports: u64,
    /// The reports that were refused, because they broke a limit.
    pub refused_reports: u64,
    /// The figures in good reports that were not kept, because there were too many rows or entries.
    pub refused_rows: u64,
    /// The metrics in good reports that were left out. Their sum is no number or over 1e18, their name is over 512
    /// bytes, or there were too many.
    #[serde(default)]
    pub refused_metrics: u64,
    /// The streams that are open now, the oldest first.
    pub reporters: Vec<ReporterView>,
    /// The loads, ordered by service, cluster and localities.
    pub rows: Vec<LoadRow>,
}

/// A client that has an open stream for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReporterView {
    /// The number of the stream.
    pub stream: u64,
    /// The address of the client.
    pub peer: Option<SocketAddr>,
    /// The id of its node.
    pub node: String,
    /// The cluster of its node.
    pub cluster: String,
    /// Its program, such as `envoy 1.40.0`.
    pub user_agent: String,
    /// Its locality, such as `eu/a`; empty if it has none.
    pub locality: String,
    /// The seconds since its stream was opened.
    pub connected_seconds: f64,
    /// The reports that it has sent on this stream.
    pub reports: u64,
    /// The seconds since its last report.
    pub last_report_seconds: Option<f64>,
}

/// The calls from clients in one locality to backends of a cluster in one locality.
///
/// The drops of a cluster are in a row of their own, with no `backend_locality`, because a dropped
/// call is sent to no backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadRow {
    /// The service to which the cluster belongs; the cluster's own name if that is unknown.
    pub service: String,
    /// The cluster.
    pub cluster: String,
    /// True if the control plane serves the cluster now. The metrics of all others are summed.
    #[serde(default)]
    pub is_served: bool,
    /// The locality of the clients, such as `eu/a`; empty if they have none.
    pub client_locality: String,
    /// The locality of the backends; empty if they have none, and `None` in a row of drops.
    pub backend_locality: Option<String>,
    /// The calls that were started.
    pub issued: u64,
    /// The calls that ended well.
    pub succeeded: u64,
    /// The calls that failed.
    pub errors: u64,
    /// The calls that were dropped, by a category or by a limit.
    pub dropped: u64,
    /// The calls that are open now, by the last report of each client that is connected.
    pub in_progress: u64,
    /// The calls started per second, by the last report of each client.
    pub calls_per_second: f64,
    /// The calls failed per second, by the last report of each client.
    pub errors_per_second: f64,
    /// The calls dropped per second, by the last report of each client.
    pub drops_per_second: f64,
    /// The part of `dropped` that has a category, by category.
    pub dropped_by_category: BTreeMap<String, u64>,
    /// The connections, which node agents report.
    pub connections: Connections,
    /// The metrics of the backends, such as `cpu_utilization`.
    pub metrics: BTreeMap<String, Metric>,
    /// The counts of the last five minutes, the oldest first. Times without a report are left out.
    pub history: Vec<Moment>,
}

/// Connections to backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// The connections that were opened.
    pub opened: u64,
    /// The connections that could not be opened.
    pub failed: u64,
    /// The connections that are open now, by the last report of each client that is connected.
    pub active: u64,
}

/// A metric that backends send with their answers (ORCA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The calls that ended with a value.
    pub calls: u64,
    /// The sum of the values.
    pub total: f64,
    /// The mean value, by the last report of each client; `None` if none had a value.
    pub recent_mean: Option<f64>,
}

/// The counts that were reported within ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The age of the beginning of the ten seconds, in seconds.
    pub seconds_ago: f64,
    /// The calls that were started.
    pub issued: u64,
    /// The calls that failed.
    pub errors: u64,
    /// The calls that were dropped.
    pub dropped: u64,
}
