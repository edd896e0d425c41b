//! `crowfly demo` as a process. Its children are processes too, so the tests also check that none
//! outlives it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::process::Stdio;

use common::{BINARY, crowfly, text};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
};

/// A backend drains, one is killed, both return, a weight changes, and a bad configuration is
/// refused. No call fails, and the last line is the report.
#[tokio::test]
async fn the_demo_loses_no_call_but_those_on_the_killed_backend() {
    let output = crowfly(&["demo", "--duration", "10s", "--plain", "--json"]).await;
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for expected in [
        "a1: drained and gone after",
        "a1: called again after",
        "b2: SIGKILL",
        "b2: called again after",
        "zone c: weight 1 -> 4",
        "NACK from the client, calls go on: ",
        "load_balancing_weight: expected at least 1, got 0",
        "no call failed, and none was lost but on the backend that was killed",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(report["sent"], 3000, "{report}");
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    assert_eq!(
        report["by_backend"].as_object().unwrap().len(),
        6,
        "{report}"
    );
}

#[tokio::test]
async fn children_do_not_outlive_a_demo_that_is_killed() {
    let mut demo = tokio::process::Command::new(BINARY)
        .args(["demo", "--plain"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let (_, rest) = first.split_once("its pages: http://").unwrap();
    let admin = rest.split_once(')').unwrap().0;
    TcpStream::connect(admin).await.unwrap();

    // Meanwhile another terminal can look inside.
    let inside = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some((_, rest)) = line.split_once("crowfly inspect --tree ") {
            break rest.split_once(',').unwrap().0.to_owned();
        }
    };
    for what in ["--tree", "--csds"] {
        let output = crowfly(&["inspect", what, &inside]).await;
        let shown = text(&output.stdout);
        assert!(shown.contains("crowfly-demo"), "{what}: {shown}");
    }

    demo.kill().await.unwrap();
    // Nothing tells when an orphan is gone but that it no longer answers.
    while TcpStream::connect(admin).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_demo_too_short_to_show_anything_is_refused() {
    let output = crowfly(&["demo", "--duration", "5s"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("expected at least 10s"),
        "{}",
        text(&output.stderr)
    );
}
