//! The discovery services: ADS, and one service for each of LDS, RDS, CDS and EDS.
//!
//! A service of one type is a stream that takes requests of that type alone. So all ten methods run
//! the same [`Stream`]. The services are written by hand and not generated, because their responses
//! share the bytes of the snapshot ([`codec`]).

mod codec;
mod stream;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_xds::{
    DeltaSubscription, Response as Outgoing, ServerHalf, StreamSettings, Subscription,
};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::clients::{Clients, Protocol};
use crate::seat::Seat;
use crate::store::Store;
use codec::SharedCodec;
use stream::Stream;

/// The names of a discovery service.
pub(crate) trait Discovery: Send + Sync + 'static {
    /// The name of the service.
    const SERVICE: &'static str;
    /// The method for state of the world.
    const STREAM: &'static str;
    /// The method for delta.
    const DELTA: &'static str;
    /// The only type that is served; `None` for ADS.
    const TYPE: Option<&'static str>;
}

macro_rules! discovery {
    ($($(#[$doc:meta])* $name:ident: $service:literal, $stream:literal, $delta:literal, $only:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name;

            impl Discovery for $name {
                const SERVICE: &'static str = $service;
                const STREAM: &'static str = concat!("/", $service, "/", $stream);
                const DELTA: &'static str = concat!("/", $service, "/", $delta);
                const TYPE: Option<&'static str> = $only;
            }
        )*
    };
}

discovery! {
    /// All types on one stream.
    Aggregated: "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "StreamAggregatedResources", "DeltaAggregatedResources", None;
    /// Listeners.
    Lds: "envoy.service.listener.v3.ListenerDiscoveryService",
        "StreamListeners", "DeltaListeners", Some(Listener::TYPE_URL);
    /// Route configurations.
    Rds: "envoy.service.route.v3.RouteDiscoveryService",
        "StreamRoutes", "DeltaRoutes", Some(RouteConfig::TYPE_URL);
    /// Clusters.
    Cds: "envoy.service.cluster.v3.ClusterDiscoveryService",
        "StreamClusters", "DeltaClusters", Some(Cluster::TYPE_URL);
    /// Endpoints.
    Eds: "envoy.service.endpoint.v3.EndpointDiscoveryService",
        "StreamEndpoints", "DeltaEndpoints", Some(Endpoints::TYPE_URL);
}

/// The state that the streams of all discovery services share.
#[derive(Debug)]
pub(crate) struct Streams {
    store: Arc<Store>,
    clients: Clients,
    settings: Arc<StreamSettings>,
    stopping: watch::Receiver<bool>,
}

impl Streams {
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
        only: Option<&'static str>,
        request: Request<Streaming<H::Request>>,
    ) -> Response<Responses>
    where
        H: ServerHalf<Request: Send> + Send + 'static,
    {
        let client = self.clients.open::<H>(protocol, request.remote_addr());
        // The channel holds one response. So a response for a slow client is made late, from the
        // newest snapshot.
        let (responses, receiver) = mpsc::channel(1);
        let stream = Stream::<H>::new(client, Seat::new(&self.store), self.settings.clone(), only);
        let stopping = self.stopping.clone();
        tokio::spawn(stream.run(request.into_inner(), responses, stopping));
        Response::new(ReceiverStream::new(receiver))
    }
}

/// The responses that a client is sent on a stream.
type Responses = ReceiverStream<Result<Outgoing, Status>>;

/// One discovery service.
#[derive(Debug)]
pub(crate) struct DiscoveryServer<D> {
    streams: Arc<Streams>,
    service: PhantomData<D>,
}

impl<D> DiscoveryServer<D> {
    pub(crate) fn new(streams: &Arc<Streams>) -> Self {
        Self {
            streams: Arc::clone(streams),
            service: PhantomData,
        }
    }
}

impl<D> Clone for DiscoveryServer<D> {
    fn clone(&self) -> Self {
        Self::new(&self.streams)
    }
}

impl<D: Discovery> NamedService for DiscoveryServer<D> {
    const NAME: &'static str = D::SERVICE;
}

impl<D, B> Service<http::Request<B>> for DiscoveryServer<D>
where
    D: Discovery,
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path();
        let streams = Arc::clone(&self.streams);
        if path == D::STREAM {
            let protocol = Protocol::StateOfTheWorld;
            call(
                Method::<Subscription>::new(streams, protocol, D::TYPE),
                request,
            )
        } else if path == D::DELTA {
            let protocol = Protocol::Delta;
            call(
                Method::<DeltaSubscription>::new(streams, protocol, D::TYPE),
                request,
            )
        } else {
            Box::pin(std::future::ready(Ok(unimplemented())))
        }
    }
}

/// One method of a discovery service.
struct Method<H> {
    streams: Arc<Streams>,
    protocol: Protocol,
    only: Option<&'static str>,
    half: PhantomData<fn() -> H>,
}

impl<H> Method<H> {
    fn new(streams: Arc<Streams>, protocol: Protocol, only: Option<&'static str>) -> Self {
        Self {
            streams,
            protocol,
            only,
            half: PhantomData,
        }
    }
}

impl<H> StreamingService<H::Request> for Method<H>
where
    H: ServerHalf<Request: Send> + Send + 'static,
{
    type Response = Outgoing;
    type ResponseStream = Responses;
    type Future = std::future::Ready<Result<Response<Responses>, Status>>;

    fn call(&mut self, request: Request<Streaming<H::Request>>) -> Self::Future {
        let streams = &self.streams;
        std::future::ready(Ok(streams.serve::<H>(self.protocol, self.only, request)))
    }
}

fn call<H, B>(
    method: Method<H>,
    request: http::Request<B>,
) -> BoxFuture<http::Response<Body>, Infallible>
where
    H: ServerHalf<Request: Message + Default> + Send + 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(SharedCodec::<H::Request>::default());
        Ok(grpc.streaming(method, request).await)
    })
}

fn unimplemented() -> http::Response<Body> {
    Status::new(Code::Unimplemented, "no such method").into_http()
}
