//! Makes the explanation of a call from the resources in the view.
//!
//! The view has parts even while the configuration is incomplete. The channel's own code makes every choice among
//! those parts, because a second implementation could explain what the channel does not do.

use std::{collections::BTreeSet, sync::Arc};

use crowfly::{Forecast, forecast};
use crowfly_model::grpc::{
    Listener, RouteConfig,
    endpoints::{Endpoints, Health},
    listener::{ApiListener, ListenerKind, RouteSource},
};
use crowfly_xds::{ResolveRoots, Resolved, View, XdsConfig};

use super::{
    Destination, ExplainedCall, Explanation, ResourceReport, RouteReport, Stop, Uses, Verdict,
    VirtualHostReport, cluster, look, routes, wishes::Wishes,
};

/// Explains where `call` goes, from the resources in `view` and the result of resolution.
pub fn explain(
    call: &ExplainedCall,
    view: &View,
    roots: &ResolveRoots,
    resolved: &Resolved,
) -> Explanation {
    let (mut listener, value) = look::resource::<Listener>(view, &roots.listener);
    if let Some(value) = &value {
        // Unsupported fields of inline routes are shown at the routes.
        listener.unsupported = value.unsupported.iter().map(ToString::to_string).collect();
    }
    let (route_configuration, config) = match &value {
        Some(value) => routes_of(view, &listener, value),
        None => (None, None),
    };
    let host = config
        .as_ref()
        .and_then(|config| config.virtual_host(&roots.authority));
    let wishes = config.as_ref().zip(host);
    let wishes = wishes.map_or_else(Wishes::default, |(config, host)| Wishes::of(config, host));
    let api = value.as_deref().and_then(api_of);
    let routes = host.zip(api);
    let routes = routes.map_or_else(Vec::new, |(host, api)| {
        routes::of_host(host, &wishes, api, call)
    });
    let mut explanation = Explanation {
        target: call.target.clone(),
        node: view.node().to_string(),
        authority: roots.authority.to_string(),
        path: call.path.clone(),
        headers: call.headers.clone(),
        reachable: false,
        stop: None,
        waiting_for: match resolved {
            Resolved::Waiting { missing, .. } => missing.0.iter().cloned().collect(),
            _ => Vec::new(),
        },
        listener,
        route_configuration,
        virtual_host: host.map(|host| VirtualHostReport {
            name: host.name.clone(),
            domains: host.domains.iter().map(ToString::to_string).collect(),
            unsupported: wishes.of_host(),
        }),
        clusters: destinations(view, &routes, resolved),
        routes,
    };
    explanation.stop = match resolved {
        Resolved::Error(error) => Some(Stop::no_config(error, config.as_deref())),
        Resolved::Ready(_) => explanation.dead_end(),
        Resolved::Waiting { missing, .. } => Some(Stop::waiting(missing)),
    };
    explanation.reachable = explanation.stop.is_none();
    explanation
}

impl Explanation {
    /// The reason why the call goes nowhere, although there is a configuration.
    fn dead_end(&self) -> Option<Stop> {
        let host = self.virtual_host.as_ref()?;
        if let Some(path) = &self.path {
            let mut taken = self.routes.iter().filter(|route| route.is_open());
            if let Some(route) = taken.find(|route| route.clusters.is_empty()) {
                return Some(Stop::not_forwarded(route));
            }
            let is_certain = |route: &RouteReport| route.verdict == Some(Verdict::Matches);
            if !self.routes.iter().any(is_certain) {
                return Some(Stop::no_route(host, path, &self.routes));
            }
        } else if self.clusters.is_empty() {
            return Some(Stop::no_cluster(host));
        }
        self.clusters
            .iter()
            .find_map(|cluster| cluster.stop.clone())
    }
}

fn routes_of(
    view: &View,
    found: &ResourceReport,
    listener: &Listener,
) -> (Option<ResourceReport>, Option<Arc<RouteConfig>>) {
    match &listener.kind {
        ListenerKind::Socket => (None, None),
        ListenerKind::Api(api) => match &api.routes {
            RouteSource::Inline(routes) => {
                let mut resource = ResourceReport::new(&routes.name, "INLINE");
                resource.version.clone_from(&found.version);
                (Some(resource), Some(Arc::clone(routes)))
            }
            RouteSource::Rds(name) => {
                let (mut resource, routes) = look::resource::<RouteConfig>(view, name);
                // All are in virtual hosts, and told there.
                resource.unsupported.clear();
                (Some(resource), routes)
            }
        },
    }
}

/// The part of a listener that is for clients.
fn api_of(listener: &Listener) -> Option<&ApiListener> {
    match &listener.kind {
        ListenerKind::Api(api) => Some(api),
        ListenerKind::Socket => None,
    }
}

fn destinations(view: &View, routes: &[RouteReport], resolved: &Resolved) -> Vec<Destination> {
    let config = match resolved {
        Resolved::Ready(config) => Some(&**config),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    let wanted = routes
        .iter()
        .filter(|route| route.is_open())
        .flat_map(|route| &route.clusters)
        .map(|split| &*split.cluster);
    wanted
        .filter(|name| seen.insert(*name))
        .map(|name| destination(view, name, config))
        .collect()
}

fn destination(view: &View, name: &str, config: Option<&XdsConfig>) -> Destination {
    let found = config.and_then(|config| Some((config, config.clusters.get(name)?)));
    let (uses, stop) = match found {
        None => (None, None),
        Some((_, Err(error))) => (None, Some(Stop::cluster(error))),
        Some((config, Ok(state))) => match forecast(config, name) {
            None => (None, None),
            Some(Forecast::Dropped { leaf, category }) => {
                (None, Some(Stop::dropped(&leaf, category.as_deref())))
            }
            Some(Forecast::Failing(why)) => (None, Some(Stop::no_endpoint(state, config, &why))),
            Some(Forecast::Sent { leaf, share }) => (first_choice(&leaf, share, config), None),
        },
    };
    Destination {
        uses,
        stop,
        cluster: cluster::tree(view, name),
    }
}

/// The first priority of a leaf with an endpoint that may get calls.
fn first_choice(leaf: &str, share: f64, config: &XdsConfig) -> Option<Uses> {
    let state = config.clusters.get(leaf)?.as_ref().ok()?;
    let (priority, endpoints) = best_priority(state.endpoints()?)?;
    Some(Uses {
        cluster: leaf.to_owned(),
        priority,
        endpoints,
        dropped_per_million: ((1.0 - share) * 1e6).round() as u32,
    })
}

/// A draining endpoint gets no new calls (gRFC A55).
pub(super) fn best_priority(endpoints: &Endpoints) -> Option<(usize, usize)> {
    let counts = endpoints.priorities.iter().map(|localities| {
        let all = localities.iter().flat_map(|locality| &locality.endpoints);
        all.filter(|endpoint| endpoint.health != Health::Draining)
            .count()
    });
    counts.enumerate().find(|(_, count)| *count > 0)
}
