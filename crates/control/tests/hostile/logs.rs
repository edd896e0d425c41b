//! Clients that fill the log.

use std::time::Instant;

use crowfly_control::Limits;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::google::rpc;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::support::log::LogLines;
use super::support::{channel, metric, soon, until};
use super::{Hostile, honest, limited, plane, subscribe};

/// L-05: a client that refuses without end writes a line of log in a second, after ten.
#[tokio::test]
async fn endless_refusals_do_not_fill_the_log() {
    let lines = LogLines::beginning("refused: ");
    let _guard = tracing::subscriber::set_default(lines.clone());
    let plane = plane(&honest(), Limits::default()).await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    let started = Instant::now();
    for _ in 0..100 {
        // A name that is asked for again is sent again.
        hostile.send(subscribe(["a".to_owned()])).await;
        let response = soon(hostile.responses.message()).await.unwrap().unwrap();
        let refusal = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail: Some(rpc::Status::default()),
            ..subscribe([])
        };
        hostile.send(refusal).await;
    }
    let refused =
        "crowfly_control_nacks_total{type=\"envoy.config.endpoint.v3.ClusterLoadAssignment\"}";
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, refused).await >= 100.0).await;
    few(&lines, started);
}

/// L-15: clients that come and go without end write ten lines of log in a second, after three hundred.
#[tokio::test]
async fn clients_that_come_and_go_do_not_fill_the_log() {
    const STREAMS: u32 = 1_000;
    let lines = LogLines::beginning("client gone");
    let _guard = tracing::subscriber::set_default(lines.clone());
    let limits = Limits {
        requests_per_second: 1_000_000,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let channel = channel(plane.listen_addr()).await;
    let started = Instant::now();
    for _ in 0..STREAMS {
        let mut hostile = Hostile::open_on(channel.clone()).await.unwrap();
        hostile.send(subscribe(["a".to_owned()])).await;
        soon(hostile.responses.message()).await.unwrap().unwrap();
    }
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, "crowfly_control_streams").await == 0.0).await;
    let count = lines.count();
    let most = 311 + 10 * usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&count), "{count} lines");
}

/// L-15: a name of a node that is too long for the log is refused by its field.
#[tokio::test]
async fn a_long_name_of_a_node_is_refused() {
    let plane = plane(&honest(), Limits::default()).await;
    let long = || "x".repeat(513);
    for (node, field) in [
        (
            Node {
                id: long(),
                ..Node::default()
            },
            "id",
        ),
        (
            Node {
                cluster: long(),
                ..Node::default()
            },
            "cluster",
        ),
        (
            Node {
                user_agent_name: long(),
                ..Node::default()
            },
            "user_agent_name",
        ),
    ] {
        let hostile = Hostile::open(plane.listen_addr()).await;
        let request = DeltaDiscoveryRequest {
            node: Some(node),
            ..subscribe([])
        };
        hostile.send(request).await;
        let status = hostile.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        let told = format!("node.{field}: expected at most 512 bytes, got 513");
        assert_eq!(status.message(), told);
    }
}

/// Checks that lines were told, and no more than ten at once and one in a second since `started`.
fn few(lines: &LogLines, started: Instant) {
    let most = 11 + usize::try_from(started.elapsed().as_secs()).unwrap();
    let count = lines.count();
    assert!((1..=most).contains(&count), "{count} lines");
}

fn free_requests() -> Limits {
    Limits {
        requests_per_second: 1_000_000,
        ..Limits::default()
    }
}

/// L-15: a client that refuses and connects again has no more lines of log than one that stays, and a reason without end
/// is cut.
#[tokio::test]
async fn refusals_over_many_connections_do_not_fill_the_log() {
    let lines = LogLines::beginning("refused: ");
    let _guard = tracing::subscriber::set_default(lines.clone());
    let plane = plane(&honest(), Limits::default()).await;
    let started = Instant::now();
    for _ in 0..30 {
        let mut hostile = Hostile::open(plane.listen_addr()).await;
        for _ in 0..3 {
            hostile.send(subscribe(["a".to_owned()])).await;
            let response = soon(hostile.responses.message()).await.unwrap().unwrap();
            let refusal = DeltaDiscoveryRequest {
                response_nonce: response.nonce,
                error_detail: Some(rpc::Status {
                    message: "x".repeat(4_000),
                    ..rpc::Status::default()
                }),
                ..subscribe([])
            };
            hostile.send(refusal).await;
        }
    }
    let refused =
        "crowfly_control_nacks_total{type=\"envoy.config.endpoint.v3.ClusterLoadAssignment\"}";
    let admin = plane.admin_addr().unwrap();
    // The last one of a connection may be lost with it.
    until(async || metric(admin, refused).await >= 60.0).await;
    few(&lines, started);
    assert!(lines.longest() < 600, "{} bytes", lines.longest());
}

/// L-15: a client that goes beyond a limit on one stream after the other has no more lines of log than on one.
#[tokio::test]
async fn limits_on_many_streams_do_not_fill_the_log() {
    let lines = LogLines::beginning("client at a limit");
    let _guard = tracing::subscriber::set_default(lines.clone());
    let limits = Limits {
        names: 1,
        ..free_requests()
    };
    let plane = plane(&honest(), limits).await;
    let channel = channel(plane.listen_addr()).await;
    let started = Instant::now();
    for _ in 0..60 {
        let hostile = Hostile::open_on(channel.clone()).await.unwrap();
        hostile.send(subscribe(["a", "b"].map(str::to_owned))).await;
        hostile.end().await;
    }
    assert!(limited(&plane, "names").await >= 60.0);
    few(&lines, started);
}

/// A client of load reports: its first message, and the end of its stream.
async fn report_as(channel: &Channel, node: Node) -> Result<(), Status> {
    let mut client = LoadReportingServiceClient::new(channel.clone());
    let first = LoadStatsRequest {
        node: Some(node),
        ..LoadStatsRequest::default()
    };
    let responses = soon(client.stream_load_stats(tokio_stream::iter([first]))).await?;
    let mut responses = responses.into_inner();
    while soon(responses.message()).await?.is_some() {}
    Ok(())
}

/// L-15: clients that report loads come and go as those of discovery do.
#[tokio::test]
async fn reporters_that_come_and_go_do_not_fill_the_log() {
    let (come, go) = (
        LogLines::beginning("client reports loads"),
        LogLines::beginning("client reports no loads any more"),
    );
    for lines in [come, go] {
        let _guard = tracing::subscriber::set_default(lines.clone());
        let plane = plane(&honest(), free_requests()).await;
        let channel = channel(plane.listen_addr()).await;
        let started = Instant::now();
        for _ in 0..600 {
            report_as(&channel, Node::default()).await.unwrap();
        }
        let count = lines.count();
        let most = 311 + 10 * usize::try_from(started.elapsed().as_secs()).unwrap();
        assert!((1..=most).contains(&count), "{count} lines");
    }
}
