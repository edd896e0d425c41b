//! One report of a client, checked and in our own words.
//!
//! The control plane keeps what clients send, so every number, name and list has a limit. A report beyond a limit is
//! refused whole, with the path of its field. A client that miscounts in one place may miscount in all.
//!
//! The metrics are an exception. Backends choose their names and values, and clients add them up
//! unseen (gRFC A64). So a metric beyond a limit is left out alone, and counted.

use std::time::Duration;

use crowfly_model::grpc::endpoints::LocalityId;
use crowfly_model::{Errors, Validator};
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_stats::DroppedRequests;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamLocalityStats,
};
use envoy_types::pb::google::protobuf;

/// The most clusters in a report.
pub(super) const MAX_CLUSTERS: usize = 20_000;
/// The most localities of a cluster in a report.
pub(super) const MAX_LOCALITIES: usize = 1_000;
/// The most categories of drops of a cluster in a report.
pub(super) const MAX_CATEGORIES: usize = 100;
/// The most named metrics that are kept of a locality in a report.
pub(super) const MAX_METRICS: usize = 100;
/// The longest name of a cluster, a node, a category, a metric, or a part of a locality, in bytes.
pub(super) const MAX_NAME: usize = 512;
/// The largest count. A client with a million calls a second counts to it in 12 days. A negative
/// number that was sent as an unsigned one is larger.
pub(super) const MAX_COUNT: u64 = 1 << 40;
/// The largest sum of the values of a metric.
const MAX_METRIC: f64 = 1e18;

/// One report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(super) clusters: Vec<ClusterReport>,
    /// The metrics that were left out, because they were beyond a limit.
    pub(super) refused_metrics: u64,
}

/// The part of a report about one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClusterReport {
    pub(super) cluster: String,
    /// The time that the counts cover, measured by the client.
    pub(super) interval: Option<Duration>,
    pub(super) localities: Vec<LocalityReport>,
    /// All drops, whatever their reason.
    pub(super) dropped: u64,
    /// The drops that have a category, which are part of `dropped`.
    pub(super) categories: Vec<(String, u64)>,
}

/// The part of a report about the backends of a cluster in one locality.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LocalityReport {
    pub(super) locality: String,
    pub(super) counts: Counts,
    pub(super) gauges: Gauges,
    pub(super) metrics: Vec<(String, MetricSum)>,
    /// The metrics that were left out.
    pub(super) refused_metrics: u64,
}

/// Counts since the report before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) issued: u64,
    pub(super) succeeded: u64,
    pub(super) errors: u64,
    pub(super) opened: u64,
    pub(super) failed: u64,
}

/// States at the time of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    pub(super) in_progress: u64,
    pub(super) connections: u64,
}

/// The values of a metric that calls ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MetricSum {
    pub(super) calls: u64,
    pub(super) total: f64,
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// The fields beyond a limit.
    pub(crate) fn parse(clusters: Vec<ClusterStats>) -> Result<Self, Errors> {
        let mut v = Validator::default();
        let clusters = list(
            &mut v,
            "cluster_stats",
            clusters,
            MAX_CLUSTERS,
            ClusterReport::parse,
        );
        let localities = clusters.iter().flat_map(|of| &of.localities);
        let refused_metrics = localities.map(|of| of.refused_metrics).sum();
        v.finish(Self {
            clusters,
            refused_metrics,
        })
    }
}

impl ClusterReport {
    fn parse(v: &mut Validator, stats: ClusterStats) -> Self {
        if stats.cluster_name.is_empty() {
            v.error_at("cluster_name", "must be set");
        }
        let (dropped, categories) = drops(v, stats.total_dropped_requests, stats.dropped_requests);
        let localities = stats.upstream_locality_stats;
        Self {
            cluster: name(v, "cluster_name", stats.cluster_name),
            interval: stats
                .load_report_interval
                .and_then(|interval| duration(v, interval)),
            localities: list(
                v,
                "upstream_locality_stats",
                localities,
                MAX_LOCALITIES,
                LocalityReport::parse,
            ),
            dropped,
            categories,
        }
    }
}

/// All drops of a cluster, and those with a category.
fn drops(
    v: &mut Validator,
    total: u64,
    categories: Vec<DroppedRequests>,
) -> (u64, Vec<(String, u64)>) {
    let total = count(v, "total_dropped_requests", total);
    let categories = list(
        v,
        "dropped_requests",
        categories,
        MAX_CATEGORIES,
        |v, drops| {
            let dropped = count(v, "dropped_count", drops.dropped_count);
            (name(v, "category", drops.category), dropped)
        },
    );
    let in_categories: u64 = categories.iter().map(|(_, dropped)| dropped).sum();
    // The total has the drops of all categories in it. One that is less would hide drops: older
    // Envoys counted only those of circuit breakers there.
    (total.max(in_categories), categories)
}

impl LocalityReport {
    fn parse(v: &mut Validator, stats: UpstreamLocalityStats) -> Self {
        // gRPC has fields for these three (gRFC A85); Envoy sends them among the named ones.
        let own = [
            ("cpu_utilization", stats.cpu_utilization),
            ("mem_utilization", stats.mem_utilization),
            ("application_utilization", stats.application_utilization),
        ];
        let (metrics, refused_metrics) = metrics(v, own, stats.load_metric_stats);
        Self {
            locality: locality_text(v, stats.locality.as_ref()),
            counts: Counts {
                issued: count(v, "total_issued_requests", stats.total_issued_requests),
                succeeded: count(
                    v,
                    "total_successful_requests",
                    stats.total_successful_requests,
                ),
                errors: count(v, "total_error_requests", stats.total_error_requests),
                opened: count(v, "total_new_connections", stats.total_new_connections),
                failed: count(v, "total_fail_connections", stats.total_fail_connections),
            },
            gauges: Gauges {
                in_progress: count(
                    v,
                    "total_requests_in_progress",
                    stats.total_requests_in_progress,
                ),
                connections: count(
                    v,
                    "total_active_connections",
                    stats.total_active_connections,
                ),
            },
            metrics,
            refused_metrics,
        }
    }

    /// True if nothing happened in the locality, and nothing goes on there.
    pub(super) fn is_idle(&self) -> bool {
        let no_metrics = self.metrics.iter().all(|(_, sum)| sum.calls == 0);
        self.counts == Counts::default() && self.gauges == Gauges::default() && no_metrics
    }
}

/// The metrics with a field of their own and the named ones, and the number of those left out.
fn metrics(
    v: &mut Validator,
    own: [(&str, Option<UnnamedEndpointLoadMetricStats>); 3],
    mut named: Vec<EndpointLoadMetricStats>,
) -> (Vec<(String, MetricSum)>, u64) {
    let mut parsed = Vec::new();
    for (field, stats) in own {
        if let Some(stats) = stats {
            let sum = v.field(field, |v| MetricSum::parse(v, stats));
            parsed.push(sum.map(|sum| (field.to_owned(), sum)));
        }
    }
    let beyond = named.len().saturating_sub(MAX_METRICS);
    named.truncate(MAX_METRICS);
    let field = "load_metric_stats";
    parsed.extend(list(v, field, named, MAX_METRICS, named_metric));
    let all = parsed.len() + beyond;
    let kept: Vec<_> = parsed.into_iter().flatten().collect();
    let refused = all - kept.len();
    (kept, refused as u64)
}

/// A metric with its name; `None` if it is to be left out.
fn named_metric(v: &mut Validator, stats: EndpointLoadMetricStats) -> Option<(String, MetricSum)> {
    let sum = UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: stats.num_requests_finished_with_metric,
        total_metric_value: stats.total_metric_value,
    };
    let sum = MetricSum::parse(v, sum)?;
    (stats.metric_name.len() <= MAX_NAME).then_some((stats.metric_name, sum))
}

impl MetricSum {
    /// Reads the values of a metric. `None` if their sum is no number or too large, which the client
    /// does not look at. The count is the client's own, so a bad one is an error.
    fn parse(v: &mut Validator, stats: UnnamedEndpointLoadMetricStats) -> Option<Self> {
        let calls = stats.num_requests_finished_with_metric;
        let sum = Self {
            calls: count(v, "num_requests_finished_with_metric", calls),
            total: stats.total_metric_value,
        };
        (sum.total.abs() <= MAX_METRIC).then_some(sum)
    }
}

/// The locality of a client, as [`locality_text`] writes it.
///
/// # Errors
/// A name in the node is too long.
pub(crate) fn client_locality(node: &Node) -> Result<String, Errors> {
    let mut v = Validator::default();
    let text = v.field("node", |v| {
        for (field, text) in [
            ("id", &node.id),
            ("cluster", &node.cluster),
            ("user_agent_name", &node.user_agent_name),
        ] {
            check_length(v, field, text);
        }
        locality_text(v, node.locality.as_ref())
    });
    v.finish(text)
}

/// A locality as people write it: `eu/a`. It is empty if a client or backend has none.
///
/// Localities that are written alike are one, because rows and labels must be unique.
fn locality_text(v: &mut Validator, locality: Option<&Locality>) -> String {
    let Some(Locality {
        region,
        zone,
        sub_zone,
    }) = locality
    else {
        return String::new();
    };
    v.field("locality", |v| {
        for (field, text) in [("region", region), ("zone", zone), ("sub_zone", sub_zone)] {
            check_length(v, field, text);
        }
    });
    let id = LocalityId::new(region, zone, sub_zone);
    if id == LocalityId::default() {
        return String::new();
    }
    id.to_string()
}

/// Reads each element of a list, unless the list is too long.
fn list<T, R>(
    v: &mut Validator,
    field: &str,
    elements: Vec<T>,
    limit: usize,
    mut parse: impl FnMut(&mut Validator, T) -> R,
) -> Vec<R> {
    v.field(field, |v| {
        if elements.len() > limit {
            v.error(format!("expected at most {limit}, got {}", elements.len()));
            return Vec::new();
        }
        let elements = elements.into_iter().enumerate();
        elements
            .map(|(at, element)| v.index(at, |v| parse(v, element)))
            .collect()
    })
}

fn name(v: &mut Validator, field: &str, text: String) -> String {
    check_length(v, field, &text);
    text
}

fn check_length(v: &mut Validator, field: &str, text: &str) {
    if text.len() > MAX_NAME {
        let message = format!("expected at most {MAX_NAME} bytes, got {}", text.len());
        v.error_at(field, message);
    }
}

/// A count; zero after an error, so that sums do not overflow.
fn count(v: &mut Validator, field: &str, value: u64) -> u64 {
    if value > MAX_COUNT {
        v.error_at(field, format!("expected at most {MAX_COUNT}, got {value}"));
        return 0;
    }
    value
}

fn duration(v: &mut Validator, proto: protobuf::Duration) -> Option<Duration> {
    let seconds = u64::try_from(proto.seconds).ok();
    let nanos = u32::try_from(proto.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    let (Some(seconds), Some(nanos)) = (seconds, nanos) else {
        let message = format!(
            "expected a duration, got {} s and {} ns",
            proto.seconds, proto.nanos
        );
        v.error_at("load_report_interval", message);
        return None;
    };
    Some(Duration::new(seconds, nanos))
}
