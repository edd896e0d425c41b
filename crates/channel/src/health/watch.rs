//! The driver of a health check: Watch calls on one connection, one after the other.
//!
//! The calls bypass the picker, because each of them is about one connection. So the calls count neither as load nor
//! towards circuit breakers, and a channel becomes idle despite them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crowfly_xds::Backoff;
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Request, Response, header};
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::machine::{Machine, Next};
use super::proto::{HealthCheckRequest, HealthCheckResponse, WATCH};
use super::{Health, HealthCheck};
use crate::authority::CallAuthority;
use crate::call::USER_AGENT;
use crate::transport::{ConnectionLost, ResponseBody, Sender};

/// The check of one connection.
pub(super) struct Watch {
    stub: Stub,
    service: String,
    machine: Machine,
}

impl Watch {
    pub(super) fn new(check: &HealthCheck, sender: Sender) -> Self {
        let backoff = Backoff::new(fastrand::u64(..));
        Self {
            stub: Stub {
                sender,
                authority: check.authority.clone(),
            },
            service: check.service.to_string(),
            machine: Machine::new(check.service.clone(), backoff),
        }
    }

    /// Runs until the server has no health service or the connection is over.
    pub(super) async fn run(mut self, tell: impl Fn(Health)) {
        loop {
            tell(self.machine.opened());
            let status = self.listen(&tell).await;
            if self.is_end_of_connection(&status) {
                // The subchannel tells of it. A report of ours would come first at times, and would make
                // a failure of a server that merely goes away.
                return;
            }
            let now = Instant::now().into_std();
            match self.machine.ended(&status, now) {
                Next::OpenAt(at, health) => {
                    tell(health);
                    sleep_until(at.into()).await;
                }
                Next::Stop => {
                    tell(Health::Unimplemented);
                    return;
                }
            }
        }
    }

    /// Makes a Watch call, and returns the status that it ended with.
    async fn listen(&mut self, tell: impl Fn(Health)) -> Status {
        let request = HealthCheckRequest {
            service: self.service.clone(),
        };
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let path = PathAndQuery::from_static(WATCH);
        let mut grpc = Grpc::new(self.stub.clone());
        let response = grpc.server_streaming(tonic::Request::new(request), path, codec);
        let mut answers = match response.await {
            Ok(response) => response.into_inner(),
            Err(status) => return status,
        };
        loop {
            match answers.message().await {
                Ok(Some(answer)) => tell(self.machine.answered(answer.status)),
                Ok(None) => return Status::ok("the server ended the stream"),
                Err(status) => return status,
            }
        }
    }

    fn is_end_of_connection(&self, status: &Status) -> bool {
        ConnectionLost::find(status).is_some() || !self.stub.sender.is_open()
    }
}

/// One connection, as a service for tonic's client.
#[derive(Clone)]
struct Stub {
    sender: Sender,
    authority: CallAuthority,
}

impl Stub {
    /// The request with the authority and the user agent of the channel's calls.
    fn addressed(&self, mut request: Request<Body>) -> Result<Request<Body>, Status> {
        let uri = Uri::builder()
            .scheme(Scheme::HTTP) // The connection has its own.
            .authority(self.authority.in_uri())
            .path_and_query(WATCH)
            .build();
        *request.uri_mut() = uri.map_err(|error| Status::internal(error.to_string()))?;
        self.authority.tell(request.extensions_mut());
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        Ok(request)
    }
}

impl Service<Request<Body>> for Stub {
    type Response = Response<ResponseBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (sender, request) = (self.sender.clone(), self.addressed(request));
        Box::pin(async move {
            let response = sender.send_check(request?).await;
            response.map_err(|error| error.to_status())
        })
    }
}
