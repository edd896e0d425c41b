//! The discovery services: ADS, and one service for each of LDS, RDS, CDS and EDS.
//!
//! A service of one type is a stream that takes requests of that type alone. So all ten methods run
//! the same [`Stream`]. The services are written by hand and not generated, because their responses
//! share the bytes of the snapshot, and are written in parts ([`mod@body`]).

mod body;
mod check;
#[cfg(test)]
mod idle;
mod requests;
mod slot;
mod stream;
mod wire;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_xds::{DeltaSubscription, ServerHalf, StreamSettings, Subscription};
use prost::Message;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::admission::Admission;
use crate::clients::{Clients, Protocol};
use crate::seat::Seat;
use crate::store::Store;
use body::Responses;
use requests::Requests;
use stream::Stream;
use wire::Fields;

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
    admission: Arc<Admission>,
    stopping: watch::Receiver<bool>,
}

impl Streams {
    pub(crate) fn new(
        store: Arc<Store>,
        clients: Clients,
        settings: StreamSettings,
        admission: Arc<Admission>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            store,
            clients,
            settings: Arc::new(settings),
            admission,
            stopping,
        }
    }

    /// Serves a stream of one method, and returns the head and the body of its responses.
    fn serve<H>(
        &self,
        protocol: Protocol,
        only: Option<&'static str>,
        request: http::Request<Body>,
    ) -> http::Response<Body>
    where
        H: ServerHalf<Request: Message + Default + Fields> + Send + 'static,
    {
        if let Err(status) = check_encoding(request.headers()) {
            return status.into_http();
        }
        let admitted = match self.admission.admit(request.extensions()) {
            Ok(admitted) => admitted,
            Err(status) => return status.into_http(),
        };
        let requests = Requests::new(request.into_body(), admitted.peer.share());
        let client = self.clients.open::<H>(protocol, admitted.peer.clone());
        let (responses, body) = Responses::channel();
        let seat = Seat::new(&self.store);
        let settings = self.settings.clone();
        let arrivals = Arc::clone(self.admission.arrivals());
        let stream = Stream::new(client, seat, settings, only, arrivals, admitted);
        tokio::spawn(stream.run(requests, responses, self.stopping.clone()));
        let mut response = http::Response::new(Body::new(body));
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, GRPC);
        response
    }
}

/// The content type of all responses.
const GRPC: http::HeaderValue = http::HeaderValue::from_static("application/grpc");

/// Refuses requests that are compressed, because a small one could become very large.
fn check_encoding(headers: &http::HeaderMap) -> Result<(), Status> {
    match headers
        .get("grpc-encoding")
        .map(http::HeaderValue::as_bytes)
    {
        None | Some(b"identity") => Ok(()),
        Some(encoding) => {
            let encoding = String::from_utf8_lossy(encoding);
            let message = format!("grpc-encoding: expected identity, got {encoding}");
            let mut status = Status::unimplemented(message);
            let accepted = tonic::metadata::MetadataValue::from_static("identity");
            status
                .metadata_mut()
                .insert("grpc-accept-encoding", accepted);
            Err(status)
        }
    }
}

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

impl<D: Discovery> Service<http::Request<Body>> for DiscoveryServer<D> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let streams = &self.streams;
        let response = if path == D::STREAM {
            let protocol = Protocol::StateOfTheWorld;
            streams.serve::<Subscription>(protocol, D::TYPE, request)
        } else if path == D::DELTA {
            streams.serve::<DeltaSubscription>(Protocol::Delta, D::TYPE, request)
        } else {
            Status::new(Code::Unimplemented, "no such method").into_http()
        };
        std::future::ready(Ok(response))
    }
}
