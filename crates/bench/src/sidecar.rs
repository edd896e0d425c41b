//! An Envoy next to the client, as in a mesh with sidecars, because a proxyless channel replaces
//! that path.

use std::net::SocketAddr;

use crowfly_cli::bench::{BenchError, SERVICE, endpoint};
use crowfly_e2e::{envoy::Envoy, peers, resources};
use serde_json::Value;
use tokio::task::block_in_place;
use tonic::transport::Channel;

const LISTENER: &str = "sidecar";

/// The resources for the sidecar: a listener, and a route of all calls to the service.
pub(crate) fn resources() -> [Value; 2] {
    [
        resources::http2_listener(LISTENER),
        resources::routes(LISTENER, SERVICE),
    ]
}

/// An Envoy with one worker, in a process of its own.
pub(crate) struct Sidecar {
    address: SocketAddr,
    _envoy: Envoy,
}

impl Sidecar {
    /// Starts a sidecar, if an Envoy is installed or can be installed.
    pub(crate) fn start(control: SocketAddr) -> Option<Self> {
        block_in_place(|| {
            let envoy = Envoy::start(peers::envoy()?, control);
            let address = envoy.listener(LISTENER);
            Some(Self {
                address,
                _envoy: envoy,
            })
        })
    }

    /// tonic's own channel to the sidecar.
    pub(crate) fn channel(&self) -> Result<Channel, BenchError> {
        Ok(endpoint(self.address)?.connect_lazy())
    }
}
