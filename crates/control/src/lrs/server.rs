//! The gRPC service of LRS. It is not the generated one, because that decodes messages unseen.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::{
    LoadReportingService, SERVICE_NAME,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use prost::Message;
use prost::bytes::Buf;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::{Lrs, wire};

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

impl<B> Service<http::Request<B>> for LrsServer
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let lrs = self.clone();
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("").into_http());
            }
            let grpc = Grpc::new(ReportCodec);
            let mut grpc = grpc.max_decoding_message_size(MAX_REPORT_BYTES);
            Ok(grpc.streaming(lrs, request).await)
        })
    }
}

impl StreamingService<LoadStatsRequest> for LrsServer {
    type Response = LoadStatsResponse;
    type ResponseStream = <Lrs as LoadReportingService>::StreamLoadStatsStream;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<LoadStatsRequest>>) -> Self::Future {
        let lrs = self.0.clone();
        Box::pin(async move { lrs.stream_load_stats(request).await })
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
