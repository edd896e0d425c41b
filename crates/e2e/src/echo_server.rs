//! A foreign gRPC server of `/e2e.Echo/`, for a channel under test to call.
//!
//! The server is foreign, because a server of ours could share a mistake with the channel.
//! `py/echo_server.py` describes its methods.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process::{Process, Signal};

const C_CORE_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/echo_server.py");
const NODE_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/js/echo_server.js");

/// A server in a process of its own.
pub struct EchoServer {
    /// The address on which the server listens.
    pub address: SocketAddr,
    process: Process,
}

/// Options of the server, by their names in gRPC, which are the same in all languages.
pub type Options<'a> = [(&'a str, u32)];

impl EchoServer {
    /// Starts one on gRPC C-core that calls itself `name`.
    pub fn c_core(python: &Path, name: &str, options: &Options<'_>) -> Self {
        let mut command = Command::new(python);
        command.arg(C_CORE_SCRIPT);
        Self::start("C-core server", command, name, options)
    }

    /// Starts one on gRPC C-core over TLS, with the `ca.pem`, `cert.pem` and `key.pem` of a folder. It requires
    /// clients to have a certificate, and reads the files for each handshake.
    pub fn c_core_over_tls(
        python: &Path,
        name: &str,
        folder: &Path,
        options: &Options<'_>,
    ) -> Self {
        let mut command = Command::new(python);
        command.arg(C_CORE_SCRIPT);
        let tls = format!("tls={}", folder.display());
        Self::start_with("C-core server", command, name, options, &[tls])
    }

    /// Starts one on gRPC-Node that calls itself `name`.
    pub fn node(grpc_js: &Path, name: &str, options: &Options<'_>) -> Self {
        let mut command = Command::new("node");
        command.arg(NODE_SCRIPT).arg(grpc_js);
        Self::start("gRPC-Node server", command, name, options)
    }

    fn start(what: &str, command: Command, name: &str, options: &Options<'_>) -> Self {
        Self::start_with(what, command, name, options, &[])
    }

    fn start_with(
        what: &str,
        mut command: Command,
        name: &str,
        options: &Options<'_>,
        more: &[String],
    ) -> Self {
        let options = options
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        command.arg(name).args(options).args(more);
        let process = Process::start(format!("{what} {name}"), command);
        let port = process.wait_for("its port", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            u16::try_from(event["port"].as_u64()?).ok()
        });
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            process,
        }
    }

    /// Waits until a `Sleep` call has come.
    pub fn wait_for_call(&self) {
        self.wait_for_event("begun");
    }

    /// Waits until a `Sleep` call was cancelled.
    pub fn wait_for_cancellation(&self) {
        self.wait_for_event("cancelled");
    }

    /// Waits for the next attempt of a `Flaky` call: `grpc-previous-rpc-attempts` of its metadata, and all of
    /// its requests, joined by commas.
    pub fn wait_for_attempt(&self) -> (Option<String>, String) {
        self.process.wait_for("an attempt", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            let previous = event["previous"].as_str().map(str::to_owned);
            Some((previous, event["requests"].as_str()?.to_owned()))
        })
    }

    /// Has it stop gracefully, and waits for that: open calls have a second to end, and are ended
    /// then.
    pub fn stop(&self) {
        self.process.signal(Signal::TERM);
        self.wait_for_event("stopped");
    }

    fn wait_for_event(&self, name: &str) {
        self.process.wait_for(name, |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == name).then_some(())
        });
    }
}
