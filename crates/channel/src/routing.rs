//! Which cluster a call goes to.
//!
//! Routes change seldom, and endpoints often. So the routes of a configuration are compiled once
//! ([`Routes`]), and leases of their clusters are bound to them when calls are let in ([`Router`]):
//! a configuration that differs in endpoints alone changes neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_model::grpc::route::{RouteAction, RouteTable};
use crowfly_xds::{ResourceError, XdsConfig};

use crate::clusters::Lease;

/// What the channel knows about where calls go; replaced whole (gRFC A74).
#[derive(Debug)]
pub(crate) enum Routing {
    /// The channel can never work: every call fails.
    Broken(Arc<str>),
    /// There is no configuration, for this reason; it may heal.
    Failed(Arc<str>),
    /// There was no call for a while: the next one has to ask for a configuration.
    Idle,
    /// There is one.
    Ready(Router),
    /// There is none yet: these resources are missing.
    Waiting(Arc<str>),
}

impl Routing {
    /// Before anything is known.
    pub(crate) fn nothing() -> Self {
        Self::Waiting("a configuration".into())
    }
}

/// The routes of a virtual host, compiled, with the names of the clusters that they lead to.
#[derive(Debug)]
pub(crate) struct Routes {
    /// The route configuration, as errors name it.
    config_name: String,
    table: RouteTable<Destination>,
    /// In order, each once.
    clusters: Box<[Arc<str>]>,
}

#[derive(Clone, Copy, Debug)]
enum Destination {
    /// Its place in [`Routes::clusters`].
    Cluster(usize),
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
        let table = RouteTable::compile(&config.virtual_host, |route| match &route.action {
            RouteAction::Cluster(name) => Destination::Cluster(places[name.as_str()]),
            RouteAction::NonForwarding => Destination::NonForwarding,
        });
        Self {
            config_name: config.routes.name.clone(),
            table,
            clusters: places.into_keys().map(Arc::from).collect(),
        }
    }

    /// Whether compiling the routes of this configuration would make no difference.
    pub(crate) fn are_of(&self, config: &XdsConfig) -> bool {
        let known = self.table.host();
        self.config_name == config.routes.name
            && (Arc::ptr_eq(known, &config.virtual_host) || *known == config.virtual_host)
    }

    /// The clusters that the routes lead to, in order, each once.
    pub(crate) fn clusters(&self) -> &[Arc<str>] {
        &self.clusters
    }

    /// Whether a route leads to this cluster.
    pub(crate) fn lead_to(&self, cluster: &str) -> bool {
        let found = self.clusters.binary_search_by(|name| (**name).cmp(cluster));
        found.is_ok()
    }
}

/// Routes with their clusters at hand: what calls are routed by.
#[derive(Debug)]
pub(crate) struct Router {
    routes: Arc<Routes>,
    /// One for each of [`Routes::clusters`].
    leases: Box<[Arc<Lease>]>,
    notes: Option<String>,
}

impl Router {
    /// Binds leases to routes, one for each of [`Routes::clusters`]. The notes are those of the
    /// configuration.
    pub(crate) fn new(
        routes: Arc<Routes>,
        leases: Box<[Arc<Lease>]>,
        notes: &[ResourceError],
    ) -> Self {
        Self {
            routes,
            leases,
            notes: joined(notes),
        }
    }

    /// Whether it has these very routes and says these notes, so that a new one would be no other.
    pub(crate) fn is_for(&self, routes: &Arc<Routes>, notes: &[ResourceError]) -> bool {
        Arc::ptr_eq(&self.routes, routes) && self.notes == joined(notes)
    }

    /// Whether both were made of the same compiled routes.
    #[cfg(test)]
    pub(crate) fn has_routes_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routes, &other.routes)
    }

    /// The cluster for a path. The error is what the call fails with.
    pub(crate) fn route(&self, path: &str) -> Result<Arc<Lease>, String> {
        match self.routes.table.find(path) {
            Ok(Destination::Cluster(place)) => Ok(Arc::clone(&self.leases[*place])),
            Ok(Destination::NonForwarding) => {
                let host = &self.routes.table.host().name;
                let reason = format!("the route for {path} does not lead to a cluster");
                Err(self.named(&format!("virtual host {host}: {reason}")))
            }
            Err(no_route) => Err(self.with_notes(self.named(&no_route.to_string()))),
        }
    }

    fn named(&self, text: &str) -> String {
        let name = &self.routes.config_name;
        format!("route configuration {name}, {text}")
    }

    /// Adds what is wrong with listener and routes without being fatal (gRFC A88).
    pub(crate) fn with_notes(&self, text: String) -> String {
        match &self.notes {
            Some(notes) => format!("{text} ({notes})"),
            None => text,
        }
    }
}

/// Notes as one text; `None` if there are none. The call that fails with them names the node.
pub(crate) fn joined(notes: &[ResourceError]) -> Option<String> {
    let texts: Vec<String> = notes.iter().map(ResourceError::without_node).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
