//! The HTTP filters of a call (gRFC A39).
//!
//! A call passes its filters once, between its route and its first pick, so they are above retries. The filters of a
//! route are merged from the listener's chain and the overrides when a configuration is applied, and not for each call.
//! A configuration whose only filter is the router has none, and its calls pay nothing.

mod fault;
mod stateful_session;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crowfly_model::grpc::filter::{
    EffectiveConfig, EffectiveFilter, FilterChain, Overrides, SessionCookie,
};
use crowfly_model::grpc::route::{Forward, Route, VirtualHost};
use http::Request;
use tonic::Status;
use tracing::warn;

use self::fault::Fault;
pub(super) use self::stateful_session::Session;
use crate::clusters::Lease;
use crate::deadline::Deadline;
use crate::filter::{self, FilteredCall, HttpFilter};
use crate::routing::{RouteClusters, Routed};

/// The filters of the calls of one route: for each of its clusters, because the entry of a weighted cluster may
/// override them. Empty if the listener has none.
#[derive(Clone, Debug)]
pub(crate) struct RouteFilters(Box<[Option<Arc<Filters>>]>);

impl RouteFilters {
    /// Merges the chain of a listener with the overrides of a route, of its virtual host and of its clusters.
    pub(crate) fn merge(
        chain: &FilterChain,
        host: &VirtualHost,
        route: &Route,
        forward: &Forward,
    ) -> Self {
        if chain.is_empty() {
            return Self(Box::default());
        }
        let named = named(host, route);
        let merge = |cluster| {
            let overrides = Overrides {
                host: &host.filters,
                route: &route.filters,
                cluster,
            };
            Filters::merge(chain, overrides, &named)
        };
        let common = merge(None);
        let clusters = forward.clusters.names().enumerate();
        let filters = clusters.map(|(place, _)| match forward.clusters.weighted(place) {
            Some(entry) if !entry.filters.is_empty() => merge(Some(&entry.filters)),
            _ => common.clone(),
        });
        Self(filters.collect())
    }

    /// The filters of calls to the cluster in this place of the route; `None` if there are none.
    pub(crate) fn of(&self, place: usize) -> Option<Arc<Filters>> {
        self.0.get(place)?.clone()
    }
}

/// The filters that a call passes, in order; at least one.
#[derive(Debug)]
pub(crate) struct Filters(Box<[Filter]>);

#[derive(Debug)]
enum Filter {
    Custom(String, Arc<dyn HttpFilter>),
    Fault(Fault),
    /// A filter that the program does not have, with the status' text of every call.
    Missing(String),
    StatefulSession(Arc<SessionCookie>),
}

/// The future of a call that passes its filters. The result is the session, if a filter keeps sessions.
type Passage<'a> = Pin<Box<dyn Future<Output = Result<Option<Box<Session>>, Status>> + Send + 'a>>;

/// A call while it passes its filters.
struct Passing<'a> {
    head: &'a mut Request<()>,
    /// The cluster that the call goes to.
    cluster: &'a mut Arc<Lease>,
    /// The clusters that the call may go to instead, if a filter may choose.
    clusters: Option<RouteClusters>,
    deadline: Deadline,
    session: Option<Box<Session>>,
}

impl Filters {
    fn merge(chain: &FilterChain, overrides: Overrides<'_>, route: &str) -> Option<Arc<Self>> {
        let filters = chain.effective(overrides);
        let filters = filters.filter_map(|filter| Filter::new(&filter, route));
        let filters: Box<[_]> = filters.collect();
        (!filters.is_empty()).then(|| Arc::new(Self(filters)))
    }

    /// True if a filter may send calls to another cluster of their route.
    pub(crate) fn may_choose_clusters(&self) -> bool {
        let mut filters = self.0.iter();
        filters.any(|filter| matches!(filter, Filter::StatefulSession(_)))
    }

    /// Passes a call through the filters, which may delay it, change its headers, choose another cluster of its route
    /// or end it. A status of OK ends it too. The session of the call is also for its responses.
    ///
    /// The future is boxed, so that calls without filters do not reserve room for it.
    pub(super) fn run<'a>(
        &'a self,
        head: &'a mut Request<()>,
        routed: &'a mut Routed,
        deadline: Deadline,
    ) -> Passage<'a> {
        let mut call = Passing {
            head,
            cluster: &mut routed.cluster,
            // gRFC A60: other clusters are held until the choice is final.
            clusters: routed.clusters.take(),
            deadline,
            session: None,
        };
        Box::pin(async move {
            for filter in &self.0 {
                filter.run(&mut call).await?;
            }
            Ok(call.session)
        })
    }
}

impl Filter {
    /// `None` for a filter that does nothing.
    fn new(filter: &EffectiveFilter<'_>, route: &str) -> Option<Self> {
        if let Some((set_by, unfit)) = filter.unfit {
            warn!(
                filter = filter.name,
                "{route}: the override of the {set_by} is ignored, because it is for another kind of filter: {unfit}"
            );
        }
        let name = filter.name;
        Some(match filter.config {
            EffectiveConfig::Custom { base, overriding } => match filter::made(base, overriding) {
                Some(made) => Self::Custom(name.to_owned(), made),
                None => Self::Missing(format!("this program has no filter {}", base.filter)),
            },
            EffectiveConfig::Fault(config) => {
                Self::Fault(Fault::new(Arc::clone(config), name, route))
            }
            EffectiveConfig::StatefulSession(cookie) => Self::StatefulSession(Arc::clone(cookie?)),
        })
    }

    async fn run(&self, call: &mut Passing<'_>) -> Result<(), Status> {
        match self {
            Self::Custom(name, filter) => {
                let mut filtered = FilteredCall::new(call.head, &call.cluster.name);
                let passed = filter.on_call(&mut filtered);
                let what = || format!("filter {name}");
                call.deadline.bound(passed, what).await?
            }
            Self::Fault(fault) => fault.inject(call.head.headers(), call.deadline).await,
            Self::Missing(text) => Err(Status::unavailable(text)),
            Self::StatefulSession(cookie) => {
                Session::begin(cookie, call);
                Ok(())
            }
        }
    }
}

/// The route in texts. Most routes have no name.
fn named(host: &VirtualHost, route: &Route) -> String {
    let host = &host.name;
    match route.name.as_str() {
        "" => format!("virtual host {host}"),
        route => format!("virtual host {host}, route {route}"),
    }
}
