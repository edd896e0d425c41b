//! One ADS server over a real socket, in both protocols.
//!
//! Tests use a control plane in several ways:
//!
//! * [`AdsServer`] sends responses that the test writes by hand.
//! * [`ResourceServer`] serves resources.
//! * [`Tap`] observes the messages of another control plane.
//! * [`Recorder`](crate::recording::Recorder) serves resources and records the messages.
//!
//! Socket, streams and protocols are the same for all of them, so they are here. Each of them is a
//! [`Behaviour`], which handles one stream.

mod by_hand;
mod names;
mod resources;
pub(crate) mod snapshot;
mod socket;
mod tap;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use crowfly_model::Bootstrap;
use crowfly_model::bootstrap::{ServerConfig, ServerFeature};
use crowfly_xds::{Protocol, Request as AdsRequest};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingServiceServer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use self::socket::Socket;
use crate::lrs::LrsService;
use crate::{NODE_ID, Said};

pub use by_hand::AdsServer;
pub use resources::ResourceServer;
pub use tap::{Passed, Tap};

/// A limit for waits, longer than any wait of a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The way in which a server handles its streams.
#[tonic::async_trait]
pub(crate) trait Behaviour: Clone + Debug + Send + Sync + 'static {
    /// True if the server takes streams of this protocol; others are answered with UNIMPLEMENTED.
    fn speaks(&self, _: Protocol) -> bool {
        true
    }

    /// Serves one stream, until this function returns or the client ends the stream.
    async fn serve(self, stream: AdsStream);
}

/// A stream that a client has opened, in either protocol.
pub(crate) struct AdsStream {
    pub(crate) protocol: Protocol,
    pub(crate) metadata: MetadataMap,
    /// The requests of the client, which are read no faster than this stream is polled. The
    /// requests end when the ADS stream does.
    pub(crate) requests: Messages<AdsRequest>,
    pub(crate) responses: Responses,
}

/// Messages in one direction of a stream.
pub(crate) type Messages<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// The sender of the responses of a stream. The ADS stream ends when the sender is dropped, or with
/// the status that it sends.
pub(crate) type Responses = mpsc::UnboundedSender<Result<Said, Status>>;

/// A server on a port of its own, which can stop and start again.
#[derive(Debug)]
pub(crate) struct Server<B> {
    socket: Socket,
    pub(crate) behaviour: B,
    /// The LRS service on the same socket, if there is one.
    pub(crate) lrs: Option<LrsService>,
}

impl<B: Behaviour> Server<B> {
    /// A server that refuses connections until [`restart`](Self::restart).
    pub(crate) fn stopped(behaviour: B) -> Self {
        Self {
            socket: Socket::reserve(),
            behaviour,
            lrs: None,
        }
    }

    /// A server that accepts connections.
    pub(crate) fn start(behaviour: B) -> Self {
        let mut server = Self::stopped(behaviour);
        server.restart();
        server
    }

    /// The address that the server listens on. The address stays the same through stops and
    /// restarts.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// A bootstrap with this server, for clients that speak `protocol`.
    pub(crate) fn bootstrap(&self, protocol: Protocol) -> Bootstrap {
        let server = ServerConfig::builder(self.address().to_string());
        let server = match protocol {
            Protocol::Delta => server.feature(ServerFeature::Delta),
            Protocol::StateOfTheWorld => server,
        };
        let bootstrap = Bootstrap::builder(server).expect("a loopback address is a valid server");
        bootstrap.node_id(NODE_ID).build()
    }

    /// Cuts every connection at once and refuses new ones.
    pub(crate) async fn stop(&mut self) {
        self.socket.stop().await;
    }

    /// Accepts connections again.
    pub(crate) fn restart(&mut self) {
        let service = AggregatedDiscoveryServiceServer::new(Service(self.behaviour.clone()));
        let routes = Routes::new(service);
        self.socket.start(match self.lrs.clone() {
            None => routes,
            Some(lrs) => routes.add_service(LoadReportingServiceServer::new(lrs)),
        });
    }
}

struct Service<B>(B);

type Outgoing<T> = Messages<Result<T, Status>>;

impl<B: Behaviour> Service<B> {
    fn open<Q: Send + 'static, P: 'static>(
        &self,
        protocol: Protocol,
        requests: Request<Streaming<Q>>,
        wrap: fn(Q) -> AdsRequest,
        unwrap: fn(Said) -> P,
    ) -> Result<Response<Outgoing<P>>, Status> {
        if !self.0.speaks(protocol) {
            let message = format!("this server does not speak {protocol:?}");
            return Err(Status::unimplemented(message));
        }
        let (metadata, _, requests) = requests.into_parts();
        let (responses, outgoing) = mpsc::unbounded_channel();
        tokio::spawn(self.0.clone().serve(AdsStream {
            protocol,
            metadata,
            requests: Box::pin(requests.map_while(Result::ok).map(wrap)),
            responses,
        }));
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let outgoing = outgoing.map(move |said| said.map(unwrap));
        Ok(Response::new(Box::pin(outgoing)))
    }
}

#[tonic::async_trait]
impl<B: Behaviour> AggregatedDiscoveryService for Service<B> {
    type StreamAggregatedResourcesStream = Outgoing<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Outgoing<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let protocol = Protocol::StateOfTheWorld;
        self.open(protocol, requests, AdsRequest::Sotw, |said| match said {
            Said::Sotw(response) => response,
            Said::Delta(response) => panic!("the stream is not delta: {response:?}"),
        })
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let protocol = Protocol::Delta;
        self.open(protocol, requests, AdsRequest::Delta, |said| match said {
            Said::Delta(response) => response,
            Said::Sotw(response) => panic!("the stream is delta: {response:?}"),
        })
    }
}
