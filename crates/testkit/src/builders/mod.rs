//! xDS resources in one readable line each.
//!
//! ```
//! use crowfly_testkit::builders::{cluster, endpoints, listener, routes, Resources};
//!
//! let resources = Resources::new()
//!     .with(listener("payments").rds("payments-routes"))
//!     .with(routes("payments-routes").host("*").route("/", "blue"))
//!     .with(cluster("blue").eds("blue-eds"))
//!     .with(endpoints("blue-eds").locality("eu/a", 1, ["127.0.0.1:80"]));
//! assert_eq!(resources.snapshot().types().count(), 4);
//! ```

mod cluster;
mod endpoints;
mod listener;
mod routes;

use std::sync::Arc;

use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier,
};
use envoy_types::pb::google::protobuf::Any;

pub use cluster::{ClusterBuilder, cluster};
pub use endpoints::{EndpointBuilder, EndpointsBuilder, endpoint, endpoints};
pub use listener::{ListenerBuilder, listener};
pub use routes::{RoutesBuilder, routes};

/// A resource that a builder makes.
pub trait Resource {
    /// Its name.
    fn name(&self) -> String;
    /// The resource as it goes over the wire.
    fn any(&self) -> Any;
}

/// A set of resources of any types.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Resources(Vec<(String, Any)>);

impl Resources {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listener `name`, its routes `name-routes`, cluster `name-cluster` and endpoints `name-eds`:
    /// everything a channel to `xds:///name` needs. All addresses are in one locality.
    pub fn service<E: Into<EndpointBuilder>>(
        name: &str,
        addresses: impl IntoIterator<Item = E>,
    ) -> Self {
        let [routes_name, cluster_name, eds_name] =
            ["routes", "cluster", "eds"].map(|what| format!("{name}-{what}"));
        Self::new()
            .with(listener(name).rds(&routes_name))
            .with(routes(&routes_name).host("*").route("/", &cluster_name))
            .with(cluster(&cluster_name).eds(&eds_name))
            .with(endpoints(&eds_name).locality("region/zone", 1, addresses))
    }

    /// Adds a resource, in place of one of the same type and name.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "builders read better as values"
    )]
    pub fn with(mut self, resource: impl Resource) -> Self {
        let (name, any) = (resource.name(), resource.any());
        self.0
            .retain(|(n, a)| (n, &a.type_url) != (&name, &any.type_url));
        self.0.push((name, any));
        self
    }

    /// Takes away every resource named `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(n, _)| n != name);
        self
    }

    /// The resources as a server holds them.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut builder = Snapshot::builder();
        for (name, any) in &self.0 {
            builder
                .add(name.as_str(), any.clone())
                .expect("names are unique here");
        }
        Arc::new(builder.build())
    }
}

/// "From the stream that this came on."
fn ads() -> Option<ConfigSource> {
    Some(ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    })
}
