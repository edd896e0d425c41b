//! One call: where it goes, what it waits for, and when it may be tried again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crowfly_lb::{Call, CallContext, CallOutcome, EndpointId, HashHeader, Pick, hash_values};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use pin_project_lite::pin_project;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::channel::Shared;
use crate::clusters::{Balancing, Cluster, Lease};
use crate::deadline::{self, Deadline};
use crate::driver::Query;
use crate::named::named;
use crate::not_grpc;
use crate::routing::Routing;
use crate::transport::{
    DEFAULT_REPLAY_LIMIT, Guard, ReplayBody, ResponseBody, SendErrorKind, Sender, grpc_status,
};

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("grpc-rust-crowfly/", env!("CARGO_PKG_VERSION")));

/// A request extension: makes a call wait for a usable backend, and for a configuration, where it
/// would otherwise fail at once.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::WaitForReady(true));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// A request extension: calls with the same hash go to the same backend, if their cluster balances by
/// `ring_hash`. A call without one goes anywhere.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::RequestHash(42));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHash(pub u64);

/// What all attempts of a call have in common.
struct Outgoing {
    head: Request<()>,
    path: PathAndQuery,
    deadline: Deadline,
    wait_for_ready: bool,
    /// The same for all attempts, so that a call without a hash of its own asks for one connection
    /// at most (gRFC A42).
    hash: u64,
}

/// Why a call ended before its response began.
enum CallError {
    /// The caller's own body failed: its status is the caller's word, and is left as it is.
    Body(Status),
    Ours(Status),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Ours(status)
    }
}

/// Runs one call to the head of its response. Its failures name the node.
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: Request<Body>,
) -> Result<Response<ResponseBody<InFlight>>, Status> {
    let node = Arc::clone(&shared.node);
    let outcome = attempts(shared, request).await;
    outcome.map_err(|error| match error {
        CallError::Body(status) => status,
        CallError::Ours(status) => named(status, &node),
    })
}

async fn attempts(
    shared: Arc<Shared>,
    request: Request<Body>,
) -> Result<Response<ResponseBody<InFlight>>, CallError> {
    shared.activity.mark();
    let (outgoing, body) = Outgoing::new(&shared, request)?;
    let body = ReplayBody::new(body, DEFAULT_REPLAY_LIMIT);
    let mut refused_before = false;
    // gRFC A31: a call has one cluster, whatever happens to its attempts, and the cluster is there
    // until the call needs no more of them.
    let cluster = outgoing.route(&shared).await?;
    loop {
        let call = outgoing.pick(&cluster, &shared).await?;
        let sender = call.transport().clone();
        let attempt = || outgoing.timed_head().map(|()| body.attempt());
        let sent = outgoing
            .deadline
            .bound(sender.send_with(attempt), || {
                format!("a response from {}", sender.address())
            })
            .await?;
        let error = match sent {
            Ok(response) => {
                body.commit();
                let status = grpc_status(response.headers());
                if status.is_none()
                    && let Some(status) = not_grpc::status_of(&response, sender.address())
                {
                    call.finish(CallOutcome::Status(status.code().into()));
                    return Err(status.into());
                }
                let node = Arc::clone(&shared.node);
                let in_flight = InFlight::new(call, outgoing.deadline, status, node);
                return Ok(response.map(|body| body.guarded(in_flight)));
            }
            Err(error) => error,
        };
        // gRFC A6: what never left may go again for as long as there is time; what the server
        // refused may go again once.
        match error.kind() {
            SendErrorKind::NeverSent if body.can_replay() && shared.is_alive() => {
                let what = || format!("another connection: {error}");
                outgoing.deadline.check(what)?;
                yield_now().await;
            }
            SendErrorKind::Refused if body.can_replay() && !refused_before => {
                refused_before = true;
            }
            SendErrorKind::RequestBody => return Err(CallError::Body(error.to_status())),
            _ => return Err(error.to_status().into()),
        }
    }
}

impl Outgoing {
    fn new(shared: &Shared, request: Request<Body>) -> Result<(Self, Body), Status> {
        let (mut parts, body) = request.into_parts();
        let deadline = Deadline::of(&parts.headers)?;
        let wait_for_ready = parts.extensions.get().copied().unwrap_or_default();
        let hash = parts.extensions.get().map(|RequestHash(hash)| *hash);
        let path = match parts.uri.path_and_query() {
            Some(path) => path.clone(),
            None => PathAndQuery::from_static("/"),
        };
        let uri = Uri::builder()
            .scheme(shared.scheme.clone())
            .authority(shared.authority.in_uri())
            .path_and_query(path.clone())
            .build()
            .map_err(|error| Status::internal(format!("request URI: {error}")))?;
        parts
            .headers
            .entry(header::USER_AGENT)
            .or_insert(USER_AGENT);

        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = uri;
        *head.headers_mut() = parts.headers;
        shared.authority.tell(head.extensions_mut());
        let WaitForReady(wait_for_ready) = wait_for_ready;
        let outgoing = Self {
            head,
            path,
            deadline,
            wait_for_ready,
            hash: hash.unwrap_or_else(|| fastrand::u64(..)),
        };
        Ok((outgoing, body))
    }

    /// The head of an attempt: it tells the server how much time is left at this moment.
    fn timed_head(&self) -> Request<()> {
        let mut head = self.head.clone();
        if let Some(left) = self.deadline.header() {
            head.headers_mut().insert(deadline::HEADER, left);
        }
        head
    }

    /// The cluster to send to. Waits for the first configuration and, if the call waits for ready,
    /// for one that works.
    async fn route(&self, shared: &Shared) -> Result<Arc<Lease>, Status> {
        let look = |routing: &Routing| match routing {
            Routing::Ready(router) => Some(router.route(self.path.path())),
            Routing::Broken(reason) => Some(Err(reason.to_string())),
            Routing::Failed(_) if self.wait_for_ready => None,
            Routing::Failed(reason) => Some(Err(reason.to_string())),
            Routing::Idle => {
                // The driver is gone when the channel is.
                let _ = shared.queries.unbounded_send(Query::Wake);
                None
            }
            Routing::Waiting(_) => None,
        };
        let routed = match look(&shared.routing.load()) {
            Some(routed) => routed,
            None => {
                let found = shared.routing.find(look);
                self.deadline.bound(found, || missing(shared)).await?
            }
        };
        routed.map_err(Status::unavailable)
    }

    /// An endpoint of the cluster.
    async fn pick(&self, cluster: &Cluster, shared: &Shared) -> Result<Call<Sender>, Status> {
        // One for all looks: a call that waits is not dropped the likelier for looking often.
        let seed = fastrand::u64(..);
        let look = |balancing: &Balancing| {
            let (picker, may_wait) = match balancing {
                Balancing::Last(picker) => (picker, false),
                Balancing::Live(picker) => (picker, self.wait_for_ready),
                Balancing::Pending => return None,
            };
            let headers = RequestHeaders(self.head.headers());
            let cx = CallContext::new(seed);
            let cx = cx.with_hash(self.hash).with_headers(&headers);
            match picker.pick(&cx) {
                Pick::Ready(call) => {
                    if let Some(endpoint) = call.wakes() {
                        wake(shared, endpoint);
                    }
                    Some(Ok(call))
                }
                Pick::Drop(dropped) => Some(Err(dropped.to_string())),
                Pick::Fail(_) if may_wait => None,
                Pick::Fail(failure) => Some(Err(failure.to_string())),
                Pick::Queue => None,
                Pick::Wake(endpoint) => {
                    wake(shared, endpoint);
                    None
                }
            }
        };
        let picked = match look(&cluster.balancing.load()) {
            Some(picked) => picked,
            None => {
                let found = cluster.balancing.find(look);
                self.deadline.bound(found, || unusable(cluster)).await?
            }
        };
        picked.map_err(|text| {
            Status::unavailable(match &**shared.routing.load() {
                Routing::Ready(router) => router.with_notes(text),
                _ => text,
            })
        })
    }
}

/// The headers of a call, as a policy sees them.
#[derive(Debug)]
struct RequestHeaders<'a>(&'a HeaderMap);

impl HashHeader for RequestHeaders<'_> {
    fn hash_header(&self, name: &str) -> Option<u64> {
        hash_values(self.0.get_all(name).iter().map(HeaderValue::as_bytes))
    }
}

/// Tells the driver that a call wants an endpoint, once.
fn wake(shared: &Shared, endpoint: EndpointId) {
    // The driver is gone when the channel is.
    let _ = shared.queries.unbounded_send(Query::Demand(endpoint));
}

/// What a call that ran out of time before it was routed was waiting for.
fn missing(shared: &Shared) -> String {
    match &**shared.routing.load() {
        Routing::Failed(reason) => format!("a configuration: {reason}"),
        Routing::Waiting(missing) => missing.to_string(),
        Routing::Broken(_) | Routing::Idle | Routing::Ready(_) => "a configuration".to_owned(),
    }
}

/// What a call that ran out of time before it was sent was waiting for.
fn unusable(cluster: &Cluster) -> String {
    let balancing = cluster.balancing.load();
    let failure = match &**balancing {
        Balancing::Last(picker) | Balancing::Live(picker) => picker.failure(),
        Balancing::Pending => None,
    };
    let why = failure.map_or_else(
        || format!("cluster {}: no connection is ready yet", cluster.name),
        ToString::to_string,
    );
    format!("a backend: {why}")
}

pin_project! {
    /// What lives as long as a call does: its place in the balancer's books, and its deadline. The
    /// default is that of no call.
    #[derive(Default)]
    pub struct InFlight {
        call: Option<Call<Sender>>,
        deadline: Deadline,
        // What the head of the response says, for one that consists of nothing else.
        status: Option<i32>,
        // What its failures name.
        node: Arc<str>,
        #[pin]
        sleep: Option<Sleep>,
    }
}

impl InFlight {
    fn new(call: Call<Sender>, deadline: Deadline, status: Option<i32>, node: Arc<str>) -> Self {
        Self {
            call: Some(call),
            deadline,
            status,
            node,
            sleep: deadline.at().map(sleep_until),
        }
    }
}

impl Guard for InFlight {
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Status> {
        let this = self.project();
        let (Some(sleep), Some(call)) = (this.sleep.as_pin_mut(), this.call) else {
            return Poll::Pending;
        };
        ready!(sleep.poll(cx));
        let address = call.transport().address();
        let what = format!("the rest of a response from {address}");
        Poll::Ready(this.deadline.exceeded(&what))
    }

    fn worded(&self, status: Status) -> Status {
        named(status, &self.node)
    }

    fn ended(self: Pin<&mut Self>, status: Option<i32>) {
        let this = self.project();
        let status = status.or(*this.status);
        if let Some(call) = this.call.take() {
            call.finish(CallOutcome::Status(status.unwrap_or(Code::Unknown.into())));
        }
    }
}
