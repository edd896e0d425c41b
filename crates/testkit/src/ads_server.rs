//! An ADS server over a real socket that says what the test tells it to.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly_model::Bootstrap;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::socket::Socket;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// An ADS server in the hands of the test: it takes raw requests and sends raw responses, and knows
/// nothing of the protocol.
///
/// It speaks on one stream at a time, the newest.
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
    Request(Box<DiscoveryRequest>),
}

impl AdsServer {
    /// A server that accepts connections.
    pub fn start() -> Self {
        let mut server = Self::stopped();
        server.restart();
        server
    }

    /// A server that refuses connections until [`restart`](Self::restart).
    pub fn stopped() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            socket: Socket::reserve(),
            service: Service {
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

    /// A bootstrap that leads here.
    pub fn bootstrap(&self) -> Bootstrap {
        self.socket.bootstrap()
    }

    /// Waits for the next request of the client, on whichever stream.
    pub async fn next_request(&mut self) -> DiscoveryRequest {
        loop {
            if let Event::Request(request) = self.next_event("a request").await {
                return *request;
            }
        }
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
    pub fn send(&self, response: DiscoveryResponse) {
        let responses = self.service.responses.lock().unwrap();
        let stream = responses.as_ref().expect("a client has opened a stream");
        stream.send(Ok(response)).expect("the stream is open");
    }

    /// Ends the newest stream with `status`; `Status::ok("")` ends it without an error.
    pub fn close_stream(&self, status: Status) {
        let stream = self.service.responses.lock().unwrap().take();
        let stream = stream.expect("a client has opened a stream");
        if status.code() != Code::Ok {
            stream.send(Err(status)).expect("the stream is open");
        }
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
    events: mpsc::UnboundedSender<Event>,
    responses: Arc<Mutex<Option<Responses>>>,
}

type Responses = mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Outgoing<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Outgoing<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (responses, outgoing) = mpsc::unbounded_channel();
        self.responses.lock().unwrap().replace(responses);
        let events = self.events.clone();
        // The test may be over and gone.
        let _ = events.send(Event::Opened);
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let _ = events.send(Event::Request(Box::new(request)));
            }
            let _ = events.send(Event::Ended);
        });
        let outgoing = UnboundedReceiverStream::new(outgoing);
        Ok(Response::new(Box::pin(outgoing)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "this server speaks state of the world",
        ))
    }
}
