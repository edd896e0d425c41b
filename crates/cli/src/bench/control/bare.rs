//! A server that holds streams and does nothing with them.
//!
//! It answers each stream once, with the resource that its client asks for, and keeps it open. Its transport is that of
//! the control plane. So its memory is that of HTTP/2 and gRPC, and the rest of a control plane's memory is its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_xds::DeltaSubscription;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use http_body::Frame;
use tokio::net::TcpListener;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::resources::{ENDPOINTS, name, snapshot};

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener) -> io::Result<()> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = Holder { answer: answer() };
    let server = Server::builder().add_service(service);
    let served = server.serve_with_incoming(incoming).await;
    served.map_err(io::Error::other)
}

/// The message that answers a client of one EDS resource, with its head.
fn answer() -> Bytes {
    let mut stream = DeltaSubscription::new(Arc::new(snapshot(0, 1)));
    stream.handle_request(DeltaDiscoveryRequest {
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: vec![name(0)],
        ..DeltaDiscoveryRequest::default()
    });
    let mut message = BytesMut::new();
    if let Some(response) = stream.poll_response() {
        message.put_u8(0);
        message.put_u32(u32::try_from(response.encoded_len()).unwrap_or(u32::MAX));
        response.encode(&mut message);
    }
    message.freeze()
}

#[derive(Clone, Debug)]
struct Holder {
    answer: Bytes,
}

impl NamedService for Holder {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<http::Request<Body>> for Holder {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let held = Held {
            requests: request.into_body(),
            answer: self.answer.clone(),
        };
        let mut response = http::Response::new(Body::new(held));
        let grpc = http::HeaderValue::from_static("application/grpc");
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, grpc);
        ready(Ok(response))
    }
}

/// A stream that is held until its client ends it.
#[derive(Debug)]
struct Held {
    requests: Body,
    /// The answer that is still to be sent; empty after that.
    answer: Bytes,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if !self.answer.is_empty() {
            let answer = std::mem::take(&mut self.answer);
            return Poll::Ready(Some(Ok(Frame::data(answer))));
        }
        loop {
            match std::task::ready!(Pin::new(&mut self.requests).poll_frame(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
    }
}
