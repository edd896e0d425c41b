//! The builder of route configurations.
//!
//! A route configuration is valid until a test breaks it, so that a test names only the part that
//! it is about.

use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
    route::Action, route_action::ClusterSpecifier, route_match::PathSpecifier,
    weighted_cluster::ClusterWeight,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use envoy_types::util::pack_any;

use super::Resource;

/// A route configuration named `name`, without virtual hosts.
pub fn routes(name: &str) -> RoutesBuilder {
    RoutesBuilder(RouteConfiguration {
        name: name.to_owned(),
        ..RouteConfiguration::default()
    })
}

/// Makes a route configuration.
#[derive(Clone, Debug)]
#[must_use]
pub struct RoutesBuilder(RouteConfiguration);

impl RoutesBuilder {
    /// Adds a virtual host for one domain, such as `payments`, `*.example` or `*`. Routes added
    /// from now on are part of it.
    pub fn host(self, domain: &str) -> Self {
        self.hosts(&[domain])
    }

    /// Adds a virtual host for several domains.
    pub fn hosts(mut self, domains: &[&str]) -> Self {
        self.0.virtual_hosts.push(VirtualHost {
            name: domains.join(","),
            domains: domains.iter().map(ToString::to_string).collect(),
            ..VirtualHost::default()
        });
        self
    }

    /// Adds a route from a path prefix (`/` for all) to a cluster.
    pub fn route(self, prefix: &str, cluster: &str) -> Self {
        let cluster = ClusterSpecifier::Cluster(cluster.to_owned());
        self.push(PathSpecifier::Prefix(prefix.to_owned()), cluster)
    }

    /// Adds a route from one path to a cluster.
    pub fn exact(self, path: &str, cluster: &str) -> Self {
        let cluster = ClusterSpecifier::Cluster(cluster.to_owned());
        self.push(PathSpecifier::Path(path.to_owned()), cluster)
    }

    /// Edits the action of the route that was added last.
    pub fn edit_action(mut self, edit: impl FnOnce(&mut RouteAction)) -> Self {
        let host = self.0.virtual_hosts.last_mut();
        let route = host.and_then(|host| host.routes.last_mut());
        if let Some(Action::Route(action)) = route.and_then(|route| route.action.as_mut()) {
            edit(action);
        }
        self
    }

    /// Adds a route from a path prefix to several clusters, each with a weight.
    pub fn split(self, prefix: &str, clusters: &[(&str, u32)]) -> Self {
        let clusters = clusters.iter().map(|(name, weight)| ClusterWeight {
            name: (*name).to_owned(),
            weight: Some(UInt32Value { value: *weight }),
            ..ClusterWeight::default()
        });
        let weighted = ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: clusters.collect(),
            ..WeightedCluster::default()
        });
        self.push(PathSpecifier::Prefix(prefix.to_owned()), weighted)
    }

    /// Edits the condition of the last route.
    pub fn when(mut self, edit: impl FnOnce(&mut RouteMatch)) -> Self {
        let hosts = &mut self.0.virtual_hosts;
        let route = hosts.last_mut().and_then(|host| host.routes.last_mut());
        let route = route.expect("add a route first");
        edit(route.r#match.get_or_insert_default());
        self
    }

    /// Overrides a filter for the virtual host that was added last.
    pub fn host_override(mut self, filter: &str, config: Any) -> Self {
        let host = self.0.virtual_hosts.last_mut().expect("add a host first");
        let overrides = &mut host.typed_per_filter_config;
        overrides.insert(filter.to_owned(), config);
        self
    }

    /// Overrides a filter for the route that was added last.
    pub fn route_override(mut self, filter: &str, config: Any) -> Self {
        let host = self.0.virtual_hosts.last_mut().expect("add a host first");
        let route = host.routes.last_mut().expect("add a route first");
        let overrides = &mut route.typed_per_filter_config;
        overrides.insert(filter.to_owned(), config);
        self
    }

    /// Makes the resource invalid: a virtual host needs a domain.
    pub fn invalid(self) -> Self {
        self.hosts(&[])
    }

    /// Edits the message, for fields that have no method of their own.
    pub fn edit(mut self, edit: impl FnOnce(&mut RouteConfiguration)) -> Self {
        edit(&mut self.0);
        self
    }

    /// The resource as it goes over the wire.
    pub fn any(&self) -> Any {
        pack_any(self.0.clone())
    }

    pub(super) fn into_proto(self) -> RouteConfiguration {
        self.0
    }

    fn push(mut self, path: PathSpecifier, cluster: ClusterSpecifier) -> Self {
        let host = self.0.virtual_hosts.last_mut().expect("add a host first");
        host.routes.push(Route {
            r#match: Some(RouteMatch {
                path_specifier: Some(path),
                ..RouteMatch::default()
            }),
            action: Some(Action::Route(RouteAction {
                cluster_specifier: Some(cluster),
                ..RouteAction::default()
            })),
            ..Route::default()
        });
        self
    }
}

impl Resource for RoutesBuilder {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn any(&self) -> Any {
        self.any()
    }
}
