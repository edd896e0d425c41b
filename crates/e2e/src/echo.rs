//! Calls of `/e2e.Echo/` over any channel.
//!
//! The messages are bytes as they are, because servers of all languages take them without generated
//! code.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::process::PATIENCE;

/// Above what the tests send.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;

/// A client of the service. Its calls have [`PATIENCE`], unless a call says otherwise.
#[derive(Clone, Debug)]
pub struct EchoClient<S> {
    grpc: Grpc<S>,
}

impl<S> EchoClient<S>
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// A client that calls over `channel`.
    pub fn new(channel: S) -> Self {
        let grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
        Self { grpc }
    }

    /// Sends one message, and receives one.
    ///
    /// # Errors
    ///
    /// The status that the call failed with.
    pub async fn unary(
        &self,
        method: &str,
        message: impl Into<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.unary_within(PATIENCE, method, message).await
    }

    /// Sends one message with metadata, and receives one.
    ///
    /// # Errors
    ///
    /// The status that the call failed with.
    pub async fn unary_with(
        &self,
        metadata: MetadataMap,
        method: &str,
        message: impl Into<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let mut request = patient(message.into());
        *request.metadata_mut() = metadata;
        self.ready().await?.unary(request, path(method), Raw).await
    }

    /// Sends one message with a deadline, and receives one.
    ///
    /// # Errors
    ///
    /// The status that the call failed with.
    pub async fn unary_within(
        &self,
        timeout: Duration,
        method: &str,
        message: impl Into<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let mut request = Request::new(message.into());
        request.set_timeout(timeout);
        self.ready().await?.unary(request, path(method), Raw).await
    }

    /// Sends one message, and receives many.
    ///
    /// # Errors
    ///
    /// The status that the call failed with, before it was answered.
    pub async fn server_streaming(
        &self,
        method: &str,
        message: impl Into<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        let request = patient(message.into());
        let mut grpc = self.ready().await?;
        grpc.server_streaming(request, path(method), Raw).await
    }

    /// Sends many messages, and receives one.
    ///
    /// # Errors
    ///
    /// The status that the call failed with.
    pub async fn client_streaming(
        &self,
        method: &str,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Bytes>, Status> {
        let request = patient(messages);
        let mut grpc = self.ready().await?;
        grpc.client_streaming(request, path(method), Raw).await
    }

    /// Many messages there, many back.
    ///
    /// # Errors
    ///
    /// The status that the call failed with, before it was answered.
    pub async fn streaming(
        &self,
        method: &str,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.streaming_within(PATIENCE, method, messages).await
    }

    /// Many messages there, many back, within this time.
    ///
    /// # Errors
    ///
    /// The status that the call failed with, before it was answered.
    pub async fn streaming_within(
        &self,
        timeout: Duration,
        method: &str,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        let mut request = Request::new(messages);
        request.set_timeout(timeout);
        let mut grpc = self.ready().await?;
        grpc.streaming(request, path(method), Raw).await
    }

    async fn ready(&self) -> Result<Grpc<S>, Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| {
            let error: StdError = error.into();
            Status::unknown(format!("the channel is not ready: {error}"))
        })?;
        Ok(grpc)
    }
}

/// The server that answered, as it calls itself in the head of its response.
pub fn answered_by<T>(response: &Response<T>) -> &str {
    let name = response.metadata().get("hostname");
    name.and_then(|name| name.to_str().ok()).unwrap_or_default()
}

/// The path of a method.
///
/// # Panics
///
/// If there cannot be such a method.
pub fn path(method: &str) -> PathAndQuery {
    let path = format!("/e2e.Echo/{method}");
    path.parse().expect("a path")
}

fn patient<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

/// Bytes as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
