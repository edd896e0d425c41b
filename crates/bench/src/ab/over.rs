//! One connection as a transport of tonic's clients, without the channel above it, so that only
//! HTTP/2 is measured.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crowfly::transport::{Connection, Profile, ResponseBody, SendError, Sender};
use crowfly_cli::bench::BenchError;
use http::{Request, Response, Uri};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use super::Speaker;

const PATIENCE: Duration = Duration::from_secs(10);

/// Calls over one connection, and nothing above it: no balancing, no retries.
#[derive(Clone)]
pub(super) struct Over {
    pub(super) sender: Sender,
}

impl Over {
    pub(super) async fn connect(address: SocketAddr, speaker: Speaker) -> Result<Self, BenchError> {
        let profile = Profile::plaintext().with_backend(speaker.into());
        let connected = Connection::connect(address, &profile, PATIENCE).await;
        let connection = connected.map_err(|error| BenchError::Channel(error.to_string()))?;
        let sender = connection.sender().clone();
        Ok(Self { sender })
    }

    /// A call whose body is encoded already.
    pub(super) async fn send(
        &self,
        path: &'static str,
        body: Body,
    ) -> Result<Response<ResponseBody>, SendError> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        self.forward(request).await
    }

    async fn forward(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        parts.authority = Some(http::uri::Authority::from_static("ab"));
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        self.sender.send(request).await
    }
}

impl Service<Request<Body>> for Over {
    type Response = Response<ResponseBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let over = self.clone();
        Box::pin(async move {
            let response = over.forward(request).await;
            response.map_err(|error| error.to_status())
        })
    }
}
