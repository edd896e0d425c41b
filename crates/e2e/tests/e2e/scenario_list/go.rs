//! gRPC-Go as a client, by the program in `go/`.

use crowfly_e2e::grpc_go::GrpcGoClient;
use serde_json::Value;

use super::c_core::{Script, Scripted};

pub(super) fn start(bootstrap: &Value) -> Option<Scripted<GrpcGoClient>> {
    let client = GrpcGoClient::start_as("xds:///none", bootstrap)?;
    Some(Scripted::new(client))
}

impl Script for GrpcGoClient {
    fn target(&mut self, target: &str) {
        self.target(target);
    }

    fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        self.results(command, count)
    }
}
