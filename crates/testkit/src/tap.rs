//! A witness between a client and a control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::asked::Asks;
use crate::socket::Socket;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Passes on what a client and a control plane say to each other, and writes it down.
#[derive(Debug)]
pub struct Tap {
    socket: Socket,
    tape: Tape,
}

/// A message, as far as the rules of either variant of the protocol go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// From the client.
    Request {
        /// The type it is about.
        type_url: String,
        /// The response it answers; empty if none.
        nonce: String,
        /// Why it refuses that.
        error: Option<String>,
        /// All names that the client asks for from here on, not only those that are new.
        names: BTreeSet<String>,
    },
    /// To the client.
    Response {
        /// The type it is about.
        type_url: String,
        /// Its mark.
        nonce: String,
    },
}

impl Tap {
    /// Stands before the control plane at `upstream`.
    pub fn start(upstream: SocketAddr) -> Self {
        let tape = Tape::default();
        let service = Service {
            upstream: Endpoint::from_shared(format!("http://{upstream}")).expect("an address"),
            tape: tape.clone(),
        };
        let mut socket = Socket::reserve();
        socket.start(Routes::new(AggregatedDiscoveryServiceServer::new(service)));
        Self { socket, tape }
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Everything so far, in the order in which it passed.
    pub fn passed(&self) -> Vec<Passed> {
        self.tape.0.borrow().clone()
    }

    /// Waits until what has passed is as expected; `what` names that in the message of a failure.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub async fn until(&self, what: &str, expected: impl FnMut(&Vec<Passed>) -> bool) {
        let mut tape = self.tape.0.subscribe();
        let waited = timeout(PATIENCE, tape.wait_for(expected)).await.is_ok();
        assert!(waited, "no {what} in {:#?}", self.passed());
    }
}

#[derive(Clone, Debug, Default)]
struct Tape(Arc<watch::Sender<Vec<Passed>>>);

impl Tape {
    fn record(&self, passed: Passed) {
        self.0.send_modify(|all| all.push(passed));
    }

    fn response(&self, type_url: &str, nonce: &str) {
        self.record(Passed::Response {
            type_url: type_url.to_owned(),
            nonce: nonce.to_owned(),
        });
    }

    /// The requests of one stream, each written down as it passes.
    fn requests<R: Asks + Send + 'static>(
        &self,
        requests: Streaming<R>,
    ) -> impl Stream<Item = R> + Send + 'static {
        let tape = self.clone();
        let mut asked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        requests.map_while(Result::ok).map(move |request| {
            let names = asked.entry(request.type_url().to_owned()).or_default();
            request.change(names);
            tape.record(Passed::Request {
                type_url: request.type_url().to_owned(),
                nonce: request.nonce().to_owned(),
                error: request.error().map(ToOwned::to_owned),
                names: names.clone(),
            });
            request
        })
    }
}

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone, Debug)]
struct Service {
    upstream: Endpoint,
    tape: Tape,
}

impl Service {
    fn client(&self) -> AggregatedDiscoveryServiceClient<Channel> {
        AggregatedDiscoveryServiceClient::new(self.upstream.connect_lazy())
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Outgoing<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Outgoing<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let requests = self.tape.requests(requests.into_inner());
        let responses = self.client().stream_aggregated_resources(requests).await?;
        let tape = self.tape.clone();
        let responses = responses.into_inner().map(move |response| {
            let response = response?;
            tape.response(&response.type_url, &response.nonce);
            Ok(response)
        });
        Ok(Response::new(Box::pin(responses)))
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let requests = self.tape.requests(requests.into_inner());
        let responses = self.client().delta_aggregated_resources(requests).await?;
        let tape = self.tape.clone();
        let responses = responses.into_inner().map(move |response| {
            let response = response?;
            tape.response(&response.type_url, &response.nonce);
            Ok(response)
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
