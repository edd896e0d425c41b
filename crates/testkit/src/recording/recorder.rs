//! A control plane that writes down what is said.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crowfly_xds::{DeltaSubscription, Snapshot};
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

use super::{Event, Message};
use crate::builders::Resources;
use crate::socket::Socket;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves resources over incremental ADS on a real socket, and records every message.
#[derive(Debug)]
pub struct Recorder {
    socket: Socket,
    service: Service,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

impl Recorder {
    /// Starts to serve `resources`.
    pub fn start(resources: &Resources) -> Self {
        let (snapshot, receiver) = watch::channel(resources.snapshot());
        let mut recorder = Self {
            socket: Socket::reserve(),
            service: Service {
                snapshot: receiver,
                tape: Arc::default(),
                streams: Arc::default(),
            },
            snapshot,
        };
        recorder.restart();
        recorder
    }

    /// Where it listens. The address stays the same through stops and restarts.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Serves `resources`, and nothing else, from now on.
    pub fn set(&self, resources: &Resources) {
        self.snapshot.send_replace(resources.snapshot());
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

    /// Waits until the recording is as expected; `what` names that in the message of a failure.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub async fn until(&self, what: &str, expected: impl Fn(&[Event]) -> bool) {
        let mut tape = self.service.tape.grown.subscribe();
        let waiting = tape.wait_for(|_| expected(&self.events()));
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "no {what} in {:#?}", self.events());
    }

    /// Everything so far.
    pub fn events(&self) -> Vec<Event> {
        self.service.tape.events()
    }
}

#[derive(Debug, Default)]
struct Tape {
    events: Mutex<Vec<Event>>,
    grown: watch::Sender<usize>,
}

impl Tape {
    fn events(&self) -> Vec<Event> {
        let events = self.events.lock();
        events.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, stream: u64, message: Message) {
        let events = self.events.lock();
        let mut events = events.unwrap_or_else(PoisonError::into_inner);
        events.push(Event { stream, message });
        drop(events);
        self.grown.send_modify(|length| *length += 1);
    }
}

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone, Debug)]
struct Service {
    snapshot: watch::Receiver<Arc<Snapshot>>,
    tape: Arc<Tape>,
    streams: Arc<AtomicU64>,
}

impl Service {
    async fn serve(
        mut self,
        stream: u64,
        mut requests: Streaming<DeltaDiscoveryRequest>,
        responses: mpsc::UnboundedSender<Result<DeltaDiscoveryResponse, Status>>,
    ) {
        let snapshot = Arc::clone(&self.snapshot.borrow_and_update());
        let mut subscription = DeltaSubscription::new(snapshot);
        loop {
            tokio::select! {
                request = requests.message() => {
                    let Ok(Some(mut request)) = request else { return };
                    request.node = None;
                    self.tape.record(stream, Message::Request(Box::new(request.clone())));
                    subscription.handle_request(request);
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
                self.tape
                    .record(stream, Message::Response(response.clone()));
                if responses.send(Ok(response)).is_err() {
                    return;
                }
            }
        }
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Outgoing<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Outgoing<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "only incremental streams are recorded",
        ))
    }

    async fn delta_aggregated_resources(
        &self,
        requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed) + 1;
        let (responses, outgoing) = mpsc::unbounded_channel();
        let serving = self.clone().serve(stream, requests.into_inner(), responses);
        tokio::spawn(serving);
        let outgoing = UnboundedReceiverStream::new(outgoing);
        Ok(Response::new(Box::pin(outgoing)))
    }
}
