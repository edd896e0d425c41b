//! A server whose every response the test writes.
//!
//! The server knows nothing of the protocol, so a test can send anything, valid or not.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crowfly_model::{Bootstrap, ResourceType};
use crowfly_xds::{Protocol, Request as AdsRequest};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::protobuf::Any;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::{AdsStream, Behaviour, PATIENCE, Responses, Server};
use crate::{Asked, Said};

/// An ADS server that the test controls: it hands raw requests to the test and sends raw responses.
///
/// The server uses one stream at a time, the newest, and one protocol. The method of the other
/// protocol is not implemented.
#[derive(Debug)]
pub struct AdsServer {
    server: Server<ByHand>,
    events: mpsc::UnboundedReceiver<Event>,
}

#[derive(Debug)]
enum Event {
    Ended,
    Opened(MetadataMap),
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
        let server = Server::stopped(ByHand {
            protocol,
            listening: watch::Sender::new(true),
            events: sender,
            responses: Arc::default(),
        });
        Self { server, events }
    }

    /// The address that the server listens on. The address stays the same through stops and
    /// restarts.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A bootstrap with this server and its protocol.
    pub fn bootstrap(&self) -> Bootstrap {
        self.server.bootstrap(self.server.behaviour.protocol)
    }

    /// Waits for the next request of the client in state of the world, on any stream.
    pub async fn next_request(&mut self) -> DiscoveryRequest {
        match self.next_ads_request().await {
            AdsRequest::Sotw(request) => request,
            AdsRequest::Delta(request) => panic!("expected state of the world, got {request:?}"),
        }
    }

    /// Waits for the next request of the client, in either protocol and on any stream.
    pub async fn next_asked(&mut self) -> Asked {
        self.next_ads_request().await.into()
    }

    /// Waits for the client to open a stream, and drops earlier events. Returns the metadata of the
    /// stream.
    pub async fn next_stream(&mut self) -> MetadataMap {
        loop {
            if let Event::Opened(metadata) = self.next_event("a stream").await {
                return metadata;
            }
        }
    }

    /// Waits for a stream to end, and drops earlier events.
    pub async fn stream_end(&mut self) {
        while !matches!(self.next_event("the stream's end").await, Event::Ended) {}
    }

    /// Sends on the newest stream.
    pub fn send(&self, response: impl Into<Said>) {
        let responses = self.server.behaviour.responses.lock().unwrap();
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
        self.send(Said::new::<R>(
            self.server.behaviour.protocol,
            version,
            resources,
        ));
    }

    /// Ends the newest stream with `status`; `Status::ok("")` ends it without an error.
    pub fn close_stream(&self, status: Status) {
        let stream = self.server.behaviour.responses.lock().unwrap().take();
        let stream = stream.expect("a client has opened a stream");
        if status.code() != Code::Ok {
            stream.send(Err(status)).expect("the stream is open");
        }
    }

    /// Turns the reading of requests on or off, which takes effect after the next request. Requests
    /// that are not read fill the flow-control window of the client.
    pub fn listen(&self, listening: bool) {
        self.server.behaviour.listening.send_replace(listening);
    }

    /// Cuts every connection at once and refuses new ones.
    pub async fn stop(&mut self) {
        self.server.stop().await;
        self.server.behaviour.responses.lock().unwrap().take();
    }

    /// Accepts connections again.
    pub fn restart(&mut self) {
        self.server.restart();
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

#[derive(Clone, Debug)]
struct ByHand {
    protocol: Protocol,
    listening: watch::Sender<bool>,
    events: mpsc::UnboundedSender<Event>,
    /// The responses of the newest stream.
    responses: Arc<Mutex<Option<Responses>>>,
}

#[tonic::async_trait]
impl Behaviour for ByHand {
    fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol == protocol
    }

    /// Passes the requests of the stream to the test, and the responses of the test to the client.
    async fn serve(self, mut stream: AdsStream) {
        self.responses.lock().unwrap().replace(stream.responses);
        // The test may have ended.
        let _ = self.events.send(Event::Opened(stream.metadata));
        let mut listening = self.listening.subscribe();
        while listening.wait_for(|listening| *listening).await.is_ok()
            && let Some(request) = stream.requests.next().await
        {
            let _ = self.events.send(Event::Request(Box::new(request)));
        }
        let _ = self.events.send(Event::Ended);
    }
}
