//! gRPC-Node as a client, by `@grpc/grpc-js-xds`.

use crowfly_e2e::grpc_js::GrpcJsClient;
use crowfly_e2e::peers;
use serde_json::Value;

use super::c_core::{Script, Scripted};

pub(super) fn start(bootstrap: &Value) -> Option<Scripted<GrpcJsClient>> {
    let package = peers::grpc_js_xds()?;
    let client = GrpcJsClient::start_as(package, "xds:///none", bootstrap);
    Some(Scripted::new(client))
}

impl Script for GrpcJsClient {
    fn target(&mut self, target: &str) {
        self.target(target);
    }

    fn results(&mut self, command: &str, count: usize) -> Vec<Value> {
        self.results(command, count)
    }
}
