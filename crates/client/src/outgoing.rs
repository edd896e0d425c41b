//! A gRPC stream to a server: the call that opens it, and the body of its request. Both ADS and LRS streams are made
//! here.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Method, Uri, Version};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tower_service::Service as _;

use crate::stream::error_chain;
use crate::transports::Lease;

/// The body of a request: messages that are encoded when the transport takes them.
pub(crate) struct Outgoing<S, F> {
    pub(crate) messages: S,
    /// Encodes a message that the transport takes now.
    pub(crate) take: F,
}

impl<M, S, F> http_body::Body for Outgoing<S, F>
where
    S: Stream<Item = Box<M>> + Unpin,
    F: FnMut(&M) -> Bytes + Unpin,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(message) = ready!(self.messages.poll_next_unpin(cx)) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(Frame::data((self.take)(&message)))))
    }
}

/// Opens a stream. Requests go out before the response's headers come, because a server may hold them back
/// until its first response.
pub(crate) async fn call(
    lease: &Lease,
    path: &'static str,
    body: Body,
) -> Result<http::Response<Body>, Status> {
    let mut metadata = MetadataMap::new();
    lease.authorize(&mut metadata).await?;
    let mut request = http::Request::new(body);
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(path);
    *request.headers_mut() = metadata.into_headers();
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut channel = lease.channel();
    poll_fn(|cx| channel.poll_ready(cx))
        .await
        .map_err(|error| Status::unavailable(error_chain(&error)))?;
    let response = channel.call(request).await;
    response.map_err(|error| Status::from_error(error.into()))
}
