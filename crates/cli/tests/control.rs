//! `crowfly control` as a process, and `crowfly load` over it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::fs;

use common::{BINARY, crowfly, spawn_backend, text};
use crowfly_cli::child::Program;
use serde_json::Value;

const ANY: &str = "127.0.0.1:0";

#[tokio::test]
async fn load_reaches_backends_that_the_control_plane_names() {
    let (_backend, addr) = spawn_backend("b1", &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    let service = format!("services:\n- name: t\n  endpoints: [{{ address: \"{addr}\" }}]\n");
    fs::write(&config, service).unwrap();
    let config = config.to_str().unwrap();
    let args = [
        "control", "--config", config, "--listen", ANY, "--admin", ANY,
    ];
    let mut control = Program::at(BINARY).spawn("control", args, None).unwrap();
    let ads = control.announced("listening on").await.unwrap();
    control.announced("admin on http://").await.unwrap();

    let bootstrap = format!(
        r#"{{"xds_servers": [{{"server_uri": "{ads}", "channel_creds": [{{"type": "insecure"}}]}}]}}"#
    );
    let output = tokio::process::Command::new(BINARY)
        .args([
            "load",
            "--target",
            "xds:///t",
            "--rps",
            "100",
            "--duration",
            "200ms",
            "--json",
        ])
        .args(["--timeout", "10s"])
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["by_backend"]["b1"], 20, "{report}");

    control.terminate().unwrap();
    assert!(control.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_bad_configuration_is_told_with_file_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    fs::write(
        &config,
        "services:\n- name: t\n  endpoints: [{ address: nowhere }]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    let output = crowfly(&[
        "control", "--config", config, "--listen", ANY, "--admin", ANY,
    ])
    .await;
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("error: {config}:3:26: services[0].endpoints[0].address: expected");
    assert!(
        text(&output.stderr).contains(&expected),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn load_without_a_bootstrap_says_which_variables_it_looked_for() {
    let output = tokio::process::Command::new(BINARY)
        .args(["load", "--target", "xds:///t"])
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env_remove("GRPC_XDS_BOOTSTRAP_CONFIG")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("error: cannot make a channel: "), "{said}");
    assert!(said.contains("GRPC_XDS_BOOTSTRAP_CONFIG"), "{said}");
}
