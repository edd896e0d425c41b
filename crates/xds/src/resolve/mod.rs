//! From watched resources to one whole configuration (gRFC A74).
//!
//! [`resolve`] is a function of the resources at one instant. It says what must be watched, and
//! gives the configuration once every piece of it has data or an error. It never gives an
//! incomplete one, so no call sees a route whose cluster is missing. [`Resolver`] gives the same
//! answers for one change after the other, and its work is in proportion to the change.
//!
//! # While the next configuration is not whole
//! The configuration in use goes on serving, and its clusters are kept up to date. A cluster that
//! is complete is taken as it is now, and one that is not as it was. An aggregate is complete when
//! all of its leaves are. So a route configuration or a cluster that never arrives does not hold
//! back new endpoints of the clusters in use. The user of a configuration must [hold](ResolveRoots::held)
//! the clusters that it routes to, because otherwise they are no longer watched.
//!
//! # Aggregate clusters
//! An aggregate stands for the clusters below it (gRFC A37), which are found depth first. Each
//! cluster is taken once, at its first place, and a circle adds nothing. A cluster that does not
//! exist is left out and noted (gRFC A74), and the others go on serving. A leaf without data is
//! waited for even if no call would need it, because the configuration would not be complete. An
//! aggregate is at depth 0. A cluster at depth [`MAX_DEPTH`] below it makes it fail, regardless of
//! its other clusters.
//!
//! # Aggregate-cluster resources
//! gRFC A99 lets an aggregate name a resource that holds its list, and leaves some cases open. This
//! crate decides them as follows:
//! - A list in error is an error of that aggregate alone, like an error of its Cluster resource. If
//!   the aggregate is inside another one, it is left out there and noted.
//! - An ambient error of a list (a refused update, an unreachable server) changes nothing: the last
//!   list is used, and the error is noted.
//! - A Cluster may change from an inline list to a resource, or from one resource to another. The
//!   last configuration then serves until the new list arrives, as when a listener names other
//!   routes.
//! - Aggregates that name the same resource share one watch, which ends with the last of them.
//! - A list is never deleted by its absence from a response, because it is asked for by name, like
//!   routes and endpoints. A server withdraws it in delta by removing it, and in state of the world
//!   by letting it time out.
//! - The resource is asked for from the server that the aggregate came from (ADS or self). A
//!   Cluster that names any other source is refused.

mod base;
mod cluster;
mod config;
mod graph;
mod look;
mod resolver;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use crowfly_model::grpc::cluster::DnsName;

pub use self::config::{
    ClusterError, ClusterResult, ClusterState, MAX_DEPTH, Members, Missing, ResolveError, XdsConfig,
};
use self::graph::Graph;
pub use self::resolver::{Resolver, Step};
pub use self::view::{Seen, View};
use crate::kind::Key;

/// The inputs of resolution that are not resources: the names from which it starts.
#[derive(Clone, Debug)]
pub struct ResolveRoots {
    /// The name of the listener: the service in the channel's target.
    pub listener: Arc<str>,
    /// The data-plane authority, which chooses the virtual host.
    pub authority: Arc<str>,
    /// Clusters that are watched even if no route leads to them, because calls may still use them.
    /// No configuration waits for one of these.
    pub held: BTreeSet<Arc<str>>,
}

/// The result of [`resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// The resources and DNS names that must be watched to keep the answer up to date. Watches not
    /// in it can stop.
    pub watches: Watches,
    /// The configuration, an error, or the pieces that are missing.
    pub resolved: Resolved,
}

/// The resources and DNS names that an answer depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watches {
    /// Resources.
    pub resources: BTreeSet<Key>,
    /// DNS names.
    pub names: BTreeSet<DnsName>,
}

/// The answer of [`resolve`].
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// There is no configuration, and the channel can only fail.
    Error(ResolveError),
    /// The configuration, which is complete.
    Ready(Arc<XdsConfig>),
    /// The next configuration is not complete yet.
    Waiting {
        /// The pieces it lacks.
        missing: Missing,
        /// The configuration in use, if there is one: its listener and routes, with its clusters
        /// kept up to date.
        in_use: Option<Arc<XdsConfig>>,
    },
}

/// Works out from scratch the configuration that `view` holds for `roots`. `in_use` is the
/// configuration that serves calls at present.
pub fn resolve(view: &View, roots: &ResolveRoots, in_use: Option<&Arc<XdsConfig>>) -> Resolution {
    let mut graph = Graph::serving(in_use.cloned());
    let resolved = graph.resolve(view, roots);
    let watches = graph.watches();
    Resolution { watches, resolved }
}
