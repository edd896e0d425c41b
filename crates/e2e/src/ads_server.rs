//! An ADS server on gRPC C-core, to serve a client under test.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::Process;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/ads_server.py");

/// The foreign ADS server in a process of its own.
pub struct AdsServer {
    process: Process,
    port: u16,
}

impl AdsServer {
    /// Starts a server without resources, on a port that the kernel chooses.
    pub fn start(python: &Path) -> Self {
        Self::start_on(python, 0)
    }

    /// Starts one on a port: that of a server that is gone.
    pub fn start_on(python: &Path, port: u16) -> Self {
        let mut command = Command::new(python);
        command.args([SCRIPT, "--port", &port.to_string()]);
        let process = Process::start("foreign ADS server", command);
        let port = process.wait_for("port", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            u16::try_from(event["port"].as_u64()?).ok()
        });
        Self { process, port }
    }

    /// The loopback port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Replaces all resources of one type; each has an `@type`.
    ///
    /// # Panics
    ///
    /// If there is none: the type would be unknown.
    pub fn set(&mut self, version: &str, resources: &[Value]) {
        let type_url = &resources.first().expect("at least one resource")["@type"];
        let command = json!({ "type_url": type_url, "version": version, "resources": resources });
        self.process.send_line(&command.to_string());
    }

    /// Waits for the first request, from where the last wait ended, that is
    /// `wanted`; `what` names it in the message of a failure.
    pub fn wait_for_request(&self, what: &str, wanted: impl Fn(&Request) -> bool) -> Request {
        self.process.wait_for(what, |line| {
            let request = Request::from_event(&serde_json::from_str(line).ok()?)?;
            wanted(&request).then_some(request)
        })
    }

    /// Waits for the ACK of a version of a type.
    pub fn wait_for_ack(&self, type_url: &str, version: &str) -> Request {
        self.wait_for_request(&format!("ACK of {version} of {type_url}"), |request| {
            request.type_url == type_url && request.version == version && request.error.is_none()
        })
    }

    /// Waits for a NACK of a type.
    pub fn wait_for_nack(&self, type_url: &str) -> Request {
        self.wait_for_request(&format!("NACK of {type_url}"), |request| {
            request.type_url == type_url && request.error.is_some()
        })
    }
}

/// A `DiscoveryRequest` as the server saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// `type_url`.
    pub type_url: String,
    /// `version_info`: the last version the client accepted.
    pub version: String,
    /// `response_nonce`: of the response it answers.
    pub nonce: String,
    /// `resource_names`.
    pub names: Vec<String>,
    /// The message of `error_detail`.
    pub error: Option<String>,
    /// The id of `node`, which only the first request of a stream has.
    pub node_id: Option<String>,
}

impl Request {
    fn from_event(event: &Value) -> Option<Self> {
        let string = |value: &Value| Some(value.as_str()?.to_owned());
        if event["event"] != "request" {
            return None;
        }
        Some(Self {
            type_url: string(&event["type_url"])?,
            version: string(&event["version_info"])?,
            nonce: string(&event["response_nonce"])?,
            names: event["resource_names"]
                .as_array()?
                .iter()
                .filter_map(string)
                .collect(),
            error: string(&event["error_detail"]["message"]),
            node_id: string(&event["node"]["id"]),
        })
    }
}
