//! The two clients, their control plane and their backends.
//!
//! The clients share both, because a difference between their outcomes can then only come from the
//! clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use crowfly::{Bootstrap, Channel};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tonic::Code;
use tonic::client::Grpc;

use super::{Attempt, Backends, Call, Outcome};
use crate::echo::Raw;
use crate::process::{PATIENCE, Process};
use crate::product::{Config, Control, Crowfly};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/calls_client.py");
/// The number of calls that each client has open at most: well under what a cluster takes (gRFC A32).
const MOST_OPEN: usize = 64;

/// A value of each of the two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Both<T> {
    /// Of our channel.
    pub ours: T,
    /// Of gRPC C-core.
    pub c_core: T,
}

impl<T> Both<T> {
    /// Applies a function to both values.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Both<U> {
        Both {
            ours: change(self.ours),
            c_core: change(self.c_core),
        }
    }
}

/// A control plane and its two clients.
pub struct Rig {
    /// The backends of the clusters.
    pub backends: Backends,
    c_core: Process,
    ours: Channels,
    control: Control,
}

impl Rig {
    /// Starts both clients, served with these resources by our control plane.
    pub fn start(
        crowfly: Crowfly,
        python: &Path,
        backends: Backends,
        resources: impl IntoIterator<Item = Value>,
    ) -> Self {
        let config = Config::default().with_resources(resources);
        let control = block_in_place(|| crowfly.control_forced(&config));
        let bootstrap = json!({
            "xds_servers": [{
                "server_uri": control.address.to_string(),
                "channel_creds": [{ "type": "insecure" }],
            }],
            "node": { "id": "c-core" },
        });
        let mut command = Command::new(python);
        command
            .args([SCRIPT, &MOST_OPEN.to_string()])
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
            .env_remove("GRPC_XDS_BOOTSTRAP")
            // A proxy for the outside is no way to loopback.
            .env("no_grpc_proxy", "127.0.0.1,localhost");
        Self {
            backends,
            c_core: Process::start("C-core client", command),
            ours: Channels::new(control.address),
            control,
        }
    }

    /// Gives the clients these resources in place of all that they had.
    pub fn configure(&self, resources: impl IntoIterator<Item = Value>) {
        let config = Config::default().with_resources(resources);
        block_in_place(|| self.control.configure(&config));
    }

    /// Makes the calls with both clients, many at a time. The outcomes are in the order of the calls.
    pub async fn call(&mut self, calls: &[Call]) -> Both<Vec<Outcome>> {
        let (ours, c_core) = (calls, calls);
        self.call_each(Both { ours, c_core }).await
    }

    /// Makes other calls with each client, many at a time. The outcomes are in the order of the
    /// calls.
    pub async fn call_each(&mut self, calls: Both<&[Call]>) -> Both<Vec<Outcome>> {
        for call in calls.c_core {
            let call = call.by(C_CORE);
            self.c_core.send_line(&call.to_json().to_string());
        }
        let own: Vec<Call> = calls.ours.iter().map(|call| call.by(OURS)).collect();
        let ours = self.ours.call(&own).await;
        let c_core = block_in_place(|| {
            let outcome = |_| {
                let value: Value = self
                    .c_core
                    .wait_for("an outcome", |line| serde_json::from_str(line).ok());
                Outcome::from_json(&value)
            };
            calls.c_core.iter().map(outcome).collect()
        });
        Both { ours, c_core }
    }

    /// Makes the calls with both clients until all succeed, so that all connections are there.
    ///
    /// # Panics
    ///
    /// If that does not come to be within [`PATIENCE`].
    pub async fn until_all_succeed(&mut self, calls: &[Call]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let outcomes = self.call(calls).await;
            let mut all = outcomes.ours.iter().chain(&outcomes.c_core);
            let Some(failed) = all.find(|outcome| outcome.code != Code::Ok) else {
                return;
            };
            assert!(Instant::now() < deadline, "{failed:?}");
        }
    }

    /// Takes the attempts that the backends saw of the call whose script has this name, by client.
    pub fn take_attempts(&self, name: &str) -> Both<Vec<Attempt>> {
        Both {
            ours: self.backends.take_attempts(&named(OURS, name)),
            c_core: self.backends.take_attempts(&named(C_CORE, name)),
        }
    }
}

/// The clients in the backends' records.
const OURS: &str = "ours";
const C_CORE: &str = "c-core";

impl Call {
    /// The call as the client of this name makes it: the backends' records keep the clients apart.
    fn by(&self, client: &str) -> Self {
        let mut call = self.clone();
        if !call.script.name.is_empty() {
            call.script.name = named(client, &call.script.name);
        }
        call
    }
}

fn named(client: &str, call: &str) -> String {
    format!("{client} {call}")
}

/// Our channels, one for each target and authority.
struct Channels {
    bootstrap: Bootstrap,
    channels: HashMap<(String, Option<String>), Channel>,
}

impl Channels {
    fn new(control: SocketAddr) -> Self {
        let bootstrap = Bootstrap::builder(&control.to_string())
            .expect("an address")
            .node_id("ours")
            .build();
        Self {
            bootstrap,
            channels: HashMap::new(),
        }
    }

    async fn call(&mut self, calls: &[Call]) -> Vec<Outcome> {
        let free = Arc::new(Semaphore::new(MOST_OPEN));
        let mut open = Vec::with_capacity(calls.len());
        for call in calls {
            let channel = self.channel(call);
            let call = call.clone();
            let permit = Arc::clone(&free).acquire_owned().await;
            open.push(tokio::spawn(async move {
                let outcome = make(channel, &call).await;
                drop(permit);
                outcome
            }));
        }
        let mut outcomes = Vec::with_capacity(calls.len());
        for call in open {
            outcomes.push(call.await.expect("a call that ends"));
        }
        outcomes
    }

    fn channel(&mut self, call: &Call) -> Channel {
        let key = (call.target.clone(), call.authority.clone());
        let channel = self.channels.entry(key).or_insert_with(|| {
            let builder = Channel::builder(&call.target).bootstrap(self.bootstrap.clone());
            let builder = match &call.authority {
                Some(authority) => builder.authority(authority),
                None => builder,
            };
            builder.build().expect("a channel")
        });
        channel.clone()
    }
}

async fn make(channel: Channel, call: &Call) -> Outcome {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.expect("a channel is always ready");
    let path = call.path.parse().expect("a path");
    let result = grpc.unary(call.to_request(), path, Raw).await;
    Outcome::from_result(result)
}
