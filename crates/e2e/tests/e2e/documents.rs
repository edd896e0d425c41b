//! The README and the documents, followed step by step on ports of the kernel's choice.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::Process;
use crowfly_e2e::{peers, rpc};
use hello::HelloRequest;
use hello::greeter_client::GreeterClient;
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
    let mesh = block(&readme, "# mesh.yaml\n", "```")
        .replace("127.0.0.1:50051", &first.to_string())
        .replace("127.0.0.1:50052", &second.to_string());
    let control = CROWFLY.control_of(&mesh);
    let bootstrap = block(&readme, "GRPC_XDS_BOOTSTRAP_CONFIG='", "'")
        .replace("127.0.0.1:18000", &control.address.to_string());

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

fn program(path: &str, argument: &str) -> Process {
    let mut command = Command::new(path);
    command.arg(argument);
    Process::start(path, command)
}

/// The address that follows `label`.
fn after(line: &str, label: &str) -> Option<SocketAddr> {
    line.strip_prefix(label)?.parse().ok()
}

/// The text between `start` and the next `end`, without the indentation of a list.
fn block(document: &str, start: &str, end: &str) -> String {
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

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}
