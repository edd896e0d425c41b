//! The README and the documents, followed step by step on ports of the kernel's choice.
//!
//! A newcomer types these steps, so a change that breaks one must fail a test.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::{PATIENCE, Process};
use crowfly_e2e::{admin, peers, rpc};
use hello::HelloRequest;
use hello::greeter_client::GreeterClient;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use crate::CROWFLY;

/// The client of the example finds the servers of the README's configuration by its bootstrap, and
/// `crowfly inspect` reads what the client shows of itself.
#[test]
fn the_readmes_first_program_greets_and_can_be_looked_at() {
    let readme = read("README.md");
    let servers = [(), ()].map(|()| {
        let server = program(env!("CARGO_BIN_EXE_hello-server-under-test"), "127.0.0.1:0");
        let address = server.wait_for("its address", |line| after(line, "listening on "));
        (server, address)
    });
    let [(_, first), (_, second)] = &servers;
    let control = CROWFLY.control_of(&mesh_of(&readme, [*first, *second]));
    let bootstrap = bootstrap_of(&readme, control.address);

    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-client-under-test"));
    command
        .arg("127.0.0.1:0")
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap);
    let client = Process::start("hello-client", command);
    let inspected: SocketAddr =
        client.wait_for("where to inspect it", |line| after(line, "inspect me at "));
    for (_, address) in &servers {
        let greeting = format!("Hello world, from {address}");
        client.wait_for(&greeting, |line| (line == greeting).then_some(()));
    }
    for (flag, expected) in [("--csds", "hello"), ("--tree", "xds:///hello")] {
        let inspect = CROWFLY.start(&["inspect", flag, &inspected.to_string()]);
        inspect.wait_for(expected, |line| line.contains(expected).then_some(()));
    }
}

/// gRFC A29: the example with TLS in both directions, by the steps of its README. A server of another
/// name is not greeted, and the error has both names.
#[test]
fn the_example_greets_over_tls() {
    let readme = read("examples/hello/README.md");
    let certs = certs(&["hello-server", "hello-client"]);
    let servers = [(), ()].map(|()| hello_server(&certs));
    let [(_, first), (_, second)] = &servers;
    let mesh = block(&readme, "# mesh-tls.yaml\n", "```")
        .replace("127.0.0.1:50051", &first.to_string())
        .replace("127.0.0.1:50052", &second.to_string());
    let control = CROWFLY.control_of(&mesh);
    let client = |control: SocketAddr| {
        let bootstrap = block(&readme, "GRPC_XDS_BOOTSTRAP_CONFIG='", "'")
            .replace("127.0.0.1:18000", &control.to_string())
            .replace("certs/", &format!("{}/", certs.path().display()));
        let program = env!("CARGO_BIN_EXE_hello-client-under-test");
        let mut command = Command::new("sh");
        // The client prints its errors to standard error, and they are read here, too.
        command
            .args(["-c", "exec \"$0\" \"$@\" 2>&1", program, "127.0.0.1:0"])
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap);
        Process::start("hello-client", command)
    };
    let greeted = client(control.address);
    for (_, address) in &servers {
        let greeting = format!("Hello world, from {address}");
        greeted.wait_for(&greeting, |line| (line == greeting).then_some(()));
    }

    let control = CROWFLY.control_of(&mesh.replace("org/hello-server", "org/other"));
    let refused = client(control.address);
    refused.wait_for("an error with both names", |line| {
        let names = [
            "spiffe://example.org/other",
            "spiffe://example.org/hello-server",
        ];
        names.iter().all(|name| line.contains(name)).then_some(())
    });
}

/// S12-01, S12-03: the client of docs/sessions.md is greeted by one server until that is stopped.
/// Then the other one greets it, even when the first is back.
#[test]
fn the_example_keeps_its_session() {
    let document = read("docs/sessions.md");
    let server = |at: &str| {
        let server = program(env!("CARGO_BIN_EXE_hello-server-under-test"), at);
        let address = server.wait_for("its address", |line| after(line, "listening on "));
        (server, address)
    };
    let mut servers = [server("127.0.0.1:0"), server("127.0.0.1:0")];
    let addresses = [servers[0].1, servers[1].1];
    let control = CROWFLY.control_of(&mesh_of(&document, addresses));
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-session-under-test"));
    command.env(
        "GRPC_XDS_BOOTSTRAP_CONFIG",
        bootstrap_of(&document, control.address),
    );
    let client = Process::start("hello-session", command);
    let greeted_by = || client.wait_for("a greeting", |line| after(line, "Hello world, from "));
    let first = greeted_by();
    for _ in 0..3 {
        assert_eq!(greeted_by(), first);
    }
    let at = usize::from(first == addresses[1]);
    servers[at].0.kill();
    let second = addresses[1 - at];
    client.wait_for("a greeting by the other server", |line| {
        after(line, "Hello world, from ").filter(|by| *by == second)
    });
    let _back = server(&first.to_string());
    for _ in 0..3 {
        assert_eq!(greeted_by(), second);
    }
}

/// S12-01: the sessions of `crowfly load --sessions` stay on their servers by the configuration of docs/sessions.md.
/// Without `session_affinity`, round_robin moves each of them.
#[test]
fn load_keeps_sessions() {
    let document = read("docs/sessions.md");
    let backends = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mesh = mesh_of(&document, [backends[0].address, backends[1].address]);
    let affinity = mesh.lines().find(|line| line.contains("session_affinity"));
    let without = mesh.replace(affinity.expect("the field"), "");
    for (mesh, [stayed, moved]) in [(mesh, [19, 0]), (without, [0, 19])] {
        let control = CROWFLY.control_of(&mesh);
        let mut command = Command::new(env!("CARGO_BIN_EXE_crowfly-under-test"));
        let flags =
            "load --target xds:///hello --sessions 19 --rps 100 --duration 3s --timeout 20s";
        command
            .args(flags.split(' '))
            .args(["--wait-for-ready", "--fail-on-error", "--json"])
            .env(
                "GRPC_XDS_BOOTSTRAP_CONFIG",
                bootstrap_of(&document, control.address),
            );
        let (status, lines) = Process::start("crowfly load", command).wait(PATIENCE);
        assert!(status.success(), "{lines:?}");
        let report: Value = serde_json::from_str(&lines.concat()).unwrap();
        let sessions = &report["sessions"];
        assert_eq!(
            [&sessions["stayed"], &sessions["moved"]],
            [stayed, moved],
            "{report}"
        );
    }
}

/// The configuration of a document, with other addresses than those in it.
pub(crate) fn mesh_of(document: &str, addresses: [SocketAddr; 2]) -> String {
    block(document, "# mesh.yaml\n", "```")
        .replace("127.0.0.1:50051", &addresses[0].to_string())
        .replace("127.0.0.1:50052", &addresses[1].to_string())
}

/// The bootstrap of a document, with another control plane.
pub(crate) fn bootstrap_of(document: &str, control: SocketAddr) -> String {
    block(document, "GRPC_XDS_BOOTSTRAP_CONFIG='", "'")
        .replace("127.0.0.1:18000", &control.to_string())
}

/// gRFC A29: gRPC C-core takes the example's `tls` as our channel does. The server answers the method
/// that the client has with UNIMPLEMENTED, which shows that the handshake succeeded.
#[test]
fn c_core_reaches_the_example_over_tls() {
    let Some(python) = peers::python() else {
        return;
    };
    let certs = certs(&["hello-server", "c-core"]);
    let (_server, address) = hello_server(&certs);
    let mesh = block(
        &read("examples/hello/README.md"),
        "# mesh-tls.yaml\n",
        "```",
    )
    .replace("127.0.0.1:50051", &address.to_string());
    for (name, expected) in [("hello-server", "UNIMPLEMENTED"), ("other", "UNAVAILABLE")] {
        let control = CROWFLY.control_of(&mesh.replace("org/hello-server", &format!("org/{name}")));
        let identity = (certs.path(), "c-core");
        let target = "xds:///hello";
        let mut client = CCoreClient::start_secured(python, control.address, target, identity);
        client.fail_fast();
        let outcomes = client.outcomes(1);
        assert_eq!(outcomes.keys().collect::<Vec<_>>(), [expected], "{name}");
    }
}

/// gRFC A29: an Envoy with the secrets of docs/envoy.md reaches servers that ask for certificates, and
/// only those of the right name.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_envoy_speaks_tls() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let document = read("docs/envoy.md");
    let certs = certs(&["hello-server", "envoy"]);
    let (_server, address) = hello_server(&certs);
    let secrets = block(
        &document,
        "# added to envoy.yaml\nstatic_resources:\n",
        "```",
    )
    .replace("certs/", &format!("{}/", certs.path().display()));
    for (name, is_greeted) in [("hello-server", true), ("other", false)] {
        let tls = format!("{{ ca: mesh, identity: mesh, san: [\"spiffe://example.org/{name}\"] }}");
        let mesh = block(&document, "# mesh.yaml\n", "```")
            .replace("127.0.0.1:50051", &address.to_string())
            .replace(
                "- name: payments\n    endpoints",
                &format!("- name: payments\n    tls: {tls}\n    endpoints"),
            )
            .replace("port_value: 10000", "port_value: 0");
        assert!(mesh.contains(&tls), "{mesh}");
        let control = CROWFLY.control_of(&mesh);
        let bootstrap = block(&document, "# envoy.yaml\n", "```")
            .replace("port_value: 9901", "port_value: 0")
            .replace(
                "static_resources:\n",
                &format!("static_resources:\n{secrets}\n"),
            )
            .replace(
                "port_value: 18000",
                &format!("port_value: {}", control.address.port()),
            );
        let envoy = Envoy::start_from(program, &bootstrap);
        let endpoint = format!("http://{}", envoy.listener("ingress"));
        let channel = Endpoint::from_shared(endpoint).unwrap().connect_lazy();
        let request = HelloRequest {
            name: "Envoy".to_owned(),
        };
        let reply = GreeterClient::new(channel).say_hello(request).await;
        assert_eq!(reply.is_ok(), is_greeted, "{name}: {reply:?}");
    }
}

/// S7-01: the bootstrap of docs/envoy.md starts an Envoy that serves the configuration beside it.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_envoy_serves() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let document = read("docs/envoy.md");
    let backend = CROWFLY.backend("b1");
    let mesh = block(&document, "# mesh.yaml\n", "```")
        .replace("127.0.0.1:50051", &backend.address.to_string())
        .replace("port_value: 10000", "port_value: 0");
    let control = CROWFLY.control_of(&mesh);
    let bootstrap = block(&document, "# envoy.yaml\n", "```")
        .replace("port_value: 9901", "port_value: 0")
        .replace(
            "port_value: 18000",
            &format!("port_value: {}", control.address.port()),
        );
    let envoy = Envoy::start_from(program, &bootstrap);
    let address = envoy.listener("ingress");
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy();
    rpc::until_served_by(&channel, &["b1"]).await;
}

/// L-02: an Envoy with the transport socket and the secrets of docs/envoy.md reaches a control
/// plane that asks for certificates. A control plane with another name does not serve it.
#[test]
fn the_documented_envoy_reaches_its_control_plane_over_tls() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let document = read("docs/envoy.md");
    let certs = certs(&["control", "other", "envoy"]);
    let folder = certs.path().to_str().unwrap();
    let here = |text: String| text.replace("certs/", &format!("{folder}/"));
    for name in ["trusted.json", "own.json"] {
        let (_, after) = document.split_once(&format!("`certs/{name}`")).unwrap();
        let secret = here(block(after, "```json\n", "```"));
        fs::write(certs.path().join(name), secret).unwrap();
    }
    let start = "# added to the cluster control in envoy.yaml\n";
    let socket = here(block(&document, start, "```")).replace('\n', "\n      ");
    let mesh =
        block(&document, "# mesh.yaml\n", "```").replace("port_value: 10000", "port_value: 0");
    let ca = format!("{folder}/ca.pem");
    for (name, is_right) in [("control", true), ("other", false)] {
        let (own, key) = (
            format!("{folder}/{name}.pem"),
            format!("{folder}/{name}.key"),
        );
        let flags = [
            "--tls-cert",
            &own,
            "--tls-key",
            &key,
            "--tls-client-ca",
            &ca,
        ];
        let control = CROWFLY.control_with("127.0.0.1:0", &mesh, &flags);
        let port = format!("port_value: {}", control.address.port());
        let bootstrap = block(&document, "# envoy.yaml\n", "```")
            .replace("port_value: 9901", "port_value: 0")
            .replace("port_value: 18000", &port)
            .replace(
                "connect_timeout: 5s",
                &format!("connect_timeout: 5s\n      {socket}"),
            );
        let envoy = Envoy::start_from(program, &bootstrap);
        if !is_right {
            envoy.until_stat("cluster.control.ssl.fail_verify_san", |count| count > 0);
            control.process.wait_for_error("connection refused");
            continue;
        }
        envoy.listener("ingress");
        let page = admin::page(control.admin, "/clients");
        let identity = json!(["spiffe://example.org/envoy"]);
        assert_eq!(page["clients"][0]["identity"], identity, "{page:#}");
    }
}

/// A folder with an authority, and a certificate for each name.
fn certs(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(CROWFLY.program);
    command.args(["certs", "--out"]).arg(dir.path()).args(names);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    dir
}

/// A server of the example that speaks TLS, and its address.
fn hello_server(certs: &TempDir) -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-server-under-test"));
    command.arg("127.0.0.1:0").arg(certs.path());
    let server = Process::start("hello-server", command);
    let address = server.wait_for("its address", |line| after(line, "listening on "));
    (server, address)
}

pub(crate) fn program(path: &str, argument: &str) -> Process {
    let mut command = Command::new(path);
    command.arg(argument);
    Process::start(path, command)
}

/// The address that follows `label`.
pub(crate) fn after(line: &str, label: &str) -> Option<SocketAddr> {
    line.strip_prefix(label)?.parse().ok()
}

/// The text between `start` and the next `end`, without the indentation of a list.
pub(crate) fn block(document: &str, start: &str, end: &str) -> String {
    let (before, after) = document.split_once(start).expect(start);
    let indentation = before.rsplit('\n').next().unwrap_or_default();
    let indentation = if indentation.trim().is_empty() {
        indentation
    } else {
        ""
    };
    let (text, _) = after.split_once(end).expect(end);
    let lines = text.lines();
    let lines = lines.map(|line| line.strip_prefix(indentation).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

pub(crate) fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}
