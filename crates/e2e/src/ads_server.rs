//! An ADS server on gRPC C-core, to serve a client under test.
//!
//! The server is foreign, because a server of ours could share a mistake with the client.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

    /// Starts a server on a port, such as that of a server that is gone.
    pub fn start_on(python: &Path, port: u16) -> Self {
        Self::start_with(python, &["--port", &port.to_string()])
    }

    /// Starts a server that answers UNIMPLEMENTED to delta streams.
    pub fn start_without_delta(python: &Path) -> Self {
        Self::start_with(python, &["--without-delta"])
    }

    /// Starts a server that takes load reports of all clusters in this interval.
    pub fn start_with_load_reports(python: &Path, interval: Duration) -> Self {
        let seconds = interval.as_secs_f64().to_string();
        Self::start_with(python, &["--load-reports", &seconds])
    }

    fn start_with(python: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(python);
        command.arg(SCRIPT).args(arguments);
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
    /// If there is no resource, because the type would be unknown.
    pub fn set(&mut self, version: &str, resources: &[Value]) {
        let type_url = &resources.first().expect("at least one resource")["@type"];
        let command = json!({ "type_url": type_url, "version": version, "resources": resources });
        self.process.send_line(&command.to_string());
    }

    /// Removes all resources of one type.
    pub fn clear(&mut self, version: &str, type_url: &str) {
        let command = json!({ "type_url": type_url, "version": version, "resources": [] });
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

    /// Waits for a client to begin load reports, and returns its node.
    pub fn wait_for_load_stream(&self) -> Value {
        self.wait_for_event("load_stream")["node"].take()
    }

    /// Waits for the next load report, and returns its `cluster_stats` in proto JSON.
    pub fn wait_for_load_report(&self) -> Vec<Value> {
        let mut event = self.wait_for_event("load_report");
        match event["cluster_stats"].take() {
            Value::Array(stats) => stats,
            other => panic!("expected a list of statistics, got {other}"),
        }
    }

    /// Waits for the client to end its load reports.
    pub fn wait_for_end_of_load_reports(&self) {
        self.wait_for_event("load_stream_closed");
    }

    fn wait_for_event(&self, name: &str) -> Value {
        self.process.wait_for(name, |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == name).then_some(event)
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

    /// Waits for a request on a delta stream, like [`wait_for_request`](Self::wait_for_request).
    pub fn wait_for_delta_request(
        &self,
        what: &str,
        wanted: impl Fn(&DeltaRequest) -> bool,
    ) -> DeltaRequest {
        self.process.wait_for(what, |line| {
            let request = DeltaRequest::from_event(&serde_json::from_str(line).ok()?)?;
            wanted(&request).then_some(request)
        })
    }

    /// Waits for the server to send a version of a resource on a delta stream, and for the client's
    /// answer, an ACK or a NACK.
    pub fn wait_for_delta_answer(&self, type_url: &str, name: &str, version: &str) -> DeltaRequest {
        self.answer_to(&format!("{version} of {name}"), type_url, |event| {
            event["versions"][name] == version
        })
    }

    /// Waits for the answer to a response that removes the resource `name`.
    pub fn wait_for_removal_answer(&self, type_url: &str, name: &str) -> DeltaRequest {
        self.answer_to(&format!("the removal of {name}"), type_url, |event| {
            let removed = event["removed"].as_array();
            removed.is_some_and(|removed| removed.iter().any(|removed| removed == name))
        })
    }

    fn answer_to(
        &self,
        what: &str,
        type_url: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> DeltaRequest {
        let nonce = self
            .process
            .wait_for(&format!("response with {what}"), |line| {
                let event: Value = serde_json::from_str(line).ok()?;
                let of_type = event["event"] == "delta_response" && event["type_url"] == type_url;
                let nonce = event["nonce"]
                    .as_str()
                    .filter(|_| of_type && wanted(&event))?;
                Some(nonce.to_owned())
            });
        self.wait_for_delta_request(&format!("answer to {what}"), |request| {
            request.nonce == nonce
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
        if event["event"] != "request" {
            return None;
        }
        Some(Self {
            type_url: string(&event["type_url"])?,
            version: string(&event["version_info"])?,
            nonce: string(&event["response_nonce"])?,
            names: strings(&event["resource_names"])?,
            error: string(&event["error_detail"]["message"]),
            node_id: string(&event["node"]["id"]),
        })
    }
}

/// A `DeltaDiscoveryRequest` as the server saw it.
#[derive(Clone, Debug)]
pub struct DeltaRequest {
    /// `type_url`.
    pub type_url: String,
    /// `resource_names_subscribe`.
    pub subscribe: Vec<String>,
    /// `resource_names_unsubscribe`.
    pub unsubscribe: Vec<String>,
    /// `initial_resource_versions`: the versions that the client has, sent once for each stream and type.
    pub initial_versions: BTreeMap<String, String>,
    /// `response_nonce`: of the response it answers.
    pub nonce: String,
    /// The message of `error_detail`.
    pub error: Option<String>,
    /// The id of `node`, which only the first request of a stream has.
    pub node_id: Option<String>,
}

impl DeltaRequest {
    fn from_event(event: &Value) -> Option<Self> {
        if event["event"] != "delta_request" {
            return None;
        }
        let versions = event["initial_resource_versions"].as_object()?.iter();
        let versions =
            versions.filter_map(|(name, version)| Some((name.clone(), string(version)?)));
        Some(Self {
            type_url: string(&event["type_url"])?,
            subscribe: strings(&event["subscribe"])?,
            unsubscribe: strings(&event["unsubscribe"])?,
            initial_versions: versions.collect(),
            nonce: string(&event["response_nonce"])?,
            error: string(&event["error_detail"]["message"]),
            node_id: string(&event["node"]["id"]),
        })
    }
}

fn string(value: &Value) -> Option<String> {
    Some(value.as_str()?.to_owned())
}

fn strings(value: &Value) -> Option<Vec<String>> {
    Some(value.as_array()?.iter().filter_map(string).collect())
}
