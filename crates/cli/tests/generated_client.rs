//! tonic's generated code can use crowfly's channel wherever it can use tonic's. The client of the
//! test service compiles with each, and calls a server of tonic's through it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::{pin::Pin, time::Duration};

use crowfly::Channel;
use crowfly_cli::testing::{
    Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
    test_service_client::TestServiceClient,
    test_service_server::{TestService, TestServiceServer},
};
use crowfly_testkit::{ResourceServer, builders::Resources};
use futures_util::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Response, Status, Streaming,
    body::Body,
    client::Grpc,
    codec::CompressionEncoding::Gzip,
    metadata::MetadataMap,
    service::{Interceptor, InterceptorLayer},
    transport::Server,
};
use tower::{
    Service, ServiceBuilder, ServiceExt,
    util::{BoxCloneService, BoxCloneSyncService},
};

/// A server, and a channel to it.
struct Rig {
    channel: Channel,
    _control: ResourceServer,
}

impl Rig {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = TestServiceServer::new(Echo)
            .accept_compressed(Gzip)
            .send_compressed(Gzip);
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let control = ResourceServer::start(&Resources::service("echo", [address]));
        let channel = Channel::builder("xds:///echo").bootstrap(control.bootstrap());
        Self {
            channel: channel.build().unwrap(),
            _control: control,
        }
    }
}

/// Answers with what it was sent; what it saw of the head is in the fields for names.
struct Echo;

type Responses = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

#[tonic::async_trait]
impl TestService for Echo {
    type FullDuplexCallStream = Responses;
    type StreamingOutputCallStream = Responses;

    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        Ok(Response::new(SimpleResponse {
            username: text(request.metadata(), "x-mark"),
            oauth_scope: text(request.metadata(), "grpc-encoding"),
            payload: request.into_inner().payload,
            ..SimpleResponse::default()
        }))
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Responses>, Status> {
        let StreamingOutputCallRequest {
            payload,
            response_parameters,
            ..
        } = request.into_inner();
        let responses = response_parameters.into_iter().map(move |_| {
            Ok(StreamingOutputCallResponse {
                payload: payload.clone(),
            })
        });
        Ok(Response::new(stream::iter(responses).boxed()))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let responses = request.into_inner().map(|request| {
            let payload = request?.payload;
            Ok(StreamingOutputCallResponse { payload })
        });
        Ok(Response::new(responses.boxed()))
    }
}

fn text(metadata: &MetadataMap, key: &str) -> String {
    let value = metadata.get(key).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn payload(size: usize) -> Option<Payload> {
    let body = vec![7; size].into();
    Some(Payload { r#type: 0, body })
}

/// Makes one call of each kind that the service has; what the server saw of the unary one.
async fn calls<T>(mut client: TestServiceClient<T>) -> SimpleResponse
where
    T: tonic::client::GrpcService<Body>,
    T::Error: Into<tonic::codegen::StdError>,
    T::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    client.empty_call(Empty {}).await.unwrap();
    let request = StreamingOutputCallRequest {
        payload: payload(1000),
        response_parameters: vec![ResponseParameters::default(); 3],
        ..StreamingOutputCallRequest::default()
    };
    let responses = client.streaming_output_call(request.clone()).await.unwrap();
    assert_eq!(responses.into_inner().count().await, 3);
    let requests = stream::iter(vec![request; 5]);
    let responses = client.full_duplex_call(requests).await.unwrap();
    let echoed: Vec<_> = responses.into_inner().collect().await;
    assert_eq!(echoed.len(), 5);
    for response in echoed {
        assert_eq!(response.unwrap().payload, payload(1000));
    }
    let request = SimpleRequest {
        payload: payload(1000),
        ..SimpleRequest::default()
    };
    let response = client.unary_call(request).await.unwrap().into_inner();
    assert_eq!(response.payload, payload(1000));
    response
}

/// Adds metadata to each call.
#[derive(Clone)]
struct Mark;

impl Interceptor for Mark {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request
            .metadata_mut()
            .insert("x-mark", "seen".parse().unwrap());
        Ok(request)
    }
}

/// Refuses each call.
fn refuse(_: Request<()>) -> Result<Request<()>, Status> {
    Err(Status::unauthenticated("not you"))
}

#[tokio::test]
async fn interceptors_see_and_refuse_calls() {
    let rig = Rig::start().await;
    let marked = TestServiceClient::with_interceptor(rig.channel.clone(), Mark);
    assert_eq!(calls(marked).await.username, "seen");

    let mut refused = TestServiceClient::with_interceptor(rig.channel, refuse);
    let status = refused.empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let request = StreamingOutputCallRequest::default();
    let status = refused.streaming_output_call(request).await.unwrap_err();
    assert_eq!(status.message(), "not you");
}

#[tokio::test]
async fn an_origin_may_be_given() {
    let rig = Rig::start().await;
    let origin = "https://elsewhere.example".parse().unwrap();
    calls(TestServiceClient::with_origin(rig.channel.clone(), origin)).await;

    // Its path is a prefix of the method's, which this server does not have.
    let origin = "https://elsewhere.example/prefix".parse().unwrap();
    let mut client = TestServiceClient::with_origin(rig.channel.clone(), origin);
    let status = client.empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);

    let origin = "https://elsewhere.example".parse().unwrap();
    let mut grpc = Grpc::with_origin(rig.channel, origin);
    let path = "/grpc.testing.TestService/EmptyCall".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<Empty, Empty>::default();
    let requests = Request::new(stream::iter([Empty {}]));
    grpc.client_streaming(requests, path, codec).await.unwrap();
}

#[tokio::test]
async fn messages_may_be_compressed() {
    let rig = Rig::start().await;
    let client = TestServiceClient::new(rig.channel)
        .send_compressed(Gzip)
        .accept_compressed(Gzip);
    assert_eq!(calls(client).await.oauth_scope, "gzip");
}

#[tokio::test]
async fn messages_may_be_limited() {
    let rig = Rig::start().await;
    let large = || SimpleRequest {
        payload: payload(1000),
        ..SimpleRequest::default()
    };
    let mut client = TestServiceClient::new(rig.channel.clone()).max_decoding_message_size(100);
    let status = client.unary_call(large()).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let mut client = TestServiceClient::new(rig.channel).max_encoding_message_size(100);
    let status = client.unary_call(large()).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
}

#[tokio::test]
async fn layers_go_above_and_below() {
    let rig = Rig::start().await;
    let is_marked = |request: http::Request<Body>| {
        let is_marked = request.headers().contains_key("x-mark");
        assert!(is_marked, "what is above comes first");
        request
    };
    let below = ServiceBuilder::new()
        .timeout(Duration::from_secs(20))
        .concurrency_limit(2)
        .map_request(is_marked)
        .service(rig.channel.clone());
    let client = TestServiceClient::with_interceptor(below, Mark);
    assert_eq!(calls(client).await.username, "seen");

    let above = ServiceBuilder::new()
        .layer(InterceptorLayer::new(Mark))
        .map_request(is_marked)
        .service(rig.channel);
    assert_eq!(calls(TestServiceClient::new(above)).await.username, "seen");
}

#[tokio::test]
async fn a_channel_may_be_boxed() {
    let rig = Rig::start().await;
    calls(TestServiceClient::new(BoxCloneService::new(
        rig.channel.clone(),
    )))
    .await;
    calls(TestServiceClient::new(BoxCloneSyncService::new(
        rig.channel.clone(),
    )))
    .await;
    // As one type with tonic's own channel, the way programs choose between them.
    let either: BoxCloneService<http::Request<Body>, http::Response<Body>, tower::BoxError> = rig
        .channel
        .map_response(|response: http::Response<_>| response.map(Body::new))
        .map_err(Into::into)
        .boxed_clone();
    calls(TestServiceClient::new(either)).await;
}

/// A program may call without tonic's client, and on a thread of its own.
#[tokio::test]
async fn a_channel_is_send_and_sync_and_so_are_its_parts() {
    fn is_send_sync<T: Send + Sync + Clone + 'static>(_: &T) {}
    fn is_send<T: Send + 'static>(value: T) -> T {
        value
    }
    let rig = Rig::start().await;
    is_send_sync(&rig.channel);
    let request = http::Request::post("/grpc.testing.TestService/EmptyCall");
    let request = request.header("content-type", "application/grpc");
    let mut channel = rig.channel;
    let call = is_send(channel.call(request.body(Body::empty()).unwrap()));
    is_send(call.await.unwrap().into_body());
}
