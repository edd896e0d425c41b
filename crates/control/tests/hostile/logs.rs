//! Clients that fill the log.

use std::time::Instant;

use crowfly_control::Limits;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::rpc;
use tonic::Code;

use super::support::log::LogLines;
use super::support::{channel, metric, soon, until};
use super::{Hostile, honest, plane, subscribe};

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
    let count = lines.count();
    let most = 11 + usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&count), "{count} lines");
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
