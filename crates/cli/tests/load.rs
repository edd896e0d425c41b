//! The load generator against real backends: every call is counted once, also when a backend dies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{process::Stdio, time::Duration};

use common::{crowfly, spawn_backend, text};
use crowfly_cli::{
    backend::{BackendOptions, BackendServer},
    load,
};
use crowfly_testkit::Reserved;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tonic::{metadata::MetadataMap, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

fn options(rps: u32, duration: Duration) -> load::LoadOptions {
    load::LoadOptions {
        rps,
        concurrency: 16,
        duration,
        timeout: Duration::from_secs(10),
        metadata: MetadataMap::new(),
        wait_for_ready: false,
        sessions: 0,
    }
}

#[tokio::test]
async fn json_counts_every_call_once() {
    let options = BackendOptions {
        delay: Duration::from_millis(2),
        fail_rate: 0.25,
        ..BackendOptions::new("b1")
    };
    let backend = BackendServer::start(options).await.unwrap();
    let target = format!("http://{}", backend.addr());
    let output = crowfly(&[
        "load",
        "--target",
        &target,
        "--rps",
        "200",
        "--duration",
        "1s",
        "--timeout",
        "10s",
        "--json",
    ])
    .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let latency = report["latency_us"].take();
    for percentile in ["p50", "p90", "p99", "max"] {
        assert!(latency[percentile].as_u64().unwrap() >= 2000, "{latency}");
    }
    let first = "b1: failed on purpose (--fail-rate)";
    let expected = json!({
        "sent": 200, "ok": 150, "lost_in_flight": 0,
        "errors": {"UNAVAILABLE": {"count": 50, "first": first}},
        "by_backend": {"b1": 150}, "latency_us": null,
    });
    assert_eq!(report, expected);
}

#[tokio::test]
async fn a_target_that_refuses_connections_is_an_error_and_not_lost() {
    let refusing = Reserved::new();
    let target = format!("http://{}", refusing.address);
    let output = crowfly(&[
        "load",
        "--target",
        &target,
        "--rps",
        "50",
        "--duration",
        "100ms",
        "--json",
    ])
    .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost_in_flight"], 0, "{report}");
    assert_eq!(report["errors"]["UNAVAILABLE"]["count"], 5, "{report}");
    assert_eq!(report["latency_us"], Value::Null, "{report}");
}

#[tokio::test]
async fn failed_calls_are_the_exit_code_if_so_told() {
    for (fail_rate, code) in [(0.0, 0), (0.5, 1)] {
        let options = BackendOptions {
            fail_rate,
            ..BackendOptions::new("b1")
        };
        let backend = BackendServer::start(options).await.unwrap();
        let target = format!("http://{}", backend.addr());
        let args = [
            "load",
            "--target",
            &target,
            "--rps",
            "50",
            "--duration",
            "100ms",
        ];
        let output = crowfly(&[&args[..], &["--timeout", "10s", "--fail-on-error"]].concat()).await;
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stdout));
    }
}

/// Every call that the dead backend held is lost, and none of them is an error.
#[tokio::test]
async fn calls_on_a_killed_backend_are_lost_in_flight() {
    let (mut child, addr) = spawn_backend("b1", &["--delay", "60s"]).await;
    let channel = Endpoint::from_shared(format!("http://{addr}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut generator = load::Generator::start(&channel, options(1000, Duration::from_millis(16)));
    let stats = generator.stats().clone();
    while stats.open() < 16 {
        tokio::task::yield_now().await;
    }
    // Answered on the same connection after them: the sixteen calls have reached the backend.
    HealthClient::new(channel)
        .check(HealthCheckRequest::default())
        .await
        .unwrap();
    child.kill().await.unwrap();
    let report = generator.finished().await;
    assert_eq!(
        (report.sent, report.ok, report.lost_in_flight),
        (16, 0, 16),
        "{report}"
    );
    assert!(report.errors.is_empty(), "{report}");
}

#[tokio::test]
async fn a_deadline_is_reported_as_one() {
    let options_ = BackendOptions {
        delay: Duration::from_secs(60),
        ..BackendOptions::new("b1")
    };
    let backend = BackendServer::start(options_).await.unwrap();
    let channel = Endpoint::from_shared(format!("http://{}", backend.addr())).unwrap();
    let options = load::LoadOptions {
        timeout: Duration::from_millis(20),
        ..options(100, Duration::from_millis(20))
    };
    let report = load::Generator::start(&channel.connect_lazy(), options)
        .finished()
        .await;
    assert_eq!(
        report.errors.keys().collect::<Vec<_>>(),
        [&"DEADLINE_EXCEEDED"],
        "{report}"
    );
    assert_eq!(report.failed(), 2);
}

#[tokio::test]
async fn interrupt_ends_early_with_the_report() {
    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", front.local_addr().unwrap());
    let mut process = tokio::process::Command::new(common::BINARY)
        .args([
            "load",
            "--target",
            &target,
            "--rps",
            "100",
            "--duration",
            "1h",
            "--json",
        ])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
    // A connection means that the first call is under way, and that signals are listened to.
    let (mut inbound, _) = front.accept().await.unwrap();
    let mut outbound = TcpStream::connect(backend.addr()).await.unwrap();
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await });
    let pid = rustix::process::Pid::from_raw(process.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let line = stdout.next_line().await.unwrap().unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(report["sent"], report["ok"], "{report}");
    assert!(report["sent"].as_u64().unwrap() > 0, "{report}");
    assert!(process.wait().await.unwrap().success());
}
