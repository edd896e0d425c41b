//! gRPC C-core as a client, by `grpcio`.
//!
//! Its script understands the commands of all gRPC clients, so their code is here once.

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::peers;
use serde_json::Value;

use super::peer::{Outcome, Peer};

/// A client whose script makes the calls. It has a channel to one service at a time.
pub(super) struct Scripted<C> {
    client: C,
    service: String,
}

/// The commands that the programs of all gRPC clients understand.
pub(super) trait Script: Send {
    fn target(&mut self, target: &str);
    fn results(&mut self, command: &str, count: usize) -> Vec<Value>;
}

pub(super) fn start(bootstrap: &Value) -> Option<Scripted<CCoreClient>> {
    let python = peers::python()?;
    let client = CCoreClient::start_as(python, "xds:///none", bootstrap);
    Some(Scripted::new(client))
}

impl<C> Scripted<C> {
    pub(super) fn new(client: C) -> Self {
        Self {
            client,
            service: String::new(),
        }
    }
}

impl<C: Script> Peer for Scripted<C> {
    fn call(&mut self, service: &str, count: usize) -> Vec<Outcome> {
        if self.service != service {
            self.client.target(&format!("xds:///{service}"));
            service.clone_into(&mut self.service);
        }
        let results = self.client.results("try", count);
        results.iter().map(outcome).collect()
    }
}

impl Script for CCoreClient {
    fn target(&mut self, target: &str) {
        self.target(target);
    }

    fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        self.results(command, count)
    }
}

fn outcome(result: &Value) -> Outcome {
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    match result["code"].as_str() {
        Some("OK") => Outcome::Answered(text("hostname")),
        _ => Outcome::Failed(format!("{}: {}", text("code"), text("details"))),
    }
}
