//! The driver of a channel's lookups: it runs the lookups that `schedule` asks for.
//!
//! The I/O and the clock are here, so that the rules in `schedule` have none.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::grpc::cluster::DnsName;
use futures_util::FutureExt;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{self, sleep_until};
use tracing::debug;

use super::schedule::{MINIMUM_INTERVAL, Schedule, Ticket};
use super::{LookupError, Resolve};

/// The least refresh interval. A shorter interval is raised to it, because it can only be a mistake.
const LEAST_REFRESH: Duration = Duration::from_secs(1);

/// The addresses of a name, or the reason why there are none.
pub(crate) type Outcome = Result<Vec<SocketAddr>, Arc<str>>;

/// The lookups under way, each with its result.
type Lookups = JoinSet<Ended>;
type Ended = (Ticket, Result<Vec<IpAddr>, LookupError>);

/// Runs the lookups that the [`Schedule`] asks for. Each is a task of its own, so that a resolver that blocks
/// or panics does not stop the channel.
#[derive(Debug)]
pub(crate) struct Names {
    resolver: Arc<dyn Resolve>,
    schedule: Schedule,
    /// `None` before the first lookup, because most channels have none.
    lookups: Option<Lookups>,
    handles: BTreeMap<Ticket, AbortHandle>,
}

impl Names {
    /// Names without lookups yet. Each name is looked up again after `refresh`, or on request alone if it is
    /// `None`.
    pub(crate) fn new(resolver: Arc<dyn Resolve>, refresh: Option<Duration>) -> Self {
        let refresh = refresh.map(|interval| interval.max(LEAST_REFRESH));
        Self::with_schedule(resolver, Schedule::new(MINIMUM_INTERVAL, refresh))
    }

    pub(super) fn with_schedule(resolver: Arc<dyn Resolve>, schedule: Schedule) -> Self {
        Self {
            resolver,
            schedule,
            lookups: None,
            handles: BTreeMap::new(),
        }
    }

    /// Begins to look `name` up: at once, unless it is being watched.
    pub(crate) fn watch(&mut self, name: &DnsName) {
        self.schedule.watch(name);
    }

    /// Stops looking `name` up, and aborts its lookup if one is under way.
    pub(crate) fn unwatch(&mut self, name: &DnsName) {
        let ticket = self.schedule.unwatch(name);
        if let Some(lookup) = ticket.and_then(|ticket| self.handles.remove(&ticket)) {
            lookup.abort();
        }
    }

    /// Looks every name up again, each not more than once in 30 seconds. A request that is too early is
    /// served later.
    pub(crate) fn request(&mut self) {
        self.schedule.request();
    }

    /// Waits for the next lookup to end, and returns its outcome. Lookups start only while this is polled.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> (DnsName, Outcome) {
        loop {
            while let Some((ticket, name)) = self.schedule.poll(now()) {
                self.start(ticket, name);
            }
            tokio::select! {
                Some(ended) = next_ended(&mut self.lookups) => {
                    // A lookup that was aborted is of no interest.
                    let Ok((ticket, answer)) = ended else { continue };
                    self.handles.remove(&ticket);
                    let outcome = answer.and_then(not_empty);
                    if let Some(name) = self.schedule.finished(ticket, outcome.is_ok()) {
                        debug!(%name, ?outcome, "looked up");
                        return deliver(name, outcome);
                    }
                }
                () = until(self.schedule.next_timeout()) => {}
            }
        }
    }

    fn start(&mut self, ticket: Ticket, name: DnsName) {
        let resolver = Arc::clone(&self.resolver);
        let lookup = async move { resolver.resolve(&name.host).await };
        let lookup = AssertUnwindSafe(lookup).catch_unwind().map(move |answer| {
            let panicked = |_| Err(LookupError::Other("the resolver panicked".into()));
            (ticket, answer.unwrap_or_else(panicked))
        });
        let handle = self.lookups.get_or_insert_default().spawn(lookup);
        self.handles.insert(ticket, handle);
    }
}

/// The next lookup that ends; `None` if there is none. Cancel-safe.
async fn next_ended(lookups: &mut Option<Lookups>) -> Option<Result<Ended, JoinError>> {
    lookups.as_mut()?.join_next().await
}

fn not_empty(addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, LookupError> {
    match addresses.is_empty() {
        true => Err(LookupError::NoAddresses),
        false => Ok(addresses),
    }
}

fn deliver(name: DnsName, outcome: Result<Vec<IpAddr>, LookupError>) -> (DnsName, Outcome) {
    let outcome = match outcome {
        Ok(addresses) => {
            let mut seen = BTreeSet::new();
            let distinct = addresses
                .into_iter()
                .filter(|address| seen.insert(*address));
            Ok(distinct
                .map(|address| (address, name.port).into())
                .collect())
        }
        Err(error) => Err(error.to_string().into()),
    };
    (name, outcome)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        // Boxed, so that a channel without DNS names does not pay for its size.
        Some(deadline) => Box::pin(sleep_until(deadline.into())).await,
        None => pending().await,
    }
}

fn now() -> Instant {
    time::Instant::now().into_std()
}
