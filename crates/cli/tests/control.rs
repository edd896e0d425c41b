//! `crowfly control` as a process, and `crowfly load` over it. The tests read its log and send it
//! signals, which only a process has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{fs, path::Path, process::Stdio, time::Duration};

use common::{BINARY, channel, crowfly, spawn_backend, text};
use crowfly_cli::child::Program;
use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::rpc,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout},
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;

const PATIENCE: Duration = Duration::from_secs(30);
const ANY: &str = "127.0.0.1:0";

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A control plane whose log is read.
struct Control {
    process: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    log: Lines<BufReader<ChildStderr>>,
}

impl Control {
    fn start(config: &Path, flags: &[&str]) -> Self {
        let mut process = tokio::process::Command::new(BINARY)
            .args(["control", "--config"])
            .arg(config)
            .env("CROWFLY_CONTROL_LISTEN", "localhost:0")
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdout: BufReader::new(process.stdout.take().unwrap()).lines(),
            log: BufReader::new(process.stderr.take().unwrap()).lines(),
            process,
        }
    }

    async fn listen_addr(&mut self) -> std::net::SocketAddr {
        let line = self.stdout.next_line().await.unwrap().unwrap();
        line.strip_prefix("listening on ").unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process.id().unwrap().cast_signed();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The next line of the log that contains `text`.
    async fn logged(&mut self, text: &str) -> String {
        let lines = self.until_logged(text).await;
        lines.lines().last().unwrap_or_default().to_owned()
    }

    /// The lines of the log up to the next one that contains `text`.
    async fn until_logged(&mut self, text: &str) -> String {
        let mut lines = String::new();
        while let Ok(line) = timeout(PATIENCE, self.log.next_line()).await {
            let Some(line) = line.unwrap() else { break };
            lines.push_str(&line);
            lines.push('\n');
            if line.contains(text) {
                return lines;
            }
        }
        panic!("no {text:?} in the log: {lines}");
    }
}

#[tokio::test]
async fn a_reload_that_takes_something_away_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    fs::write(&config, "services: [{ name: a }, { name: b }]").unwrap();
    let mut control = Control::start(&config, &["--admin", "off"]);
    control.listen_addr().await;

    control.signal(Signal::HUP);
    let line = control.logged("configuration reloaded").await;
    assert!(line.contains("INFO"), "{line}");
    assert!(line.ends_with("added 0, changed 0, removed 0"), "{line}");

    fs::write(&config, "services: []").unwrap();
    let line = control.logged("configuration reloaded").await;
    assert!(line.contains("WARN"), "{line}");
    assert!(line.contains("removed 2: a ("), "{line}");

    control.signal(Signal::TERM);
    let rest = control.stdout.next_line().await.unwrap();
    assert_eq!(rest, None, "there is no admin port");
}

/// V-12: a cluster whose list does not exist is told at the start, and when a client is not sent
/// it. It is told again when a change takes the list away. A warning that stands is only counted.
#[tokio::test]
async fn a_cluster_without_its_list_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    let lost = "- { '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: lost, cluster_type: { typed_config: \
                { '@type': type.googleapis.com/envoy.extensions.clusters.aggregate.v3.AggregateClusterResource, \
                resource_name: nowhere } } }";
    let list = "- { name: nowhere, resource: { '@type': \
                type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [lost] } }";
    fs::write(&config, format!("resources:\n{lost}\n")).unwrap();
    let mut control = Control::start(&config, &["--admin", "off"]);
    let told = "cluster `lost` refers to cluster list `nowhere`, which does not exist: gRPC clients that do not";
    assert!(control.logged(told).await.contains("WARN"));
    let address = control.listen_addr().await;

    let mut client = AggregatedDiscoveryServiceClient::new(channel(address).await);
    let (requests, receiver) = mpsc::channel(1);
    let node = Node {
        id: "web-1".to_owned(),
        user_agent_name: "gRPC Test".to_owned(),
        ..Node::default()
    };
    let request = DiscoveryRequest {
        node: Some(node),
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..DiscoveryRequest::default()
    };
    requests.send(request).await.unwrap();
    let stream = client.stream_aggregated_resources(ReceiverStream::new(receiver));
    let mut responses = stream.await.unwrap().into_inner();
    let first = responses.message().await.unwrap().unwrap();
    assert!(first.resources.is_empty(), "{first:?}");
    let missed = "a cluster is not sent to clients that do not read lists as resources (gRFC A99)";
    let line = control.logged(missed).await;
    assert!(
        line.contains("WARN") && line.contains("cluster=lost list=\"nowhere\""),
        "{line}"
    );

    let slower = lost.replace("name: lost,", "name: lost, connect_timeout: 9s,");
    fs::write(&config, format!("resources:\n{slower}\n")).unwrap();
    let mut lines = control.until_logged("configuration reloaded").await;
    assert!(lines.contains("stand standing=1"), "{lines}");
    fs::write(&config, format!("resources:\n{lost}\n{list}\n")).unwrap();
    lines += &control.until_logged("configuration reloaded").await;
    assert!(!lines.contains(told), "it was told before: {lines}");
    assert!(!lines.contains(missed), "it was left out before: {lines}");
    fs::write(&config, format!("resources:\n{lost}\n")).unwrap();
    control.logged(told).await;
    control.logged(missed).await;
}

/// L-01: an address that other machines can reach needs TLS or the operator's word. The error says how.
#[tokio::test]
async fn an_exposed_port_is_refused_unless_it_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    fs::write(&config, "services: [{ name: a }]").unwrap();
    let path = config.to_str().unwrap();
    for (flags, expected) in [
        (
            &["--listen", ":0", "--admin", "off"][..],
            "ADS on 0.0.0.0:0 would be without TLS, and other machines can reach it: give it certificates with \
             --tls-cert and --tls-key, listen on 127.0.0.1, or say that you want it with --insecure-listen",
        ),
        (
            &["--listen", ANY, "--admin", "[::]:0"],
            "the admin pages on [::]:0 would be without TLS",
        ),
        (
            &["--listen", ANY, "--admin", "off", "--conformance", ":0"],
            "the conformance adapter on 0.0.0.0:0 would be without TLS",
        ),
        (
            &["--listen", ANY, "--tls-cert", "a.pem"],
            "--tls-key <FILE>",
        ),
        (
            &[
                "--listen",
                ":0",
                "--admin",
                "off",
                "--tls-cert",
                "no.pem",
                "--tls-key",
                "no.key",
            ],
            "no.pem",
        ),
    ] {
        let output = crowfly(&[&["control", "--config", path][..], flags].concat()).await;
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let flags = ["--listen", ":0", "--admin", "off", "--insecure-listen"];
    let mut control = Control::start(&config, &flags);
    assert!(control.listen_addr().await.ip().is_unspecified());
}

/// L-03: SIGHUP reads the certificates again.
#[tokio::test]
async fn certificates_are_read_again_on_sighup() {
    let directory = tempfile::tempdir().unwrap();
    let (config, certs) = (
        directory.path().join("mesh.yaml"),
        directory.path().join("certs"),
    );
    fs::write(&config, "services: [{ name: a }]").unwrap();
    let made = crowfly(&[
        "certs",
        "--out",
        certs.to_str().unwrap(),
        "control",
        "other",
    ])
    .await;
    assert!(made.status.success(), "{}", text(&made.stderr));
    let file = |name: &str| certs.join(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (file("control.pem"), file("control.key"), file("ca.pem"));
    let flags = [
        "--admin",
        "off",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
    ];
    let mut control = Control::start(&config, &flags);
    control.listen_addr().await;
    fs::copy(file("other.key"), &key).unwrap();
    control.signal(Signal::HUP);
    let line = control.logged("cannot use the certificates").await;
    assert!(
        line.contains("WARN") && line.contains("control.pem"),
        "{line}"
    );
    fs::copy(file("other.pem"), &cert).unwrap();
    control.signal(Signal::HUP);
    control.logged("certificates on disk have changed").await;
}

/// A client's error text is one log line, and the end of its stream is logged with the reason.
#[tokio::test]
async fn a_clients_refusal_and_its_end_are_a_line_each() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    fs::write(&config, "services: [{ name: a }]").unwrap();
    let mut control = Control::start(&config, &["--admin", "off"]);
    let channel = channel(control.listen_addr().await).await;

    let (requests, receiver) = mpsc::channel(4);
    let request = DiscoveryRequest {
        node: Some(Node {
            id: "web-1".to_owned(),
            ..Node::default()
        }),
        type_url: ENDPOINTS.to_owned(),
        resource_names: vec!["a".to_owned()],
        ..DiscoveryRequest::default()
    };
    requests.send(request.clone()).await.unwrap();
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
    let mut responses = responses.await.unwrap().into_inner();
    let response = responses.message().await.unwrap().unwrap();
    let refusal = rpc::Status {
        message: "first\nsecond".to_owned(),
        ..rpc::Status::default()
    };
    let nack = DiscoveryRequest {
        response_nonce: response.nonce,
        error_detail: Some(refusal),
        ..request
    };
    requests.send(nack).await.unwrap();
    let line = control.logged("refused").await;
    assert!(line.contains(r"refused: first\nsecond"), "{line}");

    drop(requests);
    let line = control.logged("client gone").await;
    assert!(line.contains("INFO"), "{line}");
    assert!(line.contains(r#"node="web-1""#), "{line}");
    assert!(line.contains("reason=\"it ended the stream\""), "{line}");
}

#[tokio::test]
async fn json_logs_hold_values_and_not_rust() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    fs::write(&config, "services: [{ name: a }]").unwrap();
    let mut control = Control::start(&config, &["--admin", ANY, "--log-format", "json"]);
    let line = control.logged("control plane is up").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    let admin = line["fields"]["admin"].as_str().unwrap();
    assert!(admin.starts_with("127.0.0.1:"), "{line}");
}

#[tokio::test]
async fn a_configuration_can_be_checked_without_serving_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("mesh.yaml");
    let path = config.to_str().unwrap();
    for (text_, flags, code, expected) in [
        (
            "services: [{ name: a }]",
            &[][..],
            0,
            "mesh.yaml: ok, 4 resources",
        ),
        (
            "services: [{}]",
            &[],
            1,
            "services[0]: expected a field `name`",
        ),
        (
            "",
            &[],
            1,
            "mesh.yaml: expected `services` or `resources`, got an empty file",
        ),
        ("", &["--allow-empty"], 0, "mesh.yaml: ok, 0 resources"),
    ] {
        fs::write(&config, text_).unwrap();
        let output = crowfly(&[&["control", "--check", path][..], flags].concat()).await;
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

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
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", &bootstrap)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["by_backend"]["b1"], 20, "{report}");

    // While it runs, it can be looked into.
    let mut load = tokio::process::Command::new(BINARY)
        .args([
            "load",
            "--target",
            "xds:///t",
            "--duration",
            "1h",
            "--debug",
            ANY,
        ])
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(load.stderr.take().unwrap()).lines();
    let line = said.next_line().await.unwrap().unwrap();
    let inside = line.strip_prefix("debug on ").unwrap().to_owned();
    for (what, expected) in [("--csds", "Listener"), ("--tree", "xds:///t")] {
        let output = crowfly(&["inspect", what, &inside]).await;
        let shown = text(&output.stdout);
        assert!(shown.contains(expected), "{what}: {shown}");
    }
    load.kill().await.unwrap();

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

/// P-33: A response that most gRPC clients cannot take is logged with the client's name, once.
#[tokio::test]
async fn a_response_that_is_too_large_for_most_clients_is_said_aloud() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("big.yaml");
    let long = "x".repeat(1 << 20);
    let clusters = (0..5).map(|i| {
        let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        format!("- {{ \"@type\": {url}, name: c{i}, alt_stat_name: {long} }}\n")
    });
    let text = format!("resources:\n{}", clusters.collect::<String>());
    fs::write(&file, text).unwrap();
    let mut control = Control::start(&file, &["--admin", "off"]);
    let address = control.listen_addr().await;
    let mut client = AggregatedDiscoveryServiceClient::new(channel(address).await)
        .max_decoding_message_size(64 << 20);
    let (requests, receiver) = mpsc::channel(1);
    let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
    let mut responses = responses.await.unwrap().into_inner();
    let node = Node {
        id: "big-eater".to_owned(),
        ..Node::default()
    };
    let request = DiscoveryRequest {
        node: Some(node),
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..DiscoveryRequest::default()
    };
    requests.send(request).await.unwrap();
    let response = responses.message().await.unwrap().unwrap();
    assert_eq!(response.resources.len(), 5);
    let line = control.logged("gRPC clients take").await;
    for part in ["WARN", "big-eater", "Cluster", "4194304"] {
        assert!(line.contains(part), "{line}");
    }
}

/// `--conformance` needs no configuration, and says where the adapter is.
#[tokio::test]
async fn the_conformance_adapter_needs_no_configuration() {
    let mut process = tokio::process::Command::new(BINARY)
        .args(["control", "--listen", ANY, "--admin", ANY])
        .args(["--conformance", ANY, "--load-report-interval", "3s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut addresses = Vec::new();
    for begin in [
        "listening on ",
        "admin on http://",
        "conformance adapter on ",
    ] {
        let line = stdout.next_line().await.unwrap().unwrap();
        addresses.push(line.strip_prefix(begin).unwrap().parse().unwrap());
    }
    let [ads, admin, adapter] = addresses[..] else {
        panic!("{addresses:?}");
    };
    channel(ads).await;
    channel(adapter).await;
    // What a flag says holds without a configuration, too.
    let loads = crowfly(&["loads", "--json", "--admin", &admin.to_string()]).await;
    let loads = text(&loads.stdout);
    assert!(loads.contains("\"interval_seconds\": 3.0"), "{loads}");
}

/// The flags about files say that they need some.
#[tokio::test]
async fn flags_about_files_need_a_configuration() {
    for flag in ["--force", "--allow-empty"] {
        let output = crowfly(&["control", "--conformance", ANY, "--listen", ANY, flag]).await;
        let said = text(&output.stderr);
        let expected =
            format!("{flag} is about the files of --config: give it, or leave {flag} out");
        assert!(
            !output.status.success() && said.contains(&expected),
            "{said}"
        );
    }
}
