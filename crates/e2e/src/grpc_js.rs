//! A gRPC-Node client in a process of its own.
//!
//! Its reading of xDS shares nothing with ours, so both cannot have the same mistake.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::c_core::bootstrap_of;
use crate::credentials::Credentials;
use crate::process::{Process, results};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/js/grpc_client.js");

/// A gRPC-Node channel in a process of its own.
pub struct GrpcJsClient {
    process: Process,
}

impl GrpcJsClient {
    /// Starts a client of `target`, such as `xds:///svc`, in the zone `zone` of the region `r1`. It is
    /// served by the control plane at `control`. `package` is @grpc/grpc-js-xds.
    pub fn start_in(package: &Path, control: SocketAddr, target: &str, zone: &str) -> Self {
        let locality = json!({ "region": "r1", "zone": zone });
        let node = json!({ "id": "grpc-node", "cluster": "e2e", "locality": locality });
        let bootstrap = bootstrap_of(control, &node, &Credentials::insecure());
        Self::start_as(package, target, &bootstrap)
    }

    /// Starts a client of `target` with this bootstrap.
    pub fn start_as(package: &Path, target: &str, bootstrap: &Value) -> Self {
        let mut command = Command::new("node");
        command
            .arg(SCRIPT)
            .arg(package)
            .arg(target)
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
            .env_remove("GRPC_XDS_BOOTSTRAP")
            // A proxy for the outside is no way to loopback.
            .env("no_grpc_proxy", "127.0.0.1,localhost");
        Self {
            process: Process::start("gRPC-Node client", command),
        }
    }

    /// Replaces the channel by one to `target`.
    pub fn target(&mut self, target: &str) {
        self.process.send_line(&format!("target {target}"));
    }

    /// Makes `count` calls by a command of the script, such as `call` or `fail 14`, one after the
    /// other. Returns the result of each.
    pub fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        results(&mut self.process, command, count)
    }
}
