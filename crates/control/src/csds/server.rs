//! The gRPC service of CSDS. It is not the generated one, because that reads a request before its
//! client is admitted.
//!
//! A request for one answer is served as a stream that ends after the first. So both methods have
//! the same limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::SERVICE_NAME;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use futures_util::stream::{Stream, try_unfold};
use prost::Message;
use tokio::time::sleep_until;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::warn;

use super::{Csds, matchers};
use crate::ending::{End, too_large};
use crate::incoming::{Metered, Peer, Share};
use crate::limits::{Beyond, Limit, Ticket};
use crate::writing::Timed;

/// The most bytes of a request. It has conditions, and perhaps the node of the asker.
const MAX_REQUEST_BYTES: usize = 64 << 10;

const STREAM: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";
const FETCH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";

/// The gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct CsdsServer(Arc<Csds>);

impl CsdsServer {
    pub(crate) fn new(csds: Csds) -> Self {
        Self(Arc::new(csds))
    }
}

impl NamedService for CsdsServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for CsdsServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let csds = Arc::clone(&self.0);
        Box::pin(async move {
            let answers = match request.uri().path() {
                STREAM => usize::MAX,
                FETCH => 1,
                _ => return Ok(Status::unimplemented("").into_http()),
            };
            let admitted = match csds.admission.admit(request.extensions()) {
                Ok(admitted) => admitted,
                Err(status) => return Ok(status.into_http()),
            };
            let most = admitted.peer.limits().request_bytes.min(MAX_REQUEST_BYTES);
            let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(most);
            let share = admitted.peer.share();
            let request = request.map(|body| Metered::new(body, share));
            let held = Arc::new(Held::new(&admitted.peer, admitted.ticket));
            let asker = Asker {
                csds,
                peer: admitted.peer.clone(),
                answers,
                from: admitted.from,
                held: Arc::clone(&held),
            };
            let response = grpc.streaming(Method(Some(asker)), request).await;
            Ok(response.map(|body| Body::new(Timed::new(body, admitted.peer, held))))
        })
    }
}

/// A method, for one stream. The asker is gone once it is served.
struct Method(Option<Asker>);

impl StreamingService<ClientStatusRequest> for Method {
    type Response = ClientStatusResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ClientStatusRequest>>) -> Self::Future {
        let no_admission = || Status::internal("the stream was not admitted");
        let served = self.0.take().ok_or_else(no_admission).map(|asker| {
            let answers = try_unfold(
                (asker, request.into_inner()),
                async |(mut asker, mut requests)| {
                    let answer = asker.next(&mut requests).await?;
                    Ok(answer.map(|answer| (answer, (asker, requests))))
                },
            );
            Response::new(Box::pin(answers) as Self::ResponseStream)
        });
        std::future::ready(served)
    }
}

/// The client that asks on one stream.
struct Asker {
    csds: Arc<Csds>,
    peer: Peer,
    /// The number of answers that are still to be given.
    answers: usize,
    /// The time from which the next request is read.
    from: Instant,
    held: Arc<Held>,
}

/// The part of the limits that a stream takes, until its answers are written.
struct Held {
    /// The bytes of the largest answer so far.
    answer: Mutex<Share>,
    _ticket: Ticket,
}

impl Held {
    fn new(peer: &Peer, ticket: Ticket) -> Self {
        Self {
            answer: Mutex::new(peer.share()),
            _ticket: ticket,
        }
    }

    fn raise(&self, bytes: usize) -> Result<(), Beyond> {
        let mut share = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        share.raise(bytes)
    }
}

impl Asker {
    /// The answer to the next request; `None` if there is none.
    async fn next(
        &mut self,
        requests: &mut Streaming<ClientStatusRequest>,
    ) -> Result<Option<ClientStatusResponse>, Status> {
        if self.answers == 0 {
            return Ok(None);
        }
        self.answers -= 1;
        let mut stopping = self.csds.stopping.clone();
        let request = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return Err(End::stopping_status()),
            request = self.read(requests) => request?,
        };
        let Some(request) = request else {
            return Ok(None);
        };
        let asked = request.encoded_len();
        let answer = self.csds.answer(request, &self.peer).await?;
        let size = answer.encoded_len();
        let within = self.held.raise(size);
        within.map_err(|beyond| self.refused(&beyond))?;
        // A large answer is paid for as a large request is.
        let now = Instant::now();
        let from = self.peer.pace(asked + size, Duration::MAX, now);
        self.from = from.unwrap_or(now);
        Ok(Some(answer))
    }

    /// Reads the next request, when its time has come, and waits until its conditions may be looked at.
    async fn read(
        &self,
        requests: &mut Streaming<ClientStatusRequest>,
    ) -> Result<Option<ClientStatusRequest>, Status> {
        sleep_until(self.from.into()).await;
        let request = requests.message().await;
        let request = request.map_err(|status| match too_large(&status) {
            Some(beyond) => self.refused(&beyond),
            None => status,
        })?;
        let conditions = request.iter().flat_map(|request| &request.node_matchers);
        self.pay(matchers::cost(conditions)).await;
        Ok(request)
    }

    /// Waits until the asker may have so much work done. It pays before, because the streams of a connection could else
    /// have work done at once for which they pay later.
    async fn pay(&self, cost: u32) {
        let now = Instant::now();
        let until = self.peer.pace_small(cost, now);
        if cost == 0 || until <= now {
            return;
        }
        let limit = Limit::RequestsPerSecond;
        let node = self.peer.node_id();
        self.peer.reached(limit, node);
        if let Some(left_out) = self.peer.may_tell() {
            let (peer, limit) = (self.peer.address(), limit.name());
            let reason = "it is answered more slowly: too many expressions";
            warn!(%peer, node, limit, reason, left_out, "client at a limit");
        }
        sleep_until(until.into()).await;
    }

    /// The status of an asker that went beyond a limit.
    fn refused(&self, beyond: &Beyond) -> Status {
        self.peer.reached(beyond.limit, self.peer.node_id());
        if let Some(left_out) = self.peer.may_tell() {
            let (peer, limit, reason) = (self.peer.address(), beyond.limit.name(), &beyond.text);
            warn!(%peer, limit, reason, left_out, "CSDS refused");
        }
        beyond.status()
    }
}
