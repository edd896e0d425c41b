//! The HTTP filters of a call (gRFC A39).
//!
//! A call passes them once, between its route and its first pick, so they are above retries. The filters of a route
//! are merged from the listener's chain and the overrides when a configuration is applied, and not for each call. A
//! configuration whose only filter is the router has none, and its calls pay nothing.

mod fault;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crowfly_model::grpc::filter::{EffectiveConfig, EffectiveFilter, FilterChain, Overrides};
use crowfly_model::grpc::route::{Forward, Route, VirtualHost};
use http::Request;
use tonic::Status;
use tracing::warn;

use self::fault::Fault;
use crate::clusters::Cluster;
use crate::deadline::Deadline;
use crate::filter::{self, FilteredCall, HttpFilter};

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
}

impl Filters {
    fn merge(chain: &FilterChain, overrides: Overrides<'_>, route: &str) -> Option<Arc<Self>> {
        let filters = chain.effective(overrides);
        let filters: Box<[_]> = filters.map(|filter| Filter::new(&filter, route)).collect();
        (!filters.is_empty()).then(|| Arc::new(Self(filters)))
    }

    /// Passes a call through the filters, which may delay it, change its headers or end it. A status of OK ends it
    /// too.
    ///
    /// The future is boxed, so that calls without filters do not reserve room for it.
    pub(super) fn run<'a>(
        &'a self,
        head: &'a mut Request<()>,
        cluster: &'a Cluster,
        deadline: Deadline,
    ) -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>> {
        Box::pin(async move {
            for filter in &self.0 {
                filter.run(head, cluster, deadline).await?;
            }
            Ok(())
        })
    }
}

impl Filter {
    fn new(filter: &EffectiveFilter<'_>, route: &str) -> Self {
        if let Some((set_by, unfit)) = filter.unfit {
            warn!(
                filter = filter.name,
                "{route}: the override of the {set_by} is ignored, because it is for another kind of filter: {unfit}"
            );
        }
        let name = filter.name;
        match filter.config {
            EffectiveConfig::Custom { base, overriding } => match filter::made(base, overriding) {
                Some(made) => Self::Custom(name.to_owned(), made),
                None => Self::Missing(format!("this program has no filter {}", base.filter)),
            },
            EffectiveConfig::Fault(config) => {
                Self::Fault(Fault::new(Arc::clone(config), name, route))
            }
        }
    }

    async fn run(
        &self,
        head: &mut Request<()>,
        cluster: &Cluster,
        deadline: Deadline,
    ) -> Result<(), Status> {
        match self {
            Self::Custom(name, filter) => {
                let mut call = FilteredCall::new(head, &cluster.name);
                let passed = filter.on_call(&mut call);
                deadline.bound(passed, || format!("filter {name}")).await?
            }
            Self::Fault(fault) => fault.inject(head.headers(), deadline).await,
            Self::Missing(text) => Err(Status::unavailable(text)),
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
