//! Clients that do not take what they are sent.

use std::time::Duration;

use crowfly_control::{ControlPlane, Limits};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Streaming};

use super::support::{
    AdsClient, CLUSTER, ENDPOINTS, get_json, metric, services, snapshot, soon, until,
};
use super::{HONEST, HOSTILE, Hostile, honest_client_is_served, limited, plane, subscribe};

/// L-07: a client that never reads is named, and then its connection is closed. Nothing waits for it but one
/// response.
#[tokio::test]
async fn a_client_that_never_reads_is_named_and_closed() {
    let limits = Limits {
        slow_after: Duration::from_millis(200),
        close_after: Duration::from_secs(4),
        ..Limits::default()
    };
    let large = large_services(1);
    let plane = plane(&large, limits).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(1 << 10)
        .initial_connection_window_size(1 << 16);
    let hostile = Hostile::open_on(endpoint.connect().await.unwrap())
        .await
        .unwrap();
    let mut wildcard = subscribe([]);
    wildcard.type_url = CLUSTER.to_owned();
    hostile.send(wildcard).await;
    let admin = plane.admin_addr().unwrap();
    // It does not read, and everything changes, again and again.
    let mut turn = 2;
    until(async || {
        turn += 1;
        plane.set_snapshot(snapshot(&large_services(turn)));
        // The page is asked at once, because the client is shown until it is closed.
        let shown = get_json(admin, "/clients").await;
        let client = &shown["clients"][0];
        client["slow_since"].as_u64().is_some() && client["node"]["id"] == HOSTILE
    })
    .await;
    until(async || limited(&plane, "slow_after").await > 0.0).await;
    honest_client_is_served(&plane).await;

    until(async || limited(&plane, "close_after").await > 0.0).await;
    let open = "crowfly_control_streams";
    until(async || metric(admin, open).await == 0.0).await;
    let connections = "crowfly_control_connections";
    until(async || metric(admin, connections).await == 0.0).await;
}

/// A client by state of the world that asks for all clusters, takes a part of the response, and reads no more.
struct Stuck {
    requests: mpsc::Sender<DiscoveryRequest>,
    _responses: Streaming<DiscoveryResponse>,
}

impl Stuck {
    async fn open(plane: &ControlPlane) -> Self {
        let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
        let endpoint = endpoint.initial_stream_window_size(1 << 15);
        let mut client = AggregatedDiscoveryServiceClient::new(endpoint.connect().await.unwrap());
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
        let stuck = Self {
            requests,
            _responses: soon(responses).await.unwrap().into_inner(),
        };
        stuck.ask(CLUSTER).await;
        let sent = "crowfly_control_responses_total{type=\"envoy.config.cluster.v3.Cluster\"}";
        let admin = plane.admin_addr().unwrap();
        until(async || metric(admin, sent).await >= 1.0).await;
        stuck
    }

    async fn ask(&self, type_url: &str) {
        let request = DiscoveryRequest {
            node: Some(Node {
                id: HOSTILE.to_owned(),
                ..Node::default()
            }),
            type_url: type_url.to_owned(),
            ..DiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }
}

async fn all_connections_end(plane: &ControlPlane) {
    let admin = plane.admin_addr().unwrap();
    for open in ["crowfly_control_streams", "crowfly_control_connections"] {
        until(async || metric(admin, open).await == 0.0).await;
    }
}

/// L-07: a client that stops in the middle of a response is named and closed, although it is to be sent nothing
/// else.
#[tokio::test]
async fn a_client_that_stops_in_a_response_is_named_and_closed() {
    let limits = Limits {
        slow_after: Duration::from_millis(100),
        close_after: Duration::from_millis(500),
        ..Limits::default()
    };
    let plane = plane(&large_services(1), limits).await;
    let _stuck = Stuck::open(&plane).await;
    until(async || limited(&plane, "slow_after").await > 0.0).await;
    until(async || limited(&plane, "close_after").await > 0.0).await;
    all_connections_end(&plane).await;
}

/// L-07: a client that reports loads and does not take what it is asked for is closed, too.
#[tokio::test]
async fn a_reporter_that_never_reads_is_closed() {
    let limits = Limits {
        close_after: Duration::from_millis(300),
        ..Limits::default()
    };
    let plane = plane(&large_services(1), limits).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1 << 10);
    let mut loads = LoadReportingServiceClient::new(endpoint.connect().await.unwrap());
    let node = Node {
        id: HOSTILE.to_owned(),
        ..Node::default()
    };
    let (reports, receiver) = mpsc::channel(1);
    let first = LoadStatsRequest {
        node: Some(node),
        ..LoadStatsRequest::default()
    };
    reports.send(first).await.unwrap();
    let asked = loads.stream_load_stats(ReceiverStream::new(receiver));
    let _unread = soon(asked).await.unwrap();
    let closed = "crowfly_control_limited_total{limit=\"close_after\",node=\"\"}";
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, closed).await > 0.0).await;
    let open = "crowfly_control_connections";
    until(async || metric(admin, open).await == 0.0).await;
}

/// L-07: the status of a stream that we end is told when the client has taken all before it. Else the connection is
/// closed, so that no stream lives on that does not count.
#[tokio::test]
async fn a_stuck_stream_that_we_end_does_not_live_on() {
    let plane = plane(&large_services(1), Limits::default()).await;
    let stuck = Stuck::open(&plane).await;
    stuck.ask("").await;
    all_connections_end(&plane).await;
}

fn large_services(port: u16) -> String {
    let names: Vec<String> = (0..200)
        .map(|index| format!("service-{index}-{port}-{}", "x".repeat(200)))
        .collect();
    let all: Vec<(&str, u16)> = names.iter().map(|name| (name.as_str(), port)).collect();
    services(&all)
}

/// L-12: shutdown does not wait for a client that does not read, and tells the others.
#[tokio::test]
async fn shutdown_does_not_wait_for_slow_readers() {
    let plane = plane(&large_services(1), Limits::default()).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1 << 10);
    let hostile = Hostile::open_on(endpoint.connect().await.unwrap())
        .await
        .unwrap();
    let mut wildcard = subscribe([]);
    wildcard.type_url = CLUSTER.to_owned();
    hostile.send(wildcard).await;
    let mut honest = AdsClient::open(plane.listen_addr()).await;
    honest.subscribe(HONEST, ENDPOINTS, &["absent"]).await;
    let admin = plane.admin_addr().unwrap();
    let responses = "crowfly_control_responses_total{type=\"envoy.config.cluster.v3.Cluster\"}";
    until(async || metric(admin, responses).await >= 1.0).await;
    plane.set_snapshot(snapshot(&large_services(2)));

    let told = async {
        loop {
            if let Err(status) = honest.try_next().await {
                return status;
            }
        }
    };
    let (status, ()) = tokio::join!(told, soon(plane.shutdown()));
    assert_eq!(status.code(), Code::Unavailable);
    // Its connection is closed, although it did not read.
    let end = hostile.end().await;
    assert_ne!(end.code(), Code::Ok);
}
