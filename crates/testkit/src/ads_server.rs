//! An ADS server over a real socket that says what the test tells it to.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly_model::bootstrap::{ServerConfig, ServerFeature};
use crowfly_model::{Bootstrap, ResourceType};
use crowfly_xds::{Protocol, Request as AdsRequest};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::socket::Socket;
use crate::{Asked, NODE_ID, Said};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// An ADS server in the hands of the test: it takes raw requests and sends raw responses, and knows
/// nothing of the protocol.
///
/// It speaks on one stream at a time, the newest, and in one protocol: the method of the other is
/// not implemented.
#[derive(Debug)]
pub struct AdsServer {
    socket: Socket,
    service: Service,
    events: mpsc::UnboundedReceiver<Event>,
}

#[derive(Debug)]
enum Event {
    Ended,
    Opened,
    Request(Box<AdsRequest>),
}

impl AdsServer {
    /// A server that accepts connections and speaks state of the world.
    pub fn start() -> Self {
        Self::speaking(Protocol::StateOfTheWorld)
    }

    /// A server that accepts connections.
    pub fn speaking(protocol: Protocol) -> Self {
        let mut server = Self::silent(protocol);
        server.restart();
        server
    }

    /// A server of state of the world that refuses connections until [`restart`](Self::restart).
    pub fn stopped() -> Self {
        Self::silent(Protocol::StateOfTheWorld)
    }

    fn silent(protocol: Protocol) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            socket: Socket::reserve(),
            service: Service {
                protocol,
                listening: watch::Sender::new(true),
                events: sender,
                responses: Arc::default(),
            },
            events,
        }
    }

    /// Where it listens. The address stays the same through stops and restarts.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// A bootstrap that leads here, and says which protocol is spoken.
    pub fn bootstrap(&self) -> Bootstrap {
        let server = ServerConfig::builder(self.address().to_string());
        let server = match self.service.protocol {
            Protocol::Delta => server.feature(ServerFeature::Delta),
            Protocol::StateOfTheWorld => server,
        };
        let bootstrap = Bootstrap::builder(server).expect("a loopback address is a valid server");
        bootstrap.node_id(NODE_ID).build()
    }

    /// Waits for the next request of the client in state of the world, on whichever stream.
    pub async fn next_request(&mut self) -> DiscoveryRequest {
        match self.next_ads_request().await {
            AdsRequest::Sotw(request) => request,
            AdsRequest::Delta(request) => panic!("expected state of the world, got {request:?}"),
        }
    }

    /// Waits for what the client says next, in either protocol and on whichever stream.
    pub async fn next_asked(&mut self) -> Asked {
        self.next_ads_request().await.into()
    }

    /// Waits for the client to open a stream, and passes over what came before that.
    pub async fn next_stream(&mut self) {
        while !matches!(self.next_event("a stream").await, Event::Opened) {}
    }

    /// Waits for a stream to end, and passes over what came before that.
    pub async fn stream_end(&mut self) {
        while !matches!(self.next_event("the stream's end").await, Event::Ended) {}
    }

    /// Sends on the newest stream.
    pub fn send(&self, response: impl Into<Said>) {
        let responses = self.service.responses.lock().unwrap();
        let stream = responses.as_ref().expect("a client has opened a stream");
        stream
            .send(Ok(response.into()))
            .expect("the stream is open");
    }

    /// Sends resources of type `R` with their names, all of one version, which is the nonce as well.
    pub fn tell<'a, R: ResourceType>(
        &self,
        version: &str,
        resources: impl IntoIterator<Item = (&'a str, Any)>,
    ) {
        self.send(Said::new::<R>(self.service.protocol, version, resources));
    }

    /// Ends the newest stream with `status`; `Status::ok("")` ends it without an error.
    pub fn close_stream(&self, status: Status) {
        let stream = self.service.responses.lock().unwrap().take();
        let stream = stream.expect("a client has opened a stream");
        if status.code() != Code::Ok {
            stream.send(Err(status)).expect("the stream is open");
        }
    }

    /// Whether requests are read, after the next one. If not, they fill the client's window.
    pub fn listen(&self, listening: bool) {
        self.service.listening.send_replace(listening);
    }

    /// Cuts every connection at once and refuses new ones.
    pub async fn stop(&mut self) {
        self.socket.stop().await;
        self.service.responses.lock().unwrap().take();
    }

    /// Accepts connections again.
    pub fn restart(&mut self) {
        let service = AggregatedDiscoveryServiceServer::new(self.service.clone());
        self.socket.start(Routes::new(service));
    }

    async fn next_ads_request(&mut self) -> AdsRequest {
        loop {
            if let Event::Request(request) = self.next_event("a request").await {
                return *request;
            }
        }
    }

    async fn next_event(&mut self, what: &str) -> Event {
        match timeout(PATIENCE, self.events.recv()).await {
            Ok(event) => event.expect("the service lives as long as this"),
            Err(_) => panic!("the client owes {what} since {PATIENCE:?}"),
        }
    }
}

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone, Debug)]
struct Service {
    protocol: Protocol,
    listening: watch::Sender<bool>,
    events: mpsc::UnboundedSender<Event>,
    responses: Arc<Mutex<Option<Responses>>>,
}

type Responses = mpsc::UnboundedSender<Result<Said, Status>>;

impl Service {
    /// Takes a stream: its requests go to the test, and what the test says comes out.
    fn open<Q: Send + 'static, P: 'static>(
        &self,
        requests: Request<Streaming<Q>>,
        wrap: fn(Q) -> AdsRequest,
        unwrap: fn(Said) -> P,
    ) -> Response<Outgoing<P>> {
        let (responses, outgoing) = mpsc::unbounded_channel();
        self.responses.lock().unwrap().replace(responses);
        let events = self.events.clone();
        // The test may be over and gone.
        let _ = events.send(Event::Opened);
        let mut requests = requests.into_inner();
        let mut listening = self.listening.subscribe();
        tokio::spawn(async move {
            while listening.wait_for(|listening| *listening).await.is_ok()
                && let Ok(Some(request)) = requests.message().await
            {
                let _ = events.send(Event::Request(Box::new(wrap(request))));
            }
            let _ = events.send(Event::Ended);
        });
        let outgoing = UnboundedReceiverStream::new(outgoing);
        Response::new(Box::pin(outgoing.map(move |said| said.map(unwrap))))
    }

    fn check(&self, asked: Protocol) -> Result<(), Status> {
        if self.protocol == asked {
            return Ok(());
        }
        let protocol = self.protocol;
        Err(Status::unimplemented(format!(
            "this server speaks {protocol:?}"
        )))
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
        self.check(Protocol::StateOfTheWorld)?;
        Ok(self.open(requests, AdsRequest::Sotw, |said| match said {
            Said::Sotw(response) => response,
            Said::Delta(response) => panic!("the stream is not delta: {response:?}"),
        }))
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        self.check(Protocol::Delta)?;
        Ok(self.open(requests, AdsRequest::Delta, |said| match said {
            Said::Delta(response) => response,
            Said::Sotw(response) => panic!("the stream is delta: {response:?}"),
        }))
    }
}
