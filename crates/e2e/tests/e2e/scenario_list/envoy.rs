//! An Envoy as a client.
//!
//! Its listener leads to the services by their names, because a proxy has no target as gRPC clients
//! do.

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::{peers, rpc};
use serde_json::Value;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::ours::{outcome, runtime};
use super::peer::{Outcome, Peer};
use super::stage::INGRESS;

/// An Envoy, and a plain channel to it.
pub(super) struct EnvoyPeer {
    envoy: Envoy,
    current: Option<(String, Channel)>,
    runtime: Runtime,
}

impl EnvoyPeer {
    pub(super) fn start(bootstrap: &Value) -> Option<Self> {
        let program = peers::envoy()?;
        Some(Self {
            envoy: Envoy::start_from(program, &bootstrap.to_string()),
            current: None,
            runtime: runtime(),
        })
    }

    /// A channel whose calls have the service as their host.
    fn channel(&mut self, service: &str) -> Channel {
        if let Some((_, channel)) = self.current.as_ref().filter(|(name, _)| name == service) {
            return channel.clone();
        }
        let ingress = self.envoy.listener(INGRESS);
        let _context = self.runtime.enter();
        let channel = Endpoint::from_shared(format!("http://{ingress}"))
            .unwrap()
            .origin(format!("http://{service}").parse().unwrap())
            .connect_lazy();
        self.current = Some((service.to_owned(), channel.clone()));
        channel
    }
}

impl Peer for EnvoyPeer {
    fn call(&mut self, service: &str, count: usize) -> Vec<Outcome> {
        let channel = self.channel(service);
        let call = |_| outcome(self.runtime.block_on(rpc::unary_call(&channel)));
        (0..count).map(call).collect()
    }

    /// An Envoy that is not served has no listener to call, so its listeners are counted.
    fn assert_unserved(&mut self, _service: &str) {
        let active = self.envoy.stat("listener_manager.total_listeners_active");
        assert_eq!(active, Some(0));
    }
}
