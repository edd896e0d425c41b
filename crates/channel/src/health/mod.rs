//! Client-side health checking (gRFC A17): a server can say that it is unhealthy and keep its connections.
//!
//! The health of a connection is apart from its connectivity, as gRFC A61 asks. An unhealthy server is no reason to
//! connect again. A subchannel runs one check for all endpoints that ask for its health. An endpoint of a `pick_first`
//! leaf never asks.
//!
//! ```text
//!  Watch begins      SERVING                  the stream ends after an answer
//!  CONNECTING ──────────────────> READY ──────────────────────────────────────> CONNECTING
//!      │ any other answer           ^
//!      └──> TRANSIENT_FAILURE ──────┘ SERVING
//! ```

mod machine;
mod proto;
mod watch;

use std::sync::Arc;

use crowfly_lb::EndpointState;
use tokio::task::JoinHandle;

use crate::authority::CallAuthority;
use crate::transport::Sender;

/// The settings of a channel's health checks.
#[derive(Clone, Debug)]
pub(crate) struct HealthCheck {
    /// The service whose health is asked for. The empty name means the server as a whole.
    pub(crate) service: Arc<str>,
    /// The `:authority` of calls, because servers may choose by it.
    pub(crate) authority: CallAuthority,
}

/// The health of the server at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The server has not answered yet.
    Unknown,
    Healthy,
    /// The server has no health service. Such a server counts as healthy.
    Unimplemented,
    /// The server says that it is unhealthy, or the check has failed; with the reason.
    Unhealthy(Arc<str>),
}

impl Health {
    /// The state of a connection of this health, for owners that ask for health. `ready` is its state for all others.
    pub(crate) fn seen_in(&self, ready: &EndpointState<Sender>) -> EndpointState<Sender> {
        match (self, ready) {
            (Self::Unknown, EndpointState::Ready { .. }) => EndpointState::Connecting,
            (Self::Unhealthy(reason), EndpointState::Ready { .. }) => {
                EndpointState::TransientFailure(Arc::clone(reason))
            }
            _ => ready.clone(),
        }
    }
}

/// A check that runs on a connection. Dropping it cancels its stream.
#[derive(Debug)]
pub(crate) struct Checking {
    task: JoinHandle<()>,
}

impl Checking {
    /// Begins to check the server at the other end of `sender`. Each change of its health goes to `tell`.
    pub(crate) fn start(
        check: &HealthCheck,
        sender: Sender,
        tell: impl Fn(Health) + Send + Sync + 'static,
    ) -> Self {
        let watch = watch::Watch::new(check, sender);
        let task = tokio::spawn(watch.run(tell));
        Self { task }
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.task.abort();
    }
}
