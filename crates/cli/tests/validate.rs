//! `crowfly validate` as a process: its output, and its exit codes, which scripts rely on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{fs, path::Path, process::Stdio};

use common::{BINARY, crowfly, text};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

/// A listener for agents alone, one for Envoys with a TCP proxy, and a cluster that both use.
const AGENTS: &str = r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: agents
  filter_chains:
  - filter_chain_match: { destination_port: 80, server_names: [a] }
    filters: &filters
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: web
        cluster: web
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: envoys
  address: { socket_address: { address: 0.0.0.0, port_value: 5432 } }
  filter_chains: [{ filters: *filters }]
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: STRICT_DNS
"#;

/// An API listener that leads to a cluster that gRPC clients refuse.
fn refused() -> String {
    let package = "type.googleapis.com/envoy.extensions.filters";
    format!(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: web
  api_listener:
    api_listener:
      "@type": {package}.network.http_connection_manager.v3.HttpConnectionManager
      http_filters: [{{ name: r, typed_config: {{ "@type": {package}.http.router.v3.Router }} }}]
      route_config:
        virtual_hosts: [{{ domains: ["*"], routes: [{{ match: {{ prefix: "" }}, route: {{ cluster: c }} }}] }}]
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  type: STATIC
"#
    )
}

/// Writes a configuration, validates it, and returns exit code and output.
async fn validate(content: &str, flags: &[&str]) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mesh.yaml"), content).unwrap();
    let output = tokio::process::Command::new(BINARY)
        .args(["validate", "mesh.yaml"])
        .args(flags)
        .current_dir(&directory)
        .output()
        .await
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    let said = text(&output.stdout).to_owned();
    (output.status.code().unwrap(), said)
}

/// K-08: a good configuration is told with its size, and the exit code is 0.
#[tokio::test]
async fn a_good_configuration_is_counted() {
    let content = "services: [{ name: a, cluster_ip: 10.96.0.1, ports: [{ port: 80 }] }]\n\
                   views: [{ name: v, match: { id: x }, services: [{ name: a, timeout: 1s }] }]";
    let expected = "\
mesh.yaml: ok, 7 resources
  1 service, 1 view: 2 Cluster, 2 ClusterLoadAssignment, 2 Listener, 1 RouteConfiguration
  read as gRPC clients do: 4 resources; as node agents do: 3 resources; Envoy's own rules are not checked
";
    assert_eq!(validate(content, &[]).await, (0, expected.to_owned()));
}

/// K-01, K-08: what gRPC clients refuse is an error with its place, as text and as JSON; with `--force` it is a
/// warning.
#[tokio::test]
async fn refusals_of_grpc_clients_are_errors() {
    let message = "a gRPC client refuses this cluster, which xds:///web leads to: expected EDS or LOGICAL_DNS, \
                   got STATIC";
    let (code, said) = validate(&refused(), &[]).await;
    assert_eq!(code, 1, "{said}");
    let first = said.lines().next().unwrap();
    assert_eq!(
        first,
        format!("error: mesh.yaml:13:9: resources[1].type: {message}")
    );
    assert!(
        said.contains("\nmesh.yaml: 1 error, 2 resources\n"),
        "{said}"
    );

    let (code, said) = validate(&refused(), &["--force"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("warning: mesh.yaml:13:9: "), "{said}");

    let (code, said) = validate(&refused(), &["--json"]).await;
    assert_eq!(code, 1, "{said}");
    let json: Value = serde_json::from_str(&said).unwrap();
    let expected = json!({
        "severity": "error", "client": "grpc", "file": "mesh.yaml", "line": 13, "column": 9,
        "path": "resources[1].type", "message": message,
    });
    let report = &json["configurations"][0];
    assert_eq!(report["findings"], json!([expected]), "{json:#}");
    assert_eq!(json["valid"], false);
    assert_eq!(
        report["checked"],
        json!({ "grpc": 2, "node": 0 }),
        "{json:#}"
    );
}

/// K-02: a reference to a resource that does not exist is a warning with the place of the resource that has it, also
/// in a view.
#[tokio::test]
async fn lost_references_have_places() {
    let cluster = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let content = format!(
        "services: [{{ name: a }}]\nresources:\n- {{ {cluster}, name: one, type: EDS }}\nviews:\n- name: v\n  match: \
         {{ id: x }}\n  resources:\n  - {{ {cluster}, name: two, type: EDS }}\n"
    );
    let (code, said) = validate(&content, &[]).await;
    assert_eq!(code, 0, "{said}");
    for line in [
        "warning: mesh.yaml:3:3: resources[0]: cluster `one` refers to endpoints `one`, which does not exist",
        "warning: mesh.yaml:8:5: views[0].resources[0]: view `v`: cluster `two` refers to endpoints `two`, which does \
         not exist",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}\n{said}");
    }
    let (_, said) = validate(&content, &["--json"]).await;
    let json: Value = serde_json::from_str(&said).unwrap();
    let findings = json["configurations"][0]["findings"].as_array().unwrap();
    for (message, line, path) in [
        ("cluster `one` refers", 3, "resources[0]"),
        ("view `v`: cluster `two` refers", 8, "views[0].resources[0]"),
    ] {
        let has = |finding: &&Value| {
            let found = finding["message"].as_str();
            found.is_some_and(|found| found.starts_with(message))
        };
        let finding = findings.iter().find(has).unwrap();
        let place = [&finding["file"], &finding["line"], &finding["path"]];
        assert_eq!(
            place,
            [&json!("mesh.yaml"), &json!(line), &json!(path)],
            "{finding}"
        );
    }
}

/// K-09: a listener without an address is for node agents, so what they refuse is an error. A
/// refusal of a resource that an Envoy may use is a note.
#[tokio::test]
async fn refusals_of_node_agents_are_errors_if_it_is_theirs() {
    let (code, said) = validate(AGENTS, &["--notes"]).await;
    assert_eq!(code, 1, "{said}");
    let has = |begin: &str| said.lines().any(|line| line.starts_with(begin));
    for expected in [
        "error: mesh.yaml:6:63: resources[0].filter_chains[0].filter_chain_match.server_names: a node agent refuses \
         this listener: ",
        "note: mesh.yaml:16:19: resources[1].filter_chains[0].filter_chain_match: a node agent refuses this listener, \
         which may be for Envoys: ",
        "note: mesh.yaml:19:9: resources[2].type: a gRPC client refuses this cluster, but no api_listener leads to it: ",
    ] {
        assert!(has(expected), "{expected}\n{said}");
    }
    let (_, envoys) = AGENTS.split_once("cluster: web\n").unwrap();
    let envoys = envoys.replace("*filters", "[]");
    let (code, said) = validate(&format!("resources:\n{envoys}"), &[]).await;
    assert_eq!(code, 0, "what Envoys use is no error\n{said}");
    assert!(
        said.contains("ok, 2 resources, 1 note (--notes lists them)"),
        "{said}"
    );
}

/// K-09: the clients of a view are asked, too. In a view for agents, everything is theirs.
#[tokio::test]
async fn the_agents_of_a_view_are_asked() {
    let listener = r#"
  resources:
  - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    name: l
    address: { socket_address: { address: 10.96.0.1, port_value: 80 } }
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          cluster: a
      filter_chain_match: { server_names: [a] }
"#;
    for (client, expected) in [("node", 1), ("envoy", 0), ("[envoy, node]", 0)] {
        let content = format!(
            "services: [{{ name: a }}]\nviews:\n- name: v\n  match: {{ client: {client} }}{listener}"
        );
        let (code, said) = validate(&content, &[]).await;
        assert_eq!(code, expected, "{client}: {said}");
        let place = "error: mesh.yaml:15:43: views[0].resources[0].filter_chains[0].filter_chain_match.server_names: ";
        assert_eq!(said.contains(place), expected == 1, "{said}");
    }
}

/// K-08: every argument is a configuration of its own, and standard input is one, too.
#[tokio::test]
async fn several_configurations_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("a.yaml"), "services: [{ name: a }]").unwrap();
    fs::write(path("b.yaml"), "services: [{ name: a, endpoint: [] }]").unwrap();
    let output = crowfly(&["validate", &path("a.yaml"), &path("b.yaml")]).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for expected in [
        "a.yaml: ok, 4 resources\n",
        "b.yaml:1:23: services[0].endpoint: unknown field",
        "b.yaml: 1 error\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }

    let mut process = tokio::process::Command::new(BINARY)
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"services: [{}]").await.unwrap();
    drop(stdin);
    let output = process.wait_with_output().await.unwrap();
    let said = text(&output.stdout);
    assert!(
        said.starts_with("error: (standard input):1:12: services[0]: expected a field `name`"),
        "{said}"
    );
}

/// K-10: every example is valid, without a warning.
#[tokio::test]
async fn the_examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = [examples.clone(), examples.join("first")];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path().display().to_string());
    let files: Vec<String> = files.filter(|file| file.ends_with(".yaml")).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        let output = crowfly(&["validate", file]).await;
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("warning"), "{said}");
    }
}
