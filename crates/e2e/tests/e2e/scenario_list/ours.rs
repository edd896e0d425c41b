//! Our own channel as a client.
//!
//! Our channel runs the list that foreign clients run, so that the table compares them.

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::rpc;
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};
use tonic::Status;

use super::peer::{Outcome, Peer};

/// A channel of ours to the service that was called last.
pub(super) struct OurChannel {
    bootstrap: Bootstrap,
    current: Option<(String, Channel)>,
    runtime: Runtime,
}

impl OurChannel {
    /// `features` are those of the server in the bootstrap.
    pub(super) fn start(mut bootstrap: Value, features: &[&str]) -> Self {
        bootstrap["xds_servers"][0]["server_features"] = json!(features);
        Self {
            bootstrap: Bootstrap::from_json(&bootstrap.to_string()).unwrap(),
            current: None,
            runtime: runtime(),
        }
    }

    fn channel(&mut self, service: &str) -> Channel {
        if let Some((_, channel)) = self.current.as_ref().filter(|(name, _)| name == service) {
            return channel.clone();
        }
        let _context = self.runtime.enter();
        let channel = Channel::builder(&format!("xds:///{service}"))
            .bootstrap(self.bootstrap.clone())
            .build()
            .unwrap();
        self.current = Some((service.to_owned(), channel.clone()));
        channel
    }
}

impl Peer for OurChannel {
    fn call(&mut self, service: &str, count: usize) -> Vec<Outcome> {
        let channel = self.channel(service);
        let call = |_| outcome(self.runtime.block_on(rpc::unary_call(&channel)));
        (0..count).map(call).collect()
    }
}

/// A runtime that goes on between calls.
pub(super) fn runtime() -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

pub(super) fn outcome(result: Result<String, Status>) -> Outcome {
    match result {
        Ok(backend) => Outcome::Answered(backend),
        Err(status) => Outcome::Failed(format!("{:?}: {}", status.code(), status.message())),
    }
}
