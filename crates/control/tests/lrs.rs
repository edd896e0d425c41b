//! LRS over a real socket, as a client without a library would see it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::ControlPlane;
use crowfly_control::loads::{LoadRow, Loads};
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_stats::DroppedRequests;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UpstreamLocalityStats,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use support::{channel, get, get_json, plane, services, snapshot, soon};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// One LRS stream, with nothing in between.
struct LrsClient {
    requests: mpsc::Sender<LoadStatsRequest>,
    responses: Streaming<LoadStatsResponse>,
}

impl LrsClient {
    async fn open(address: SocketAddr) -> Self {
        let mut client = LoadReportingServiceClient::new(channel(address).await);
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.stream_load_stats(ReceiverStream::new(receiver));
        Self {
            requests,
            responses: soon(responses).await.unwrap().into_inner(),
        }
    }

    /// Opens a stream of a client that can report all clusters. Returns the first response as well.
    async fn introduced(address: SocketAddr, zone: &str) -> (Self, LoadStatsResponse) {
        let mut client = Self::open(address).await;
        client.introduce(node(zone, true)).await;
        let first = client.next().await;
        (client, first)
    }

    async fn introduce(&self, node: Node) {
        self.send(LoadStatsRequest {
            node: Some(node),
            cluster_stats: Vec::new(),
        })
        .await;
    }

    async fn report(&self, cluster_stats: Vec<ClusterStats>) {
        self.send(LoadStatsRequest {
            node: None,
            cluster_stats,
        })
        .await;
    }

    async fn send(&self, request: LoadStatsRequest) {
        self.requests.send(request).await.unwrap();
    }

    async fn next(&mut self) -> LoadStatsResponse {
        let response = soon(self.responses.message()).await;
        response.unwrap().expect("the stream ended")
    }

    /// The status with which the server ends the stream.
    async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = soon(self.responses.message()).await {
                return status;
            }
        }
    }
}

fn node(zone: &str, supports_all: bool) -> Node {
    let feature = "envoy.lrs.supports_send_all_clusters".to_owned();
    Node {
        id: format!("node-{zone}"),
        user_agent_name: "gRPC Test".to_owned(),
        locality: Some(Locality {
            region: "eu".to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }),
        client_features: if supports_all { vec![feature] } else { vec![] },
        ..Node::default()
    }
}

fn stats(cluster: &str, [issued, succeeded, errors, open]: [u64; 4]) -> ClusterStats {
    let locality = UpstreamLocalityStats {
        locality: Some(Locality {
            region: "eu".to_owned(),
            zone: "b".to_owned(),
            sub_zone: String::new(),
        }),
        total_issued_requests: issued,
        total_successful_requests: succeeded,
        total_error_requests: errors,
        total_requests_in_progress: open,
        ..UpstreamLocalityStats::default()
    };
    ClusterStats {
        cluster_name: cluster.to_owned(),
        upstream_locality_stats: vec![locality],
        load_report_interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        ..ClusterStats::default()
    }
}

fn counts(row: &LoadRow) -> [u64; 4] {
    [row.issued, row.succeeded, row.errors, row.in_progress]
}

/// Looks at the loads until they are as expected; a report arrives when it arrives.
async fn until(plane: &ControlPlane, expected: impl Fn(&Loads) -> bool) -> Loads {
    soon(async {
        loop {
            let loads = plane.loads();
            if expected(&loads) {
                return loads;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

async fn two_services() -> ControlPlane {
    plane(&services(&[("cart", 1), ("shop", 2)])).await
}

/// P-32: LRS is on the address of ADS. A client that introduces itself is told the interval, and to
/// report all clusters.
#[tokio::test]
async fn a_client_is_asked_for_all_of_its_clusters() {
    let plane = two_services().await;
    let (_client, first) = LrsClient::introduced(plane.listen_addr(), "a").await;
    assert!(first.send_all_clusters && first.clusters.is_empty());
    let interval = protobuf::Duration {
        seconds: 10,
        nanos: 0,
    };
    assert_eq!(first.load_reporting_interval, Some(interval));
    assert!(!first.report_endpoint_granularity);
    let loads = plane.loads();
    let [reporter] = loads.reporters.as_slice() else {
        unreachable!("{loads:?}");
    };
    assert_eq!(reporter.node, "node-a");
    assert_eq!(reporter.user_agent, "gRPC Test");
    assert_eq!(reporter.locality, "eu/a");
}

/// The server's half of a list: a client that cannot report all clusters is told the names of those
/// that are served, and told again when they change.
#[tokio::test]
async fn a_client_without_the_feature_is_told_the_clusters() {
    let plane = two_services().await;
    let mut client = LrsClient::open(plane.listen_addr()).await;
    client.introduce(node("a", false)).await;
    let first = client.next().await;
    assert!(!first.send_all_clusters);
    assert_eq!(first.clusters, ["cart", "shop"]);

    // The same names again are no news; the response after that has the new ones.
    plane.set_snapshot(snapshot(&services(&[("cart", 1), ("shop", 3)])));
    plane.set_snapshot(snapshot(&services(&[("pay", 1), ("shop", 3)])));
    let second = client.next().await;
    assert_eq!(second.clusters, ["pay", "shop"]);
    assert_eq!(
        second.load_reporting_interval,
        first.load_reporting_interval
    );
}

/// The server's half of a new interval: it reaches every client. Less than a second is a second.
#[tokio::test]
async fn a_new_interval_is_told() {
    let plane = two_services().await;
    let (mut client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    for (set, told) in [
        (Duration::from_millis(2_500), (2, 500_000_000)),
        (Duration::from_millis(1), (1, 0)),
    ] {
        plane.set_load_report_interval(set);
        let response = client.next().await;
        let interval = response.load_reporting_interval.unwrap();
        assert_eq!((interval.seconds, interval.nanos), told);
        assert!(response.send_all_clusters);
    }
}

/// S13-02, S13-05: the figures of two clients in two zones, until one of them vanishes. Its calls in
/// progress go with it.
#[tokio::test]
async fn two_clients_report_and_one_vanishes() {
    let plane = two_services().await;
    let (one, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let (two, _) = LrsClient::introduced(plane.listen_addr(), "b").await;
    one.report(vec![stats("shop", [10, 5, 2, 3])]).await;
    two.report(vec![
        stats("shop", [20, 12, 0, 8]),
        stats("cart", [1, 1, 0, 0]),
    ])
    .await;
    two.report(vec![stats("shop", [0, 7, 0, 1])]).await;
    let loads = until(&plane, |loads| loads.reports == 3).await;
    let rows = loads.rows.iter().map(|row| {
        let localities = (
            row.client_locality.as_str(),
            row.backend_locality.as_deref(),
        );
        (row.service.as_str(), localities, counts(row))
    });
    let rows: Vec<_> = rows.collect();
    let b = Some("eu/b");
    let expected = [
        ("cart", ("eu/b", b), [1, 1, 0, 0]),
        ("shop", ("eu/a", b), [10, 5, 2, 3]),
        ("shop", ("eu/b", b), [20, 19, 0, 1]),
    ];
    assert_eq!(rows, expected);

    drop(one);
    let loads = until(&plane, |loads| loads.reporters.len() == 1).await;
    assert_eq!(counts(&loads.rows[1]), [10, 5, 2, 0]);
    assert_eq!(counts(&loads.rows[2]), [20, 19, 0, 1]);
}

/// An Envoy that lost its stream counts on, and sends the counts in the first message of the next.
#[tokio::test]
async fn the_first_message_may_have_counts() {
    let plane = two_services().await;
    let client = LrsClient::open(plane.listen_addr()).await;
    let mut shop = stats("shop", [4, 4, 0, 0]);
    shop.total_dropped_requests = 7;
    shop.dropped_requests = vec![DroppedRequests {
        category: "throttle".to_owned(),
        dropped_count: 5,
    }];
    client
        .send(LoadStatsRequest {
            node: Some(node("a", true)),
            cluster_stats: vec![shop],
        })
        .await;
    let loads = until(&plane, |loads| loads.reports == 1).await;
    let [drops, calls] = loads.rows.as_slice() else {
        unreachable!("{loads:?}");
    };
    assert_eq!(counts(calls), [4, 4, 0, 0]);
    assert_eq!(drops.dropped, 7);
    assert_eq!(drops.dropped_by_category["throttle"], 5);
}

/// The clusters of a service's own endpoints and of its DNS names belong to the service.
#[tokio::test]
async fn clusters_are_told_by_service() {
    let config = r#"
services:
- { name: shop, fallback: [cart, { dns: "example.com:443" }] }
- name: cart
  endpoints: [{ address: "10.0.0.1:1" }]
  tls: { ca: mesh, san: ["cart"] }
  fallback: [{ dns: "example.com:443" }]
"#;
    let plane = plane(config).await;
    let (client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let clusters = [
        "shop/endpoints",
        "dns:example.com:443",
        "cart/endpoints",
        "cart/dns:example.com:443",
        "stranger/endpoints",
    ];
    let report = clusters.map(|name| stats(name, [1, 1, 0, 0]));
    client.report(report.into()).await;
    let loads = until(&plane, |loads| !loads.rows.is_empty()).await;
    let rows: Vec<_> = loads
        .rows
        .iter()
        .map(|row| (row.service.as_str(), row.cluster.as_str()))
        .collect();
    let expected = [
        ("cart", "cart/dns:example.com:443"),
        ("cart", "cart/endpoints"),
        ("dns:example.com:443", "dns:example.com:443"),
        ("shop", "shop/endpoints"),
        ("stranger/endpoints", "stranger/endpoints"),
    ];
    assert_eq!(rows, expected);
}

/// A client may report a cluster before the listener of its service is served. The row is told under
/// the service as soon as that is there.
#[tokio::test]
async fn a_cluster_belongs_to_the_service_that_is_served_now() {
    let plane = two_services().await;
    let (client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    client.report(vec![stats("late/endpoints", [1; 4])]).await;
    let loads = until(&plane, |loads| !loads.rows.is_empty()).await;
    assert_eq!(loads.rows[0].service, "late/endpoints");
    plane.set_snapshot(snapshot(&services(&[("late", 1)])));
    let loads = until(&plane, |loads| loads.rows[0].service == "late").await;
    assert_eq!(loads.rows[0].cluster, "late/endpoints");
}

/// The pages of the admin port show the loads: as JSON, and for Prometheus.
#[tokio::test]
async fn pages_show_the_loads() {
    let plane = two_services().await;
    let admin = plane.admin_addr().unwrap();
    let (client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let mut shop = stats("shop", [10, 5, 2, 3]);
    shop.total_dropped_requests = 7;
    shop.dropped_requests = vec![DroppedRequests {
        category: "throttle".to_owned(),
        dropped_count: 4,
    }];
    client.report(vec![shop]).await;
    until(&plane, |loads| !loads.rows.is_empty()).await;

    let page = get_json(admin, "/loads").await;
    assert_eq!(page["interval_seconds"], 10.0);
    assert_eq!(page["rows"][0]["backend_locality"], serde_json::Value::Null);
    assert_eq!(page["rows"][0]["dropped"], 7);
    let row = &page["rows"][1];
    assert_eq!(row["service"], "shop");
    assert_eq!(row["client_locality"], "eu/a");
    assert_eq!(row["in_progress"], 3);
    assert_eq!(row["calls_per_second"], 1.0);
    let mut loads: Loads = serde_json::from_value(page).unwrap();
    assert_eq!(loads.rows[1].history[0].issued, 10);
    let mut now = plane.loads();
    // Its times are those of the moment in which one looks.
    for row in loads.rows.iter_mut().chain(&mut now.rows) {
        row.history.clear();
    }
    assert_eq!(loads.rows, now.rows);

    let (status, metrics) = get(admin, "/metrics").await;
    assert_eq!(status, 200);
    let row = r#"{service="shop",cluster="shop",client_locality="eu/a",backend_locality="eu/b"}"#;
    let drops = r#"{service="shop",cluster="shop",client_locality="eu/a",category="#;
    for line in [
        format!("crowfly_control_load_issued_total{row} 10"),
        format!("crowfly_control_load_succeeded_total{row} 5"),
        format!("crowfly_control_load_errors_total{row} 2"),
        format!("crowfly_control_load_in_progress{row} 3"),
        format!(r#"crowfly_control_load_dropped_total{drops}"throttle"}} 4"#),
        format!(r#"crowfly_control_load_dropped_total{drops}""}} 3"#),
        "crowfly_control_load_streams 1".to_owned(),
        "crowfly_control_load_reports_total 1".to_owned(),
        "crowfly_control_load_reports_refused_total 0".to_owned(),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
}

/// A client must say who it is.
#[tokio::test]
async fn a_stranger_is_refused() {
    let plane = two_services().await;
    let mut client = LrsClient::open(plane.listen_addr()).await;
    client.report(vec![stats("shop", [1, 1, 0, 0])]).await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    let told = "node: must be set in the first message of a stream";
    assert_eq!(status.message(), told);
    let loads = plane.loads();
    assert_eq!((loads.refused_reports, loads.rows.len()), (1, 0));
}

/// A bad report ends its stream with the reason, and nothing of it is counted. What the client
/// reported before stays.
#[tokio::test]
async fn a_bad_report_is_refused_whole() {
    let plane = two_services().await;
    let (mut client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    client.report(vec![stats("shop", [1, 0, 0, 1])]).await;
    let bad = (0..50).map(|_| stats("cart", [u64::MAX, 0, 0, 0]));
    let good = [stats("shop", [1, 0, 0, 1])];
    client.report(good.into_iter().chain(bad).collect()).await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    let problem = "cluster_stats[1].upstream_locality_stats[0].total_issued_requests: \
                   expected at most 1099511627776, got 18446744073709551615; ";
    assert!(status.message().starts_with(problem), "{status:?}");
    assert!(status.message().ends_with("; and 45 more"), "{status:?}");
    let loads = until(&plane, |loads| loads.reporters.is_empty()).await;
    assert_eq!(loads.refused_reports, 1);
    assert_eq!(counts(&loads.rows[0]), [1, 0, 0, 0]);
    assert_eq!(loads.rows.len(), 1);
}

/// gRFC A64: a backend that sends an odd metric costs its clients that metric alone. The other figures
/// of the report are kept, and so is the stream.
#[tokio::test]
async fn an_odd_metric_is_left_out_and_the_stream_lives_on() {
    let plane = two_services().await;
    let (client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let mut odd = stats("shop", [4, 2, 1, 1]);
    let values = [("odd", f64::NAN), ("fair", 2.0)];
    let metrics = values.map(|(name, total_metric_value)| EndpointLoadMetricStats {
        metric_name: name.to_owned(),
        num_requests_finished_with_metric: 2,
        total_metric_value,
    });
    odd.upstream_locality_stats[0].load_metric_stats = metrics.into();
    client.report(vec![odd, stats("cart", [1, 1, 0, 0])]).await;
    client.report(vec![stats("shop", [1, 2, 0, 0])]).await;
    let loads = until(&plane, |loads| loads.reports == 2).await;
    assert_eq!(counts(&loads.rows[0]), [1, 1, 0, 0]);
    assert_eq!(counts(&loads.rows[1]), [5, 4, 1, 0]);
    let kept: Vec<_> = loads.rows[1].metrics.keys().collect();
    assert_eq!(kept, ["fair"]);
    assert_eq!((loads.refused_metrics, loads.refused_reports), (1, 0));
    let (_, metrics) = get(plane.admin_addr().unwrap(), "/metrics").await;
    let line = "crowfly_control_load_metrics_refused_total 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

/// Names that would fill our memory are refused, in a node too.
#[tokio::test]
async fn a_node_with_endless_names_is_refused() {
    let plane = two_services().await;
    let mut client = LrsClient::open(plane.listen_addr()).await;
    client.introduce(node(&"z".repeat(100_000), true)).await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    let told = "node.id: expected at most 512 bytes, got 100005; \
                node.locality.zone: expected at most 512 bytes, got 100000";
    assert_eq!(status.message(), told);
}

/// A client that sends reports without end is stopped, and other clients are served.
#[tokio::test]
async fn a_flood_is_stopped() {
    let plane = two_services().await;
    let (mut flood, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let requests = flood.requests.clone();
    let sending = tokio::spawn(async move {
        let report = LoadStatsRequest {
            node: None,
            cluster_stats: vec![stats("shop", [1, 1, 0, 0])],
        };
        while requests.send(report.clone()).await.is_ok() {}
    });
    let status = flood.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "too many reports: expected one each 10s");
    sending.abort();
    let loads = until(&plane, |loads| loads.reporters.is_empty()).await;
    assert!(loads.rows[0].issued <= 32, "{loads:?}");
    LrsClient::introduced(plane.listen_addr(), "b").await;
}

/// A report that is too large is not read.
#[tokio::test]
async fn a_huge_report_is_not_read() {
    let plane = two_services().await;
    let (mut client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let name = "x".repeat(1 << 20);
    client
        .report((0..17).map(|_| stats(&name, [0; 4])).collect())
        .await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(
        status.message().contains("limit is: 16777216 bytes"),
        "{status:?}"
    );
    let loads = until(&plane, |loads| loads.reporters.is_empty()).await;
    assert_eq!(loads.refused_reports, 1);
}

/// A small message that would become a large one is not decoded.
#[tokio::test]
async fn a_report_of_endless_lists_is_not_decoded() {
    let plane = two_services().await;
    let (mut client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    let mut shop = stats("shop", [0; 4]);
    shop.upstream_locality_stats = vec![UpstreamLocalityStats::default(); 250_000];
    client.report(vec![shop]).await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let told =
        "limit request_bytes: expected at most 250000 clusters, localities, metrics and categories";
    assert_eq!(status.message(), told);
    let loads = until(&plane, |loads| loads.reporters.is_empty()).await;
    assert_eq!(loads.refused_reports, 1);
}

/// A client that does not read responses is still heard, and told the newest interval when it reads.
#[tokio::test]
async fn a_client_that_does_not_read_costs_nothing() {
    let plane = two_services().await;
    let (mut client, _) = LrsClient::introduced(plane.listen_addr(), "a").await;
    for seconds in 20..1_000 {
        plane.set_load_report_interval(Duration::from_secs(seconds));
    }
    client.report(vec![stats("shop", [1, 1, 0, 0])]).await;
    until(&plane, |loads| loads.rows.len() == 1).await;
    let mut told = 0;
    let newest = soon(async {
        loop {
            told += 1;
            let interval = client.next().await.load_reporting_interval.unwrap();
            if interval.seconds == 999 {
                return told;
            }
        }
    });
    assert!(newest.await < 1_000);
}

/// A control plane that restarts begins at zero; a client that comes again is counted from there.
#[tokio::test]
async fn counters_begin_anew_with_the_control_plane() {
    let plane = two_services().await;
    let address = plane.listen_addr();
    let (mut client, _) = LrsClient::introduced(address, "a").await;
    client.report(vec![stats("shop", [5, 3, 0, 2])]).await;
    until(&plane, |loads| loads.rows.len() == 1).await;
    plane.shutdown().await;
    let status = client.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "the control plane is shutting down");

    let config = snapshot(&services(&[("cart", 1), ("shop", 2)]));
    let plane = ControlPlane::with_snapshot(config, address, None)
        .await
        .unwrap();
    let (client, first) = LrsClient::introduced(address, "a").await;
    assert!(first.send_all_clusters);
    client.report(vec![stats("shop", [1, 1, 0, 2])]).await;
    let loads = until(&plane, |loads| loads.rows.len() == 1).await;
    assert_eq!(counts(&loads.rows[0]), [1, 1, 0, 2]);
}
