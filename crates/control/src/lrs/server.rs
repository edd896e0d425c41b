//! The gRPC service of LRS. It is not the generated one, because that decodes messages unseen.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::SERVICE_NAME;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use prost::Message;
use prost::bytes::Buf;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::{Lrs, wire};
use crate::admission::Admitted;
use crate::incoming::{Metered, Peer};
use crate::limits::Ticket;
use crate::writing::Timed;

/// The largest report. It has room for 20,000 clusters in several localities.
const MAX_REPORT_BYTES: usize = 16 << 20;

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct LrsServer(Arc<Lrs>);

impl LrsServer {
    pub(crate) fn new(lrs: Lrs) -> Self {
        Self(Arc::new(lrs))
    }
}

impl NamedService for LrsServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for LrsServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let lrs = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("").into_http());
            }
            let admitted = match lrs.admission.admit(request.extensions()) {
                Ok(admitted) => admitted,
                Err(status) => return Ok(status.into_http()),
            };
            let grpc = Grpc::new(ReportCodec);
            let mut grpc = grpc.max_decoding_message_size(MAX_REPORT_BYTES);
            let Admitted { peer, from, ticket } = admitted;
            let ticket = Arc::new(ticket);
            let share = peer.share();
            let request = request.map(|body| Metered::new(body, share));
            let method = Method {
                lrs,
                admitted: Some((peer.clone(), Arc::clone(&ticket), from)),
            };
            let response = grpc.streaming(method, request).await;
            Ok(response.map(|body| Body::new(Timed::new(body, peer, ticket))))
        })
    }
}

/// The only method of the service, for one stream.
struct Method {
    lrs: Arc<Lrs>,
    /// The client, the ticket of its stream and the time from which it is read; `None` once the stream is served.
    admitted: Option<(Peer, Arc<Ticket>, Instant)>,
}

impl StreamingService<LoadStatsRequest> for Method {
    type Response = LoadStatsResponse;
    type ResponseStream = ReceiverStream<Result<LoadStatsResponse, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<LoadStatsRequest>>) -> Self::Future {
        let no_admission = || Status::internal("the stream was not admitted");
        let admitted = self.admitted.take().ok_or_else(no_admission);
        let served = admitted.map(|(peer, ticket, from)| {
            let requests = request.into_inner();
            self.lrs.serve(peer, ticket, from, requests)
        });
        std::future::ready(served.map(Response::new))
    }
}

/// Decodes only reports that take little memory.
#[derive(Debug)]
struct ReportCodec;

impl Codec for ReportCodec {
    type Encode = LoadStatsResponse;
    type Decode = LoadStatsRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for ReportCodec {
    type Item = LoadStatsResponse;
    type Error = Status;

    fn encode(&mut self, response: Self::Item, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = response.encode(buffer);
        encoded.map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for ReportCodec {
    type Item = LoadStatsRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        // This is the code that tonic has for a message of too many bytes.
        let request = wire::decode(&bytes).map_err(Status::out_of_range)?;
        let request = request.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(request))
    }
}
