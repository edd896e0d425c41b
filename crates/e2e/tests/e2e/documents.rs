//! The README and the documents, followed step by step on ports of the kernel's choice.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::Process;
use crowfly_e2e::{peers, rpc};
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
