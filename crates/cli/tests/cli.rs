//! The binary as a process: its errors, its help, its completions and its benchmarks, which scripts
//! read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use common::{crowfly, text};

/// Runs the binary, checks its exit code and returns what it said on standard error.
async fn fails(code: i32, args: &[&str]) -> String {
    let output = crowfly(args).await;
    let said = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[tokio::test]
async fn usage_errors_exit_with_2_and_say_what_was_expected() {
    for (args, expected) in [
        (
            &["load", "--target", "10.0.0.1:80"][..],
            "expected xds:///NAME or http://HOST:PORT",
        ),
        (
            &["load", "--target", "http://h"],
            "expected http://HOST:PORT",
        ),
        (&["load"], "--target <TARGET>"),
        (
            &["load", "--target", "http://h:1", "--duration", "20"],
            "a duration such as 250ms",
        ),
        (
            &["load", "--target", "http://h:1", "--metadata", "x"],
            "expected KEY=VALUE",
        ),
        (
            &["backend", "--fail-rate", "2"],
            "expected a number from 0 to 1",
        ),
        (
            &["backend", "--listen", "localhost"],
            "expected HOST:PORT or :PORT",
        ),
        (
            &["control", "--config", "x", "--admin", "on"],
            "expected HOST:PORT or :PORT, or off",
        ),
        (&["control"], "--config <FILE|DIR>"),
        (
            &["backend", "--log", "loud"],
            "\"loud\" is neither a level (off, error, warn, info, debug, trace)",
        ),
        (
            &["backend", "--log", "crowfly=loud"],
            "\"crowfly=loud\" is neither a level",
        ),
        (&["fly"], "unrecognized subcommand 'fly'"),
    ] {
        let said = fails(2, args).await;
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn run_errors_exit_with_1_and_name_the_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let said = fails(1, &["backend", "--listen", &addr]).await;
    assert!(said.starts_with(&format!(
        "error: cannot listen on {addr}: Address already in use"
    )));

    let args = ["load", "--target", "http://127.0.0.1:1", "--debug", ":0"];
    let said = fails(1, &args).await;
    assert!(said.contains("expected an xds:/// target"), "{said}");
}

#[tokio::test]
async fn help_has_examples_and_environment_variables() {
    let output = crowfly(&["load", "--help"]).await;
    let help = text(&output.stdout);
    assert!(output.status.success());
    for expected in [
        "Examples:",
        "CROWFLY_LOAD_RPS",
        "--wait-for-ready",
        "CROWFLY_LOG",
    ] {
        assert!(help.contains(expected), "{help}");
    }
}

#[tokio::test]
async fn version_is_that_of_the_package() {
    let output = crowfly(&["--version"]).await;
    assert_eq!(
        text(&output.stdout),
        concat!("crowfly ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[tokio::test]
async fn flags_may_come_from_the_environment() {
    let output = tokio::process::Command::new(common::BINARY)
        .args(["load"])
        .env("CROWFLY_LOAD_TARGET", "ftp://x")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("'ftp://x'"),
        "{}",
        text(&output.stderr)
    );
}

/// All workloads with few clients. Figures that do not depend on the speed of the machine are as
/// promised.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn bench_control_reports_every_workload() {
    let output = crowfly(&["bench", "control", "--quick", "--json"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["quick"], true, "{report}");
    let figures = report["figures"].as_array().unwrap();
    let mut workloads: Vec<_> = figures
        .iter()
        .map(|figure| figure["workload"].as_str().unwrap())
        .collect();
    workloads.dedup();
    let expected = [
        "fan-out",
        "cold-sync",
        "mesh",
        "churn",
        "nack",
        "idle-streams",
        "hostile",
    ];
    assert_eq!(workloads, expected);
    let value = |name: &str| {
        let found = figures.iter().find(|figure| figure["name"] == name);
        found.and_then(|figure| figure["value"].as_f64()).unwrap()
    };
    assert_eq!(value("streams"), 60.0, "{report}");
    let parts = value("of it HTTP/2 and gRPC") + value("of it our own state");
    let difference = parts - value("memory per stream, all layers");
    assert!(difference.abs() < 1.0, "{report}");
    assert_eq!(value("responses sent again per refusal"), 0.0, "{report}");
    // An empty answer to the wildcard, and nothing else.
    let returned = value("delta: bytes to a client that comes back");
    assert!(returned < 200.0, "{report}");
    // Changes that are gathered for 100 ms come later than those that are published at once.
    let late = value("20/s, 100ms: change to client, p99");
    assert!(late > 50.0, "{report}");
    assert!(value("requests of the hostile clients") > 0.0, "{report}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn bench_control_runs_the_workloads_that_are_asked_for() {
    let output = crowfly(&["bench", "control", "nack", "--quick"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("recorded on another day"), "{said}");
    assert!(!said.contains("fan-out"), "{said}");
    let said = fails(2, &["bench", "control", "stampede"]).await;
    assert!(said.contains("fan-out"), "{said}");
}

#[tokio::test]
async fn bench_rpc_reports_a_run_for_each_concurrency() {
    let args = [
        "bench",
        "rpc",
        "--pairs",
        "1",
        "--duration",
        "20ms",
        "--json",
    ];
    let output = crowfly(&args).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{report}");
    for (run, concurrency) in runs.iter().zip([1, 64]) {
        assert_eq!(run["peer"], "tonic", "{run}");
        assert_eq!(run["concurrency"], concurrency, "{run}");
        for rate in ["rps", "peer_rps", "ratio"] {
            assert!(run[rate].as_f64().unwrap() > 0.0, "{run}");
        }
    }
}

#[tokio::test]
async fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = crowfly(&["completions", shell]).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        for expected in ["allow-empty", "inspect", "completions"] {
            assert!(script.contains(expected), "{shell}: {expected}");
        }
    }
}
