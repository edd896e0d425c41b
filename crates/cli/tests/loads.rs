//! `crowfly loads` and a control plane. A bare client reports to it, so that every figure of the
//! table is known.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{BINARY, crowfly, text};
use crowfly_control::ControlPlane;
use crowfly_testkit::Reserved;
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{Locality, Node},
            endpoint::v3::{ClusterStats, UpstreamLocalityStats},
        },
        service::load_stats::v3::{
            LoadStatsRequest, LoadStatsResponse,
            load_reporting_service_client::LoadReportingServiceClient,
        },
    },
    google::protobuf,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const PATIENCE: Duration = Duration::from_secs(20);

/// A control plane without services, and its admin port.
async fn control() -> (ControlPlane, String) {
    let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let plane = ControlPlane::with_snapshot(Default::default(), any_port, Some(any_port));
    let plane = plane.await.unwrap();
    let admin = plane.admin_addr().unwrap().to_string();
    (plane, admin)
}

/// A client that has reported 100 calls to `shop` and 4 to `cart`, and 7 drops of `shop`.
struct Reporter {
    _requests: mpsc::Sender<LoadStatsRequest>,
    _responses: Streaming<LoadStatsResponse>,
}

impl Reporter {
    async fn start(plane: &ControlPlane) -> Self {
        let channel = common::channel(plane.listen_addr()).await;
        let mut client = LoadReportingServiceClient::new(channel);
        let (requests, receiver) = mpsc::channel(1);
        let responses = client.stream_load_stats(ReceiverStream::new(receiver));
        let mut shop = stats("shop", [100, 80, 10, 10]);
        shop.total_dropped_requests = 7;
        let request = LoadStatsRequest {
            node: Some(Node {
                id: "web-1".to_owned(),
                locality: Some(locality("a")),
                ..Node::default()
            }),
            cluster_stats: vec![shop, stats("cart", [4, 4, 0, 0])],
        };
        requests.send(request).await.unwrap();
        let mut responses = responses.await.unwrap().into_inner();
        responses.message().await.unwrap().expect("an interval");
        // The response is sent after the report was taken.
        Self {
            _requests: requests,
            _responses: responses,
        }
    }
}

fn locality(zone: &str) -> Locality {
    Locality {
        region: "eu".to_owned(),
        zone: zone.to_owned(),
        sub_zone: String::new(),
    }
}

fn stats(cluster: &str, [issued, succeeded, errors, open]: [u64; 4]) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.to_owned(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: Some(locality("b")),
            total_issued_requests: issued,
            total_successful_requests: succeeded,
            total_error_requests: errors,
            total_requests_in_progress: open,
            ..UpstreamLocalityStats::default()
        }],
        load_report_interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        ..ClusterStats::default()
    }
}

/// The table below its title, which has the age of the control plane.
const TABLE: &str = "\
SERVICE  CLIENTS IN  BACKENDS IN  CALLS/S  IN FLIGHT  ERRORS/S  DROPS/S  CALLS  ERRORS  DROPS
cart     eu/a        eu/b             0.4          0       0.0        -      4       0      -
shop     eu/a        (dropped)          -          -         -      0.7      -       -      7
shop     eu/a        eu/b            10.0         10       1.0        -    100      10      -
total                                10.4         10       1.0      0.7    104      10      7";

#[tokio::test]
async fn a_person_sees_a_table() {
    let (plane, admin) = control().await;
    let _reporter = Reporter::start(&plane).await;
    let output = crowfly(&["loads", "--admin", &admin, "--once"]).await;
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        said.starts_with("1 client reports loads, every 10s; totals of "),
        "{said}"
    );
    let (_, table) = said.split_once('\n').unwrap();
    assert_eq!(table.trim_end(), TABLE);
}

/// One object, with the fields and totals that scripts rely on.
#[tokio::test]
async fn a_script_reads_one_object() {
    let (plane, admin) = control().await;
    let _reporter = Reporter::start(&plane).await;
    let output = crowfly(&["loads", "--admin", &admin, "--json", "--service", "shop"]).await;
    let loads: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [drops, calls] = loads["rows"].as_array().unwrap().as_slice() else {
        panic!("{loads}");
    };
    for (name, value) in [
        ("service", json!("shop")),
        ("cluster", json!("shop")),
        ("client_locality", json!("eu/a")),
        ("backend_locality", json!("eu/b")),
        ("issued", json!(100)),
        ("succeeded", json!(80)),
        ("errors", json!(10)),
        ("dropped", json!(0)),
        ("in_progress", json!(10)),
    ] {
        assert_eq!(calls[name], value, "{name}");
    }
    assert_eq!(drops["backend_locality"], Value::Null);
    assert_eq!(drops["dropped"], 7);
    assert_eq!(loads["reporters"][0]["node"], "web-1");
}

/// Without a terminal the tables come one below the other, without control sequences. When the
/// control plane is gone, the last figures stay, with the reason.
#[tokio::test]
async fn tables_follow_each_other_in_a_pipe() {
    let (plane, admin) = control().await;
    let _reporter = Reporter::start(&plane).await;
    let mut command = Command::new(BINARY);
    command.args(["loads", "--admin", &admin, "--every", "50ms"]);
    command
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let follow = async {
        let mut tables = 0;
        while tables < 3 {
            let line = lines.next_line().await.unwrap().unwrap();
            assert!(!line.contains('\u{1b}'), "{line}");
            tables += usize::from(line.contains("1 client reports loads"));
        }
        plane.shutdown().await;
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if line.starts_with("! these figures are old: cannot ") {
                return;
            }
        }
    };
    timeout(PATIENCE, follow).await.unwrap();
}

/// A control plane that does not answer is an error with its address.
#[tokio::test]
async fn failures_name_the_address() {
    let address = Reserved::new().refusing().to_string();
    let output = crowfly(&["loads", "--admin", &address, "--once"]).await;
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("error: cannot connect to {address}: Connection refused");
    assert!(
        text(&output.stderr).starts_with(&expected),
        "{}",
        text(&output.stderr)
    );

    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = web.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for answer in [
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n<html>",
        ] {
            let (mut socket, _) = web.accept().await.unwrap();
            // It is one small packet.
            let read = socket.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0);
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
        let _silent = web.accept().await.unwrap();
        std::future::pending::<()>().await;
    });
    for expected in [
        format!("error: {address} is not the admin port of crowfly control: it answers 404"),
        format!(
            "error: {address} is not the admin port of crowfly control: /loads is another page"
        ),
        format!("error: {address} did not answer within 50ms"),
    ] {
        let output = crowfly(&["loads", "--admin", &address, "--json", "--timeout", "50ms"]).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).starts_with(&expected),
            "{}",
            text(&output.stderr)
        );
    }
}
