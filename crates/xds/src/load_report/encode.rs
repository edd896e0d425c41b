//! A report as the message that the server gets.
//!
//! The report is kept beside its message, because its counts are put back if no connection takes the message.

use std::time::Instant;

use crowfly_names::{LocalityLoad, MetricSum};
use envoy_types::pb::envoy::config::core::v3::Locality;
use envoy_types::pb::envoy::config::endpoint::v3::cluster_stats::DroppedRequests;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamLocalityStats,
};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::google::protobuf;

use super::books::{Book, ClusterKey, Report};

/// The request with a report that is made now.
pub(super) fn request(report: &Report, now: Instant) -> LoadStatsRequest {
    let clusters = report.clusters.iter();
    LoadStatsRequest {
        node: None,
        cluster_stats: clusters
            .map(|(key, book)| cluster(key, book, now))
            .collect(),
    }
}

fn cluster((name, eds_service_name): &ClusterKey, book: &Book, now: Instant) -> ClusterStats {
    let counts = &book.counts;
    let by_category: u64 = counts.drops.values().sum();
    let drops = counts
        .drops
        .iter()
        .map(|(category, count)| DroppedRequests {
            category: category.to_string(),
            dropped_count: *count,
        });
    let interval = now.duration_since(book.since);
    ClusterStats {
        cluster_name: name.to_string(),
        cluster_service_name: eds_service_name.as_deref().unwrap_or_default().to_owned(),
        upstream_locality_stats: counts.localities.values().map(locality).collect(),
        // Drops by the limit of open calls have no category.
        total_dropped_requests: by_category + counts.uncategorized_drops,
        dropped_requests: drops.collect(),
        load_report_interval: Some(protobuf::Duration {
            seconds: interval.as_secs().try_into().unwrap_or(i64::MAX),
            nanos: interval.subsec_nanos().cast_signed(),
        }),
    }
}

fn locality(load: &LocalityLoad) -> UpstreamLocalityStats {
    let id = &load.locality;
    let metrics = &load.metrics;
    let named = metrics.named.iter();
    UpstreamLocalityStats {
        locality: Some(Locality {
            region: id.region().to_owned(),
            zone: id.zone().to_owned(),
            sub_zone: id.sub_zone().to_owned(),
        }),
        total_successful_requests: load.succeeded,
        total_requests_in_progress: load.in_progress,
        total_error_requests: load.errors,
        total_issued_requests: load.issued,
        total_active_connections: load.connections.active,
        total_new_connections: load.connections.opened,
        total_fail_connections: load.connections.failed,
        cpu_utilization: unnamed(metrics.cpu_utilization),
        mem_utilization: unnamed(metrics.mem_utilization),
        application_utilization: unnamed(metrics.application_utilization),
        load_metric_stats: named
            .map(|(name, sum)| EndpointLoadMetricStats {
                metric_name: name.clone(),
                num_requests_finished_with_metric: sum.calls,
                total_metric_value: sum.total,
            })
            .collect(),
        ..UpstreamLocalityStats::default()
    }
}

/// A metric that no call came with is left out.
fn unnamed(sum: MetricSum) -> Option<UnnamedEndpointLoadMetricStats> {
    (sum.calls > 0).then_some(UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: sum.calls,
        total_metric_value: sum.total,
    })
}
