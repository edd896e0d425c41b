//! The limits of the port of ADS for the services that are not ours: health and reflection.
//!
//! Those services know no limits. A client could open their streams without end, and reflection
//! repeats each request in its answer. So [`Guarded`] stands between them and the client.

mod answers;
mod requests;

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

use crate::admission::{Admission, Admitted};
use crate::ending::End;
use crate::limits::Beyond;
use crate::writing::Timed;
use answers::Answers;
use requests::Requests;

/// The most bytes of a request. It has the name of a service, a file or a message.
pub(crate) const MAX_REQUEST_BYTES: usize = 4 << 10;

/// The limits that stand before all guarded services.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    admission: Arc<Admission>,
    stopping: watch::Receiver<bool>,
}

/// A service whose streams are admitted, paced and ended like our own.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<S> {
    service: S,
    guard: Guard,
}

/// The limit that the requests of a stream went beyond. The service ends its stream then, but it may
/// call that a success.
type Refusal = Arc<OnceLock<Beyond>>;

impl Guard {
    pub(crate) fn new(admission: Arc<Admission>, stopping: watch::Receiver<bool>) -> Self {
        Self {
            admission,
            stopping,
        }
    }

    /// The service, with these limits before it.
    pub(crate) fn before<S>(&self, service: S) -> Guarded<S> {
        let guard = self.clone();
        Guarded { service, guard }
    }
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Guarded<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Admitted { peer, from, ticket } = match self.guard.admission.admit(request.extensions())
        {
            Ok(admitted) => admitted,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let refusal = Refusal::default();
        let request = request.map(|body| {
            let requests = Requests::new(body, peer.clone(), from, Arc::clone(&refusal));
            Body::new(requests)
        });
        let answering = self.service.call(request);
        let mut stopping = self.guard.stopping.clone();
        Box::pin(async move {
            let response = tokio::select! {
                biased;
                response = answering => response?,
                _ = stopping.wait_for(|stopping| *stopping) => {
                    return Ok(End::stopping_status().into_http());
                }
            };
            Ok(response.map(|body| {
                let answers = Answers::new(body, peer.share(), refusal, stopping);
                Body::new(Timed::new(Body::new(answers), peer, Arc::new(ticket)))
            }))
        })
    }
}
