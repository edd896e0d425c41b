//! The decision of a call: everything that is decided once, before its first attempt.
//!
//! The decision is made from one configuration and kept for all attempts. A call that was routed stays with its
//! cluster, its filters and its retry policy even if the routes change (gRFC A31).

use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Version, header};
use tokio::time::Instant;
use tonic::Status;

use super::filter::Session;
use super::recording::Recording;
use super::{PREVIOUS_ATTEMPTS, RequestHash, WaitForReady};
use crate::authority::CallAuthority;
use crate::channel::ChannelContext;
use crate::deadline::{self, Deadline};
use crate::driver::Query;
use crate::request_headers::RequestHeaders;
use crate::routing::{Routed, Routing};
use crate::transport::RequestHead;

/// The `user-agent` of all requests to backends.
pub(crate) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("grpc-rust-crowfly/", env!("CARGO_PKG_VERSION")));

/// Everything that the attempts of a call have in common. The decision borrows its large parts, because it is moved.
pub(super) struct Decision<'a> {
    head: &'a Request<()>,
    pub(super) deadline: Deadline,
    pub(super) wait_for_ready: bool,
    /// One hash for all attempts, because a call without a hash of its own must ask for one connection
    /// at most (gRFC A42).
    pub(super) hash: u64,
    pub(super) routed: Routed,
    /// The session that the call belongs to, if a filter keeps sessions.
    pub(super) session: Option<Box<Session>>,
    /// The record of the call, for metrics and traces.
    pub(super) recording: &'a Recording,
}

impl<'a> Decision<'a> {
    /// Reads the request, routes it and runs the filters of its route. Waits for the first configuration
    /// and, if the call waits for ready, for one that works.
    pub(super) async fn make(
        channel: &ChannelContext,
        head: &'a mut Request<()>,
        recording: &'a Recording,
    ) -> Result<Self, Status> {
        let start = Instant::now();
        let deadline = Deadline::of(head.headers(), start)?;
        let wait_for_ready = head.extensions().get().copied().unwrap_or_default();
        let WaitForReady(wait_for_ready) = wait_for_ready;
        let own_hash = head.extensions().get().map(|RequestHash(hash)| *hash);
        complete(head, channel)?;
        let mut routed = route(channel, head, deadline, wait_for_ready).await?;
        let by_route = || {
            let policies = &routed.forward.hash_policies;
            policies.hash(&RequestHeaders(head.headers()), channel.id)
        };
        let hash = own_hash.or_else(by_route);
        let deadline = deadline.limited(routed.limit, start);
        let session = match routed.filters.take() {
            Some(filters) => filters.run(head, &mut routed, deadline).await?,
            None => None,
        };
        Ok(Self {
            hash: hash.unwrap_or_else(|| fastrand::u64(..)),
            head,
            deadline,
            wait_for_ready,
            routed,
            session,
            recording,
        })
    }

    /// The head of an attempt that is sent now to an endpoint of this host name. The head tells the server how much
    /// time is left, and the number of earlier attempts (gRFC A6). A first attempt without a deadline borrows the head
    /// of the call, because a copy would cost several allocations.
    pub(super) fn head_for(
        &self,
        hostname: Option<&CallAuthority>,
        previous_attempts: u32,
    ) -> RequestHead<'_> {
        let mut head = RequestHead::Borrowed(self.head);
        if self.routed.forward.auto_host_rewrite
            && let Some(hostname) = hostname
        {
            head = head.changed(|head| hostname.rewrite(head));
        }
        if previous_attempts > 0 {
            head = head.changed(|head| {
                let headers = head.headers_mut();
                headers.insert(&PREVIOUS_ATTEMPTS, previous_attempts.into());
            });
        }
        if let Some(left) = self.deadline.header() {
            head = head.changed(|head| {
                head.headers_mut().insert(&deadline::HEADER, left);
            });
        }
        head
    }

    /// The headers of the call, for policies that hash one of them.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }
}

/// Makes the head of a caller's request the one that backends see.
fn complete(head: &mut Request<()>, channel: &ChannelContext) -> Result<(), Status> {
    let path = match head.uri().path_and_query() {
        Some(path) => path.clone(),
        None => PathAndQuery::from_static("/"),
    };
    let uri = Uri::builder()
        // The connection replaces it by its own.
        .scheme(Scheme::HTTP)
        .authority(channel.authority.in_uri())
        .path_and_query(path)
        .build()
        .map_err(|error| Status::internal(format!("request URI: {error}")))?;
    *head.method_mut() = Method::POST;
    *head.version_mut() = Version::HTTP_2;
    *head.uri_mut() = uri;
    let headers = head.headers_mut();
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    // The header may come from a call to this program, whose metadata the program passes on. Nearly no call has the
    // header, and a comparison of its few names costs less than a hash.
    if headers.keys().any(|name| *name == PREVIOUS_ATTEMPTS) {
        headers.remove(&PREVIOUS_ATTEMPTS);
    }
    // The caller's extensions have been read, and mean nothing to a connection.
    *head.extensions_mut() = Extensions::new();
    channel.authority.tell(head.extensions_mut());
    Ok(())
}

/// The route of a call.
async fn route(
    channel: &ChannelContext,
    head: &Request<()>,
    deadline: Deadline,
    wait_for_ready: bool,
) -> Result<Routed, Status> {
    let look = |routing: &Routing| match routing {
        Routing::Ready(router) => Some(router.route(head)),
        Routing::Broken(reason) => Some(Err(reason.to_string())),
        Routing::Failed(_) if wait_for_ready => None,
        Routing::Failed(reason) => Some(Err(reason.to_string())),
        Routing::Idle => {
            // The driver is gone when the channel is.
            let _ = channel.queries.unbounded_send(Query::Wake);
            None
        }
        Routing::Waiting(_) => None,
    };
    let routed = match look(&channel.routing.load()) {
        Some(routed) => routed,
        None => {
            let found = channel.routing.find(look);
            deadline.bound(found, || missing(channel)).await?
        }
    };
    routed.map_err(Status::unavailable)
}

/// Names the resource that a call waited for when its time ended before it was routed.
fn missing(channel: &ChannelContext) -> String {
    match &**channel.routing.load() {
        Routing::Failed(reason) => format!("a configuration: {reason}"),
        Routing::Waiting(missing) => missing.to_string(),
        Routing::Broken(_) | Routing::Idle | Routing::Ready(_) => "a configuration".to_owned(),
    }
}
