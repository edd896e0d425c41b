//! A gRPC C-core client in a process of its own, because it reads xDS with code that shares nothing
//! with ours.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::credentials::Credentials;
use crate::process::{PATIENCE, Process};
use crate::rpc::{CALLS_EACH, Spread, is_served_by};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/grpc_client.py");

/// A C-core channel in a process of its own.
pub struct CCoreClient {
    process: Process,
    command: &'static str,
}

impl CCoreClient {
    /// Starts a client of `target`, such as `xds:///svc`, that is served by the
    /// control plane at `control`.
    pub fn start(python: &Path, control: SocketAddr, target: &str) -> Self {
        Self::start_with(python, &bootstrap(control), target, false)
    }

    /// Starts a client of `target` with xDS credentials. `certs` is a folder of `crowfly certs`, and
    /// `name` is the certificate of the client, which its bootstrap calls `mesh`.
    pub fn start_secured(
        python: &Path,
        control: SocketAddr,
        target: &str,
        (certs, name): (&Path, &str),
    ) -> Self {
        let mut bootstrap = bootstrap(control);
        bootstrap["certificate_providers"] = json!({ "mesh": {
            "plugin_name": "file_watcher",
            "config": {
                "certificate_file": certs.join(format!("{name}.pem")),
                "private_key_file": certs.join(format!("{name}.key")),
                "ca_certificate_file": certs.join("ca.pem"),
                "refresh_interval": "600s",
            },
        } });
        Self::start_with(python, &bootstrap, target, true)
    }

    fn start_with(python: &Path, bootstrap: &Value, target: &str, is_secured: bool) -> Self {
        let mut command = Command::new(python);
        command
            .args([SCRIPT, target])
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
            .env_remove("GRPC_XDS_BOOTSTRAP")
            // A proxy for the outside is no way to loopback.
            .env("no_grpc_proxy", "127.0.0.1,localhost");
        if is_secured {
            command.env("XDS_CREDENTIALS", "1");
        }
        Self {
            process: Process::start("C-core client", command),
            command: "call",
        }
    }

    /// Starts a client of `target` in the zone `zone` of the region `r1`.
    pub fn start_in(python: &Path, control: SocketAddr, target: &str, zone: &str) -> Self {
        let locality = json!({ "region": "r1", "zone": zone });
        let node = json!({ "id": "c-core", "cluster": "e2e", "locality": locality });
        Self::start_as(
            python,
            target,
            &bootstrap_of(control, &node, &Credentials::insecure()),
        )
    }

    /// Starts a client of `target` with this bootstrap.
    pub fn start_as(python: &Path, target: &str, bootstrap: &Value) -> Self {
        Self::start_with(python, bootstrap, target, false)
    }

    /// Replaces the channel by one to `target`.
    pub fn target(&mut self, target: &str) {
        self.process.send_line(&format!("target {target}"));
    }

    /// Makes `count` calls by a command of the script, such as `call` or `fail 14`, one after the
    /// other. Returns the result of each.
    pub fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        crate::process::results(&mut self.process, command, count)
    }

    /// From now on calls fail where they would have waited for a backend.
    pub fn fail_fast(&mut self) {
        self.command = "try";
    }

    /// From now on calls are of one session: each has the cookie that the last answer with one set.
    pub fn keep_cookie(&mut self) {
        self.command = "session";
    }

    /// From now on calls have no cookie.
    pub fn forget_cookie(&mut self) {
        self.command = "call";
    }

    /// Makes `count` calls, one after the other, and counts the answers of each backend.
    ///
    /// # Panics
    ///
    /// If any of them fails.
    pub fn spread(&mut self, count: usize) -> Spread {
        self.process.send_line(&format!("{} {count}", self.command));
        let mut spread = Spread::new();
        for _ in 0..count {
            let result: Value = self
                .process
                .wait_for("a call's result", |line| serde_json::from_str(line).ok());
            assert_eq!(result["code"], "OK", "{result}");
            let hostname = result["hostname"].as_str().unwrap_or_default();
            *spread.entry(hostname.to_owned()).or_default() += 1;
        }
        spread
    }

    /// Makes `count` calls, one after the other. Returns how often each outcome came: the name of a
    /// backend, or the status of a call that failed.
    pub fn outcomes(&mut self, count: usize) -> Spread {
        self.process.send_line(&format!("{} {count}", self.command));
        let mut outcomes = Spread::new();
        for _ in 0..count {
            let result: Value = self
                .process
                .wait_for("a call's result", |line| serde_json::from_str(line).ok());
            let key = match result["code"].as_str() {
                Some("OK") => &result["hostname"],
                _ => &result["code"],
            };
            let key = key.as_str().unwrap_or_default();
            *outcomes.entry(key.to_owned()).or_default() += 1;
        }
        outcomes
    }

    /// Makes `rps` calls a second for `seconds`, without wait-for-ready. Returns the number of
    /// calls, the number of failures, and the text of the first failure.
    pub fn load(&mut self, rps: u32, seconds: u32) -> [Value; 3] {
        self.process.send_line(&format!("load {rps} {seconds}"));
        let mut result: Value = self
            .process
            .wait_for("the outcome", |line| serde_json::from_str(line).ok());
        ["calls", "failed", "first"].map(|key| result[key].take())
    }

    /// Calls until a whole round is answered by exactly the backends in `names`.
    ///
    /// # Panics
    ///
    /// If a call fails, or that does not come to be within [`PATIENCE`].
    pub fn until_served_by(&mut self, names: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let spread = self.spread(names.len() * CALLS_EACH);
            if is_served_by(&spread, names) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "expected {names:?} to answer, found {spread:?}"
            );
        }
    }
}

/// The bootstrap of a gRPC client that is served by the control plane at `control`.
fn bootstrap(control: SocketAddr) -> Value {
    let node = json!({ "id": "c-core", "cluster": "e2e" });
    bootstrap_of(control, &node, &Credentials::insecure())
}

/// The bootstrap of a gRPC client that introduces itself as `node` to the control plane at `control`.
pub fn bootstrap_of(control: SocketAddr, node: &Value, credentials: &Credentials) -> Value {
    json!({
        "xds_servers": [{
            "server_uri": control.to_string(),
            "channel_creds": credentials.to_channel_creds(),
        }],
        "node": node,
    })
}
