//! The choice of a cluster for a call.
//!
//! The routes of a configuration are compiled once ([`Routes`]). When calls may use the routes, leases of their
//! clusters are bound to them ([`Router`]). A configuration that differs in endpoints alone changes neither, because
//! routes change seldom and endpoints often.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_model::grpc::filter::FilterChain;
use crowfly_model::grpc::listener::ListenerKind;
use crowfly_model::grpc::route::{CallHead, Forward, MaxDuration, RouteAction, RouteTable};
use crowfly_xds::{ResourceError, XdsConfig};
use http::Request;

use crate::call::{Filters, RouteFilters};
use crate::clusters::Lease;
use crate::deadline::{LimitSetter, TimeLimit};
use crate::request_headers::RequestHeaders;

/// The state of a channel's routing. The state is replaced as a whole, so that a call never sees parts of two
/// configurations (gRFC A74).
#[derive(Debug)]
pub(crate) enum Routing {
    /// The channel can never work: every call fails.
    Broken(Arc<str>),
    /// The channel has no configuration, for this reason. A later one may work.
    Failed(Arc<str>),
    /// The channel is idle. The next call has to ask for a configuration.
    Idle,
    /// The channel has a configuration.
    Ready(Router),
    /// The channel has no configuration yet, because these resources are missing.
    Waiting(Arc<str>),
}

impl Routing {
    /// The routing of a channel that has just begun.
    pub(crate) fn nothing() -> Self {
        Self::Waiting("a configuration".into())
    }
}

/// The routes of a virtual host, compiled, with the names of the clusters that they lead to.
#[derive(Debug)]
pub(crate) struct Routes {
    /// The route configuration, as errors name it.
    config_name: String,
    /// The longest time for calls on routes that set none.
    max_duration: MaxDuration,
    /// The filters of the listener, which are merged into the destinations.
    filters: FilterChain,
    table: RouteTable<Destination>,
    /// The clusters in order, each once.
    clusters: Box<[Arc<str>]>,
}

#[derive(Clone, Debug)]
enum Destination {
    /// For each cluster of the action, its place in [`Routes::clusters`]; the action; and the filters.
    Forward(Arc<[usize]>, Arc<Forward>, RouteFilters),
    /// A route that a proxy would answer itself (gRFC A28: an inappropriate action).
    NonForwarding,
}

impl Routes {
    /// Compiles the routes of a configuration.
    pub(crate) fn compile(config: &XdsConfig) -> Self {
        let mut places: BTreeMap<&str, usize> = config.routed().map(|name| (name, 0)).collect();
        for (place, (_, found)) in places.iter_mut().enumerate() {
            *found = place;
        }
        let filters = filters(config);
        let host = &config.virtual_host;
        let table = RouteTable::compile(host, |route| match &route.action {
            RouteAction::Forward(forward) => {
                let places = forward.clusters.names().map(|name| places[name]);
                let filters = RouteFilters::merge(&filters, host, route, forward);
                Destination::Forward(places.collect(), Arc::clone(forward), filters)
            }
            RouteAction::NonForwarding => Destination::NonForwarding,
        });
        Self {
            config_name: config.routes.name.clone(),
            max_duration: max_duration(config),
            filters,
            table,
            clusters: places.into_keys().map(Arc::from).collect(),
        }
    }

    /// True if these are the compiled routes of `config`, so that compiling again would change nothing.
    pub(crate) fn are_of(&self, config: &XdsConfig) -> bool {
        let known = self.table.host();
        self.config_name == config.routes.name
            && self.max_duration == max_duration(config)
            && self.filters == filters(config)
            && (Arc::ptr_eq(known, &config.virtual_host) || *known == config.virtual_host)
    }

    /// The clusters that the routes lead to, in order, each once.
    pub(crate) fn clusters(&self) -> &[Arc<str>] {
        &self.clusters
    }

    /// True if a route leads to this cluster.
    pub(crate) fn lead_to(&self, cluster: &str) -> bool {
        let found = self.clusters.binary_search_by(|name| (**name).cmp(cluster));
        found.is_ok()
    }
}

/// Compiled routes with a lease of each cluster. Calls are routed by it.
#[derive(Debug)]
pub(crate) struct Router {
    routes: Arc<Routes>,
    /// The leases, one for each of [`Routes::clusters`].
    leases: Arc<[Arc<Lease>]>,
    notes: Option<String>,
}

impl Router {
    /// Binds leases to routes, one for each of [`Routes::clusters`]. The notes are those of the
    /// configuration.
    pub(crate) fn new(
        routes: Arc<Routes>,
        leases: Arc<[Arc<Lease>]>,
        notes: &[ResourceError],
    ) -> Self {
        Self {
            routes,
            leases,
            notes: joined(notes),
        }
    }

    /// True if the router has these compiled routes and these notes, so that a new one would be equal.
    pub(crate) fn is_for(&self, routes: &Arc<Routes>, notes: &[ResourceError]) -> bool {
        Arc::ptr_eq(&self.routes, routes) && self.notes == joined(notes)
    }

    /// True if both routers have the same compiled routes.
    pub(crate) fn has_routes_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routes, &other.routes)
    }

    /// The cluster for a call, and the settings to send the call with. The error is the text of the call's failure.
    ///
    /// Every share of calls and every split draws a number of its own. One number for all would make
    /// them depend on each other: a share of 10 % would get the first cluster of its split alone.
    pub(crate) fn route(&self, head: &Request<()>) -> Result<Routed, String> {
        let draw = || fastrand::u64(..);
        let headers = RequestHeaders(head.headers());
        let call = CallHead {
            path: head.uri().path(),
            headers: &headers,
        };
        match self.routes.table.find(&call, draw) {
            Ok(Destination::Forward(places, forward, filters)) => {
                let entry = forward.clusters.choose(draw);
                let filters = filters.of(entry);
                let may_choose = filters.as_ref().is_some_and(|f| f.may_choose_clusters());
                Ok(Routed {
                    cluster: Arc::clone(&self.leases[places[entry]]),
                    clusters: may_choose.then(|| RouteClusters {
                        places: Arc::clone(places),
                        leases: Arc::clone(&self.leases),
                    }),
                    limit: self.limit(forward),
                    filters,
                    forward: Arc::clone(forward),
                })
            }
            Ok(Destination::NonForwarding) => {
                let (host, path) = (&self.routes.table.host().name, call.path);
                let reason = format!("the route for {path} does not lead to a cluster");
                Err(self.named(&format!("virtual host {host}: {reason}")))
            }
            Err(no_route) => Err(self.with_notes(self.named(&no_route.to_string()))),
        }
    }

    /// The time that the configuration allows for a call on a route (gRFC A31).
    fn limit(&self, route: &Forward) -> Option<TimeLimit> {
        let (max, set_by) = match route.max_duration {
            MaxDuration::Unset => (self.routes.max_duration, LimitSetter::Listener),
            set => (set, LimitSetter::Route),
        };
        let time = max.limit()?;
        Some(TimeLimit { time, set_by })
    }

    fn named(&self, text: &str) -> String {
        let name = &self.routes.config_name;
        format!("route configuration {name}, {text}")
    }

    /// Adds the notes: errors of listener and routes that leave the last good ones in use (gRFC A88).
    pub(crate) fn with_notes(&self, text: String) -> String {
        match &self.notes {
            Some(notes) => format!("{text} ({notes})"),
            None => text,
        }
    }
}

/// The route of a call. The call keeps it for all of its attempts (gRFC A31).
#[derive(Debug)]
pub(crate) struct Routed {
    /// The lease keeps the cluster until the call needs no more attempts.
    pub(crate) cluster: Arc<Lease>,
    /// The clusters of the route, for filters that may choose among them.
    pub(crate) clusters: Option<RouteClusters>,
    /// The time that the configuration allows for the call.
    pub(crate) limit: Option<TimeLimit>,
    /// The filters that the call passes before it is balanced; `None` if there are none.
    pub(crate) filters: Option<Arc<Filters>>,
    /// Everything else that the route decides.
    pub(crate) forward: Arc<Forward>,
}

/// The clusters that a route leads to. The value holds leases, so that no cluster is removed before a filter has chosen
/// (gRFC A60).
#[derive(Debug)]
pub(crate) struct RouteClusters {
    /// For each cluster, the place of its lease.
    places: Arc<[usize]>,
    leases: Arc<[Arc<Lease>]>,
}

impl RouteClusters {
    /// The cluster of this name, if the route leads to it.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Lease>> {
        let mut leases = self.places.iter().map(|place| &self.leases[*place]);
        leases.find(|lease| *lease.name == *name)
    }
}

/// The longest time that the listener of a configuration allows for calls.
fn max_duration(config: &XdsConfig) -> MaxDuration {
    match &config.listener.kind {
        ListenerKind::Api(api) => api.max_duration,
        ListenerKind::Socket => MaxDuration::Unset,
    }
}

/// The filters of a configuration's listener.
fn filters(config: &XdsConfig) -> FilterChain {
    match &config.listener.kind {
        ListenerKind::Api(api) => api.filters.clone(),
        ListenerKind::Socket => FilterChain::default(),
    }
}

/// Notes as one text; `None` if there are none. The call that fails with them names the node.
pub(crate) fn joined(notes: &[ResourceError]) -> Option<String> {
    let texts: Vec<String> = notes.iter().map(ResourceError::without_node).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
