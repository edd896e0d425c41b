//! Clients that mean harm by load reports, over real sockets.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use crowfly_control::{ControlPlane, Limits, Ports};
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use support::{any_port, channel, get, metric, service, snapshot, soon, until};
use tonic::Status;
use tonic::transport::Channel;

async fn plane(limits: Limits) -> ControlPlane {
    let ports = Ports::new(any_port()).admin(any_port()).limits(limits);
    ControlPlane::with_ports(snapshot(&service("shop", 1)), ports)
        .await
        .unwrap()
}

/// A report of one call to a cluster, in a zone.
fn report(cluster: &str, zone: &str) -> LoadStatsRequest {
    let locality = UpstreamLocalityStats {
        locality: Some(Locality {
            zone: zone.to_owned(),
            ..Locality::default()
        }),
        total_issued_requests: 1,
        ..UpstreamLocalityStats::default()
    };
    let stats = ClusterStats {
        cluster_name: cluster.to_owned(),
        upstream_locality_stats: vec![locality],
        ..ClusterStats::default()
    };
    LoadStatsRequest {
        node: None,
        cluster_stats: vec![stats],
    }
}

/// Sends all reports on a stream of its own, and ends it.
async fn send(channel: &Channel, reports: Vec<LoadStatsRequest>) -> Result<(), Status> {
    let first = LoadStatsRequest {
        node: Some(Node {
            id: "hostile-1".to_owned(),
            ..Node::default()
        }),
        cluster_stats: Vec::new(),
    };
    let all: Vec<_> = [first].into_iter().chain(reports).collect();
    let mut client = LoadReportingServiceClient::new(channel.clone());
    let responses = client.stream_load_stats(tokio_stream::iter(all)).await?;
    let mut responses = responses.into_inner();
    while responses.message().await?.is_some() {}
    Ok(())
}

/// L-05: reports count to the requests of their connection, so that a client that opens streams without end cannot
/// report without end. It is read more slowly.
#[tokio::test]
async fn reports_on_many_streams_are_slowed() {
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let plane = plane(limits).await;
    let admin = plane.admin_addr().unwrap();
    let channel = channel(plane.listen_addr()).await;
    let flood = tokio::spawn(async move {
        loop {
            // More on one stream would be too many for the stream itself.
            let reports = (0..32).map(|_| report("shop", "a")).collect();
            if send(&channel, reports).await.is_err() {
                return;
            }
        }
    });
    let name = "crowfly_control_limited_total{limit=\"requests_per_second\",node=\"hostile-1\"}";
    until(async || metric(admin, name).await > 0.0).await;
    let reports = plane.loads().reports;
    assert!(reports < 1_000, "{reports} reports were taken before");
    flood.abort();
}

/// F-07: clusters that the control plane does not serve are no labels of metrics. Their figures are in a sum, and the
/// page of loads names them.
#[tokio::test]
async fn invented_clusters_are_no_labels() {
    let plane = plane(Limits::default()).await;
    let channel = channel(plane.listen_addr()).await;
    let reports = ["invented-1", "invented-2", "shop"].map(|cluster| report(cluster, "a"));
    soon(send(&channel, reports.into())).await.unwrap();
    let (_, text) = get(plane.admin_addr().unwrap(), "/metrics").await;
    assert!(!text.contains("invented"), "{text}");
    let of = |name: &str, zone: &str, count: u8| {
        format!(
            "crowfly_control_load_issued_total{{service=\"{name}\",cluster=\"{name}\",client_locality=\"\",\
             backend_locality=\"{zone}\"}} {count}"
        )
    };
    for line in [of("(others)", "", 2), of("shop", "/a", 1)] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let rows = plane.loads().rows;
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.cluster.as_str(), row.is_served))
        .collect();
    let expected = [("invented-1", false), ("invented-2", false), ("shop", true)];
    assert_eq!(rows, expected);
}

/// L-11: the clients of one address have a share of the rows, on however many streams.
#[tokio::test]
async fn rows_are_shared_between_addresses() {
    let limits = Limits {
        address_share: 0.0004,
        ..Limits::default()
    };
    let plane = plane(limits).await;
    let channel = channel(plane.listen_addr()).await;
    for stream in 0..3 {
        let clusters = (0..10).map(|index| report(&format!("{stream}-{index}"), "a"));
        soon(send(&channel, clusters.collect())).await.unwrap();
    }
    let loads = plane.loads();
    assert_eq!((loads.rows.len(), loads.refused_rows), (20, 10));
}
