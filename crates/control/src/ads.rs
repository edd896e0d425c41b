//! ADS over tonic: one task for each stream, which moves messages between the socket and a
//! [`Subscription`] or a [`DeltaSubscription`]. Those two hold the rules of the protocol, so this
//! module has only I/O.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::{DeltaSubscription, RequestOutcome, ServerHalf, StreamSettings, Subscription};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info, warn};

use crate::clients::{ClientHandle, Clients, Protocol};
use crate::ending::End;
use crate::store::{Store, Views};

/// The largest message that gRPC clients take if nothing else is set. A client that is sent more
/// ends the stream, and would be sent the same again.
const USUAL_LIMIT: usize = 4 << 20;

/// The gRPC service.
pub(crate) type AdsServer = AggregatedDiscoveryServiceServer<Ads>;

/// Serves the store's snapshot over ADS.
#[derive(Debug)]
pub(crate) struct Ads {
    store: Arc<Store>,
    clients: Clients,
    settings: Arc<StreamSettings>,
    stopping: watch::Receiver<bool>,
}

impl Ads {
    pub(crate) fn new(
        store: Arc<Store>,
        clients: Clients,
        settings: StreamSettings,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            store,
            clients,
            settings: Arc::new(settings),
            stopping,
        }
    }

    fn serve<H>(
        &self,
        protocol: Protocol,
        request: Request<Streaming<H::Request>>,
    ) -> Response<Responses<H>>
    where
        H: ServerHalf<Request: Send, Response: Send> + Send + 'static,
    {
        let client = self.clients.open(protocol, request.remote_addr());
        // The channel holds one response. So a response for a slow client is made late, from the
        // newest snapshot.
        let (responses, receiver) = mpsc::channel(1);
        let stream = Stream::<H>::new(client, self.store.views(), self.settings.clone());
        let stopping = self.stopping.clone();
        tokio::spawn(stream.run(request.into_inner(), responses, stopping));
        Response::new(ReceiverStream::new(receiver))
    }
}

/// The responses that a client is sent on a stream.
type Responses<H> = ReceiverStream<Result<<H as ServerHalf>::Response, Status>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Responses<Subscription>;
    type DeltaAggregatedResourcesStream = Responses<DeltaSubscription>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Ok(self.serve::<Subscription>(Protocol::StateOfTheWorld, request))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Ok(self.serve::<DeltaSubscription>(Protocol::Delta, request))
    }
}

/// Drives one stream.
struct Stream<H> {
    client: ClientHandle,
    views: watch::Receiver<Views>,
    subscription: H,
    /// True if the subscription may have something to send.
    due: bool,
    /// The types of which a response was too large for most clients.
    too_large: BTreeSet<String>,
}

impl<H: ServerHalf> Stream<H> {
    fn new(
        client: ClientHandle,
        mut views: watch::Receiver<Views>,
        settings: Arc<StreamSettings>,
    ) -> Self {
        let snapshot = views.borrow_and_update().of(None);
        Self {
            client,
            views,
            subscription: H::new(snapshot, settings),
            due: false,
            too_large: BTreeSet::new(),
        }
    }

    /// Serves the stream until one side ends it. The branches are tried in order: a request or a
    /// newer snapshot comes before a response, because either may make the response unnecessary.
    async fn run(
        mut self,
        mut requests: Streaming<H::Request>,
        responses: mpsc::Sender<Result<H::Response, Status>>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let end = loop {
            let timeout = self.subscription.next_timeout();
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => {
                    break End::stopping();
                }
                request = requests.message() => match request {
                    Ok(Some(request)) => if let Err(status) = self.handle(request) {
                        break End::Ours(status);
                    },
                    Ok(None) => break End::Theirs("it ended the stream".to_owned()),
                    Err(status) => break End::broken(&status),
                },
                changed = self.views.changed() => match changed {
                    Ok(()) => self.refresh(),
                    Err(_) => break End::gone(),
                },
                () = until(timeout) => {
                    self.subscription.handle_time(Instant::now());
                    self.due = true;
                }
                permit = responses.reserve(), if self.due => match permit {
                    Ok(permit) => if let Some(response) = self.next_response() {
                        permit.send(Ok(response));
                    },
                    Err(_) => break End::Theirs("it closed the stream".to_owned()),
                },
            }
        };
        let (node, reason) = (self.node_id(), end.reason());
        info!(stream = self.client.id(), node, reason, "client gone");
        end.tell(&responses).await;
    }

    /// The node id of the client; empty before its first request.
    fn node_id(&self) -> &str {
        self.subscription.node().map_or("", |node| &node.id)
    }

    fn handle(&mut self, request: H::Request) -> Result<(), Status> {
        if H::requested_type(&request).is_empty() {
            return Err(Status::invalid_argument("type_url: must be set"));
        }
        let known = self.subscription.node().is_some();
        let outcome = self.subscription.handle_request(request);
        if !known && let Some(node) = self.subscription.node() {
            info!(
                stream = self.client.id(),
                node = node.id,
                agent = node.user_agent_name,
                "client"
            );
            self.client.introduced(node);
            self.refresh();
        }
        self.log(&outcome);
        self.client.received(&outcome);
        self.due = true;
        Ok(())
    }

    /// Takes the newest snapshot, in the view for this kind of client.
    fn refresh(&mut self) {
        let snapshot = self.views.borrow_and_update().of(self.subscription.node());
        self.subscription.handle_snapshot(snapshot);
        self.due = true;
    }

    fn next_response(&mut self) -> Option<H::Response> {
        self.subscription.handle_time(Instant::now());
        let response = self.subscription.poll_response();
        self.due = response.is_some();
        if let Some(response) = &response {
            let (type_url, version) = H::type_and_version(response);
            debug!(stream = self.client.id(), type_url, version, "sent");
            self.client.sent(type_url, version);
            let size = H::size(response);
            if size > USUAL_LIMIT && self.too_large.insert(type_url.to_owned()) {
                let (stream, node) = (self.client.id(), self.node_id());
                warn!(
                    stream,
                    node,
                    type_url,
                    size,
                    "more than the {USUAL_LIMIT} bytes that gRPC clients take if not told otherwise"
                );
            }
        }
        response
    }

    fn log(&self, outcome: &RequestOutcome) {
        let stream = self.client.id();
        match outcome {
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                let node = self.node_id();
                warn!(stream, node, type_url, version, "refused: {message}");
            }
            RequestOutcome::Ack { type_url, version } => {
                debug!(stream, type_url, version, "accepted");
            }
            RequestOutcome::Stale { type_url } => debug!(stream, type_url, "stale"),
            RequestOutcome::Subscribed { type_url } => debug!(stream, type_url, "subscribed"),
        }
    }
}

/// Waits for a time; without one, for ever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
