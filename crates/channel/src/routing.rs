//! Which cluster a call goes to.

use std::sync::Arc;

use crowfly_model::grpc::route::{PathMatcher, RouteAction};
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

/// The routes of one configuration, each with its cluster at hand.
#[derive(Debug)]
pub(crate) struct Router {
    /// The route configuration and the virtual host, as errors name them.
    name: String,
    routes: Box<[(PathMatcher, Destination)]>,
    skipped: Vec<String>,
    notes: Option<String>,
}

#[derive(Clone, Debug)]
enum Destination {
    Cluster(Arc<Lease>),
    /// A route that a proxy would answer itself (gRFC A28: an inappropriate action).
    NonForwarding,
}

impl Routing {
    /// Before anything is known.
    pub(crate) fn nothing() -> Self {
        Self::Waiting("a configuration".into())
    }
}

impl Router {
    /// Compiles a config. `lease` knows every cluster the config routes to.
    pub(crate) fn new(
        config: &XdsConfig,
        mut lease: impl FnMut(&str) -> Option<Arc<Lease>>,
    ) -> Self {
        let virtual_host = &config.virtual_host;
        let routes = virtual_host.routes.iter().filter_map(|route| {
            let destination = match &route.action {
                RouteAction::Cluster(name) => Destination::Cluster(lease(name)?),
                RouteAction::NonForwarding => Destination::NonForwarding,
            };
            Some((route.path.clone(), destination))
        });
        Self {
            name: format!(
                "route configuration {}, virtual host {}",
                config.routes.name, virtual_host.name
            ),
            routes: routes.collect(),
            skipped: virtual_host
                .skipped
                .iter()
                .map(ToString::to_string)
                .collect(),
            notes: joined(&config.notes),
        }
    }

    /// The cluster for a path: the first route that matches decides (gRFC A28). The error is what
    /// the call fails with.
    pub(crate) fn route(&self, path: &str) -> Result<Arc<Lease>, String> {
        let matching = self
            .routes
            .iter()
            .find(|(matcher, _)| matcher.matches(path));
        match matching {
            Some((_, Destination::Cluster(lease))) => Ok(Arc::clone(lease)),
            Some((_, Destination::NonForwarding)) => Err(format!(
                "{}: the route for {path} does not lead to a cluster",
                self.name
            )),
            None => Err(self.no_match(path)),
        }
    }

    fn no_match(&self, path: &str) -> String {
        let mut text = format!("{}: no route matches {path}", self.name);
        if !self.skipped.is_empty() {
            text = format!("{text} (skipped: {})", self.skipped.join("; "));
        }
        self.with_notes(text)
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
