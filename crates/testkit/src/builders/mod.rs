//! Builders that make an xDS resource in one readable line, because the messages themselves take a
//! page each.
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
mod cluster_config;
mod endpoints;
mod listener;
mod policy;
mod routes;
mod sessions;
mod tls;

use std::sync::Arc;

use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier,
};
use envoy_types::pb::google::protobuf::Any;

use crate::wire::wrapped;

pub use cluster::{ClusterBuilder, cluster};
pub use cluster_config::{ClusterConfigBuilder, cluster_config};
pub use endpoints::{EndpointBuilder, EndpointsBuilder, endpoint, endpoints};
pub use listener::{ListenerBuilder, listener};
pub use policy::{custom_policy, wrr_locality};
pub use routes::{RoutesBuilder, routes};
pub use sessions::{SessionsBuilder, no_sessions, sessions};
pub use tls::{TlsBuilder, upstream_tls};

/// A resource that a builder makes.
pub trait Resource {
    /// The name of the resource.
    fn name(&self) -> String;
    /// The resource as it goes over the wire.
    fn any(&self) -> Any;

    /// True if the resource is sent in a `Resource` wrapper even in state of the world, because its
    /// message has no field for the name.
    fn is_wrapped(&self) -> bool {
        false
    }

    /// The resource as a state-of-the-world response carries it.
    fn in_sotw(&self) -> Any {
        if self.is_wrapped() {
            wrapped(&self.name(), self.any())
        } else {
            self.any()
        }
    }
}

/// A set of resources of any types.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Resources(Vec<Item>);

#[derive(Clone, Debug)]
struct Item {
    name: String,
    any: Any,
    wrapped: bool,
}

impl Resources {
    /// An empty set.
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
        let item = Item {
            name: resource.name(),
            any: resource.any(),
            wrapped: resource.is_wrapped(),
        };
        self.0.retain(|other| !other.is_the_same_as(&item));
        self.0.push(item);
        self
    }

    /// Removes every resource named `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|item| item.name != name);
        self
    }

    /// The resources as a server holds them.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut builder = Snapshot::builder();
        for Item { name, any, wrapped } in &self.0 {
            let added = if *wrapped {
                builder.add_wrapped(name.as_str(), any.clone())
            } else {
                builder.add(name.as_str(), any.clone())
            };
            added.expect("names are unique here");
        }
        Arc::new(builder.build())
    }
}

impl Item {
    fn is_the_same_as(&self, other: &Self) -> bool {
        (&self.name, &self.any.type_url) == (&other.name, &other.any.type_url)
    }
}

/// The config source that means the ADS stream on which the resource came.
fn ads() -> Option<ConfigSource> {
    Some(ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    })
}
