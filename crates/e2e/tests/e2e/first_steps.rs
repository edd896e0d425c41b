//! The first steps of docs/control.md, followed on ports of the kernel's choice. The programs are those of
//! examples/first, which the document shows word for word.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crowfly_e2e::process::{PATIENCE, Process};
use crowfly_e2e::product::Control;
use crowfly_e2e::{grpc_go, peers};

use crate::CROWFLY;
use crate::documents::{after, block, bootstrap_of, mesh_of, program, read};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first");

/// The two servers of the document and its control plane.
struct World {
    _servers: [Process; 2],
    addresses: [SocketAddr; 2],
    _control: Control,
    bootstrap: String,
}

impl World {
    fn start() -> Self {
        let document = read("docs/control.md");
        let server = || program(env!("CARGO_BIN_EXE_hello-server-under-test"), "127.0.0.1:0");
        let servers = [server(), server()];
        let address =
            |of: &Process| of.wait_for("its address", |line| after(line, "listening on "));
        let addresses = [address(&servers[0]), address(&servers[1])];
        let control = CROWFLY.control_of(&mesh_of(&document, addresses));
        Self {
            bootstrap: bootstrap_of(&document, control.address),
            _servers: servers,
            addresses,
            _control: control,
        }
    }

    /// Runs a client to its end, and expects greetings by the servers.
    fn greets(&self, name: &str, mut command: Command) {
        command
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", &self.bootstrap)
            .env_remove("GRPC_XDS_BOOTSTRAP")
            // A proxy for the outside is no way to loopback.
            .env("no_grpc_proxy", "127.0.0.1,localhost");
        let (status, lines) = Process::start(name, command).wait(PATIENCE);
        assert!(status.success(), "{lines:?}");
        assert_eq!(lines.len(), 4, "{lines:?}");
        let greetings = self.addresses.map(|of| format!("Hello {name}, from {of}"));
        for line in &lines {
            assert!(greetings.contains(line), "{greetings:?}: {lines:?}");
        }
    }
}

/// K-11: the servers greet the first client in Python.
#[test]
fn a_first_client_in_python() {
    let Some(python) = peers::python() else {
        return;
    };
    let mut command = Command::new(python);
    command.arg(Path::new(FOLDER).join("greet.py"));
    World::start().greets("Python", command);
}

/// K-11: the servers greet the first client in Node.js.
#[test]
fn a_first_client_in_node() {
    let Some(package) = peers::grpc_js_xds() else {
        return;
    };
    let mut folders = package.ancestors();
    let modules = folders.find(|folder| folder.ends_with("node_modules"));
    let mut command = Command::new("node");
    command
        .arg(Path::new(FOLDER).join("greet.js"))
        .env("NODE_PATH", modules.expect("a folder of packages"));
    World::start().greets("Node", command);
}

/// K-11: the servers greet the first client in Go.
#[test]
fn a_first_client_in_go() {
    let Some(program) = grpc_go::build(&Path::new(FOLDER).join("greet.go")) else {
        return;
    };
    World::start().greets("Go", Command::new(program));
}

/// K-11: a first node agent routes the services of the control plane.
#[test]
fn a_first_node_agent() {
    let document = read("docs/control.md");
    let mesh = block(&document, "# agent-mesh.yaml\n", "```");
    let control = CROWFLY.control_of(&mesh);
    let server = control.address.to_string();
    let line = "crowfly node --xds-server 127.0.0.1:18000 --dry-run\n";
    assert!(document.contains(line));
    let mut agent = CROWFLY.start(&["node", "--xds-server", &server, "--dry-run"]);
    let (status, lines) = agent.wait(PATIENCE);
    assert!(status.success(), "{lines:?}");
    let text = lines.join("\n");
    for expected in ["10.96.0.10:80", "127.0.0.1:8080", "127.0.0.1:8081"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
