//! From watched resources to one whole configuration (gRFC A74).
//!
//! [`resolve`] is a function of what is known at one instant: it says what must be watched, and gives
//! the configuration once every piece of it has data or an error. It never gives a part of one, so
//! no call sees a route whose cluster is not there yet. [`Resolver`] gives the same answers, one
//! change after the other, for no more work than the change is worth.
//!
//! # While the next configuration is not whole
//! The one in use serves on, and its clusters do not stand still. Each is taken as it is now if it is
//! whole, and as it was if not; an aggregate is whole when all of its leaves are. So a route
//! configuration or a cluster that never comes takes no change of endpoints away from the calls that
//! are served. Whoever uses a configuration [holds](ResolveRoots::held) the clusters it routes to, or
//! they are not watched any more.
//!
//! # Aggregate clusters
//! An aggregate stands for the clusters below it (gRFC A37), which are found depth first; each is
//! taken once, where it is first seen, and a circle adds nothing. One that does not exist is left out
//! and noted (gRFC A74): the others serve on. A leaf that nothing is known of yet is waited for,
//! whether or not a call would need it: its configuration would not be whole. An aggregate is at depth 0, and a cluster at depth
//! [`MAX_DEPTH`] below it makes it fail, whatever else it leads to.
//!
//! # Aggregate-cluster resources
//! gRFC A99 lets an aggregate name a resource that holds its list, and leaves some things open.
//! Here they are decided so:
//! - A list that is not to be had is the trouble of that aggregate alone, as an error of its Cluster
//!   resource would be. If the aggregate is inside of another, it is left out of that one and noted.
//! - Trouble that leaves a list standing (a refused update, a server out of reach) changes nothing:
//!   the last list is used, and the trouble is noted.
//! - When a Cluster changes from a list of its own to a resource, or from one resource to another,
//!   the last configuration serves until the new list is here, as it does when a listener names other
//!   routes.
//! - Aggregates that name the same resource share one watch, which ends with the last of them.
//! - A list is never deleted by its absence from a response: like routes and endpoints it is asked
//!   for by name. A server that wants it gone by state of the world lets it time out, or by delta
//!   removes it.
//! - The resource is asked for from the server that the aggregate came from (ADS or self); any other
//!   source is refused with the Cluster.

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

/// Where resolution begins.
#[derive(Clone, Debug)]
pub struct ResolveRoots {
    /// The name of the listener: the service in the channel's target.
    pub listener: Arc<str>,
    /// The data-plane authority, which chooses the virtual host.
    pub authority: Arc<str>,
    /// Clusters that are wanted whether or not a route leads to them: calls may still pick from
    /// them. No configuration waits for one of these.
    pub held: BTreeSet<Arc<str>>,
}

/// What [`resolve`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// What must be watched for the answer to stay true. Watches not in it can stop.
    pub watches: Watches,
    /// The answer.
    pub resolved: Resolved,
}

/// What an answer depends on.
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
    /// Every piece is here.
    Ready(Arc<XdsConfig>),
    /// The next configuration is not whole yet.
    Waiting {
        /// The pieces it lacks.
        missing: Missing,
        /// The configuration in use, if there is one: its listener and routes, with its clusters as
        /// they are now.
        in_use: Option<Arc<XdsConfig>>,
    },
}

/// Works out, from scratch, the configuration that `view` holds for `roots`. `in_use` is the one that
/// serves calls at present.
pub fn resolve(view: &View, roots: &ResolveRoots, in_use: Option<&Arc<XdsConfig>>) -> Resolution {
    let mut graph = Graph::serving(in_use.cloned());
    let resolved = graph.resolve(view, roots);
    let watches = graph.watches();
    Resolution { watches, resolved }
}
