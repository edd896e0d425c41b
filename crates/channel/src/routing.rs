//! Which cluster a call goes to, and what that cluster's balancer says at the moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_lb::Picker;
use crowfly_model::grpc::route::{PathMatcher, RouteAction};
use crowfly_xds::XdsConfig;

use crate::published::Published;
use crate::transport::Sender;

/// What the channel knows about where calls go; replaced whole (gRFC A74).
#[derive(Debug)]
pub(crate) enum Routing {
    /// The channel can never work: every call fails.
    Broken(Arc<str>),
    /// There is no configuration, for this reason; it may heal.
    Failed(Arc<str>),
    /// There is one.
    Ready(Router),
    /// There is none yet: these resources are missing.
    Waiting(Arc<str>),
}

/// The routes of one configuration, each with its cluster at hand.
#[derive(Debug)]
pub(crate) struct Router {
    virtual_host: String,
    routes: Vec<(PathMatcher, Destination)>,
    skipped: Vec<String>,
}

#[derive(Clone, Debug)]
enum Destination {
    Cluster(Arc<Cluster>),
    /// A route that a proxy would answer itself (gRFC A28: an inappropriate action).
    NonForwarding,
}

impl Router {
    /// Compiles a config. `clusters` holds every cluster the config routes to.
    pub(crate) fn new(config: &XdsConfig, clusters: &BTreeMap<String, Arc<Cluster>>) -> Self {
        let virtual_host = &config.virtual_host;
        let routes = virtual_host.routes.iter().filter_map(|route| {
            let destination = match &route.action {
                RouteAction::Cluster(name) => Destination::Cluster(clusters.get(name)?.clone()),
                RouteAction::NonForwarding => Destination::NonForwarding,
            };
            Some((route.path.clone(), destination))
        });
        Self {
            virtual_host: virtual_host.name.clone(),
            routes: routes.collect(),
            skipped: virtual_host
                .skipped
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// The cluster for a path: the first route that matches decides (gRFC A28). The error is what
    /// the call fails with.
    pub(crate) fn route(&self, path: &str) -> Result<Arc<Cluster>, String> {
        let matching = self
            .routes
            .iter()
            .find(|(matcher, _)| matcher.matches(path));
        match matching {
            Some((_, Destination::Cluster(cluster))) => Ok(Arc::clone(cluster)),
            Some((_, Destination::NonForwarding)) => Err(format!(
                "virtual host {}: the route for {path} does not lead to a cluster",
                self.virtual_host
            )),
            None => Err(self.no_match(path)),
        }
    }

    fn no_match(&self, path: &str) -> String {
        let mut text = format!(
            "virtual host {}: no route matches {path}",
            self.virtual_host
        );
        if !self.skipped.is_empty() {
            text = format!("{text} (skipped: {})", self.skipped.join("; "));
        }
        text
    }
}

/// A cluster that calls pick from. It keeps its identity from config to config.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) balancing: Published<Balancing>,
}

/// What a cluster's balancer says.
#[derive(Debug)]
pub(crate) enum Balancing {
    Live(Arc<Picker<Sender>>),
    /// It has not spoken yet.
    Pending,
    /// The cluster has left the configuration: ask for the route again.
    Removed,
}

impl Cluster {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            balancing: Published::new(Balancing::Pending),
        }
    }
}
