//! An ADS server over a real socket that serves a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::Bootstrap;
use crowfly_xds::{DeltaSubscription, RequestOutcome, ServerHalf, Snapshot, Subscription};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use crate::asked::Asks;
use crate::builders::Resources;
use crate::socket::Socket;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A control plane for tests of what a client does with resources, not of how it gets them: it
/// speaks both variants of the protocol.
#[derive(Debug)]
pub struct ResourceServer {
    socket: Socket,
    service: Service,
    snapshot: watch::Sender<Arc<Snapshot>>,
    outcomes: mpsc::UnboundedReceiver<RequestOutcome>,
}

impl ResourceServer {
    /// Starts to serve `resources`.
    pub fn start(resources: &Resources) -> Self {
        let mut server = Self::stopped(resources);
        server.restart();
        server
    }

    /// A server that refuses connections until [`restart`](Self::restart).
    pub fn stopped(resources: &Resources) -> Self {
        let (snapshot, receiver) = watch::channel(resources.snapshot());
        let (sender, outcomes) = mpsc::unbounded_channel();
        Self {
            socket: Socket::reserve(),
            service: Service {
                snapshot: receiver,
                outcomes: sender,
                asked: watch::Sender::default(),
                streams: watch::Sender::new(0),
            },
            snapshot,
            outcomes,
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

    /// Serves `resources`, and nothing else, from now on.
    pub fn set(&self, resources: &Resources) {
        self.snapshot.send_replace(resources.snapshot());
    }

    /// Waits until the client accepts a response of a type, and tells its version. What came
    /// before that is passed over.
    pub async fn next_ack(&mut self, of_type: &str) -> String {
        loop {
            if let RequestOutcome::Ack { type_url, version } = self.next_outcome().await
                && type_url == of_type
            {
                return version;
            }
        }
    }

    /// Waits until the client refuses a response, and tells its reason. What came before that is
    /// passed over.
    pub async fn next_nack(&mut self) -> String {
        loop {
            if let RequestOutcome::Nack { message, .. } = self.next_outcome().await {
                return message;
            }
        }
    }

    /// The names of a type that the client asks for now.
    pub fn asked_for(&self, type_url: &str) -> BTreeSet<String> {
        let asked = self.service.asked.borrow();
        asked.get(type_url).cloned().unwrap_or_default()
    }

    /// Waits until the client asks for these names of a type, and no others.
    pub async fn until_asked_for(&self, type_url: &str, names: &[&str]) {
        let wanted: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let mut asked = self.service.asked.subscribe();
        let waiting = asked.wait_for(|asked| asked.get(type_url) == Some(&wanted));
        let waited = timeout(PATIENCE, waiting).await.is_ok();
        let asked = self.asked_for(type_url);
        assert!(waited, "{type_url}: {asked:?} instead of {wanted:?}");
    }

    /// Waits until this many streams are open.
    pub async fn has_streams(&self, count: usize) {
        let mut streams = self.service.streams.subscribe();
        let reached = streams.wait_for(|streams| *streams == count);
        let reached = timeout(PATIENCE, reached).await;
        reached
            .expect("streams open or end")
            .expect("the service lives as long as this");
    }

    /// Cuts every connection at once and refuses new ones.
    pub async fn stop(&mut self) {
        self.socket.stop().await;
    }

    /// Accepts connections again.
    pub fn restart(&mut self) {
        let service = AggregatedDiscoveryServiceServer::new(self.service.clone());
        self.socket.start(Routes::new(service));
    }

    async fn next_outcome(&mut self) -> RequestOutcome {
        let outcome = timeout(PATIENCE, self.outcomes.recv()).await;
        outcome
            .expect("the client says something")
            .expect("the service lives as long as this")
    }
}

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone, Debug)]
struct Service {
    snapshot: watch::Receiver<Arc<Snapshot>>,
    outcomes: mpsc::UnboundedSender<RequestOutcome>,
    /// By type, on the newest stream.
    asked: watch::Sender<BTreeMap<String, BTreeSet<String>>>,
    /// How many are open.
    streams: watch::Sender<usize>,
}

impl Service {
    fn open<H>(&self, requests: Request<Streaming<H::Request>>) -> Response<Outgoing<H::Response>>
    where
        H: ServerHalf<Request: Asks + Send, Response: Send + 'static> + Send + 'static,
    {
        let (responses, outgoing) = mpsc::unbounded_channel();
        let serving = self.clone().serve::<H>(requests.into_inner(), responses);
        tokio::spawn(serving);
        Response::new(Box::pin(UnboundedReceiverStream::new(outgoing)))
    }

    async fn serve<H: ServerHalf<Request: Asks>>(
        mut self,
        mut requests: Streaming<H::Request>,
        responses: mpsc::UnboundedSender<Result<H::Response, Status>>,
    ) {
        let _open = Open::new(self.streams.clone());
        let snapshot = Arc::clone(&self.snapshot.borrow_and_update());
        let mut subscription = H::new(snapshot);
        self.asked.send_modify(BTreeMap::clear);
        loop {
            tokio::select! {
                request = requests.message() => {
                    let Ok(Some(request)) = request else { return };
                    self.asked.send_modify(|asked| {
                        request.change(asked.entry(request.type_url().to_owned()).or_default());
                    });
                    let outcome = subscription.handle_request(request);
                    // The test may not care, and be gone.
                    let _ = self.outcomes.send(outcome);
                }
                changed = self.snapshot.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let snapshot = Arc::clone(&self.snapshot.borrow_and_update());
                    subscription.handle_snapshot(snapshot);
                }
            }
            while let Some(response) = subscription.poll_response() {
                if responses.send(Ok(response)).is_err() {
                    return;
                }
            }
        }
    }
}

/// A stream that is open, for as long as this lives.
struct Open(watch::Sender<usize>);

impl Open {
    fn new(streams: watch::Sender<usize>) -> Self {
        streams.send_modify(|count| *count += 1);
        Self(streams)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
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
        Ok(self.open::<Subscription>(requests))
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Ok(self.open::<DeltaSubscription>(requests))
    }
}
