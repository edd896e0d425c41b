//! One complete configuration of a channel, and the errors that take its place.
//!
//! It is one value, because a channel uses a configuration completely or not at all (gRFC A74).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crowfly_model::grpc::route::VirtualHost;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use thiserror::Error;

use crate::error::ResourceError;

/// One complete configuration of a channel.
///
/// It is built once and never edited. Between two configurations, a cluster that did not change is
/// the same `Arc`.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsConfig {
    /// The listener.
    pub listener: Arc<Listener>,
    /// The routes, either inline in the listener or from a resource of their own.
    pub routes: Arc<RouteConfig>,
    /// The virtual host of `routes` that the authority chose.
    pub virtual_host: Arc<VirtualHost>,
    /// Every cluster that a route leads to or a call holds, and every leaf of the aggregates among
    /// them. Each has data or an error.
    ///
    /// An aggregate inside another one is not here unless a route leads to it too. Its leaves are
    /// in the list of the outer one.
    pub clusters: BTreeMap<Arc<str>, ClusterResult>,
    /// Errors that leave the listener and the routes in use; they become part of the error of an
    /// RPC.
    pub notes: Vec<ResourceError>,
}

impl XdsConfig {
    /// The clusters that the routes lead to; a name may come more than once.
    pub fn routed(&self) -> impl Iterator<Item = &str> {
        routed(&self.virtual_host)
    }
}

/// The clusters that the routes of a virtual host lead to.
pub(super) fn routed(virtual_host: &VirtualHost) -> impl Iterator<Item = &str> {
    let routes = virtual_host.routes.iter();
    routes.flat_map(|route| route.action.clusters())
}

/// A cluster or its error. An error of one cluster does not affect the others.
pub type ClusterResult = Result<Arc<ClusterState>, Arc<ClusterError>>;

/// One cluster with all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The endpoints or the leaf clusters that its calls go to.
    pub members: Members,
    /// Errors that leave the cluster usable, and the reasons why members are missing. They become
    /// part of the error of an RPC (gRFC A88's resolution notes).
    pub notes: Vec<ResourceError>,
}

/// The destinations of the calls of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Members {
    /// The endpoints of a leaf, from EDS or DNS. `None` if they are in error, which the notes
    /// explain.
    Endpoints(Option<Arc<Endpoints>>),
    /// The leaves of an aggregate: the clusters below it that are not aggregates, best first, each
    /// once (gRFC A37). The list is never empty.
    Leaves(Vec<Arc<str>>),
}

impl ClusterState {
    /// The endpoints of a leaf.
    pub fn endpoints(&self) -> Option<&Arc<Endpoints>> {
        match &self.members {
            Members::Endpoints(endpoints) => endpoints.as_ref(),
            Members::Leaves(_) => None,
        }
    }

    /// The leaves of an aggregate; empty for a leaf.
    pub fn leaves(&self) -> &[Arc<str>] {
        match &self.members {
            Members::Endpoints(_) => &[],
            Members::Leaves(leaves) => leaves,
        }
    }
}

/// The reason why a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster is an aggregate whose list is a resource of its own (gRFC A99), and that
    /// resource is in error.
    List {
        /// The aggregate.
        cluster: Arc<str>,
        /// The error of the resource that holds its list.
        error: ResourceError,
    },
    /// The cluster is an aggregate without a usable leaf.
    NoLeaf {
        /// The aggregate.
        cluster: Arc<str>,
        /// The errors of the clusters below it; empty if the aggregates only lead to one another.
        missing: Vec<ResourceError>,
        /// The id of this client's node.
        node: Arc<str>,
    },
    /// The Cluster resource is in error.
    Resource(ResourceError),
    /// The cluster is an aggregate with more than [`MAX_DEPTH`] levels.
    TooDeep {
        /// The aggregate.
        cluster: Arc<str>,
        /// The first cluster that is too far below it.
        at: Arc<str>,
        /// The id of this client's node.
        node: Arc<str>,
    },
}

impl ClusterError {
    /// The cluster that cannot be used.
    pub fn cluster(&self) -> &Arc<str> {
        match self {
            Self::List { cluster, .. }
            | Self::NoLeaf { cluster, .. }
            | Self::TooDeep { cluster, .. } => cluster,
            Self::Resource(error) => &error.name,
        }
    }

    /// The id of this client's node.
    pub fn node(&self) -> &Arc<str> {
        match self {
            Self::List { error, .. } | Self::Resource(error) => &error.node,
            Self::NoLeaf { node, .. } | Self::TooDeep { node, .. } => node,
        }
    }

    /// The reason alone, for a text that names the cluster and the node itself.
    ///
    /// ```
    /// use crowfly_xds::ClusterError;
    ///
    /// let error = ClusterError::NoLeaf {
    ///     cluster: "top".into(),
    ///     missing: vec![],
    ///     node: "web-1".into(),
    /// };
    /// assert_eq!(error.reason(), "aggregate without a leaf cluster");
    /// assert_eq!(
    ///     error.to_string(),
    ///     "cluster top: aggregate without a leaf cluster [node web-1]"
    /// );
    /// ```
    pub fn reason(&self) -> String {
        match self {
            Self::List { error, .. } => error.without_node(),
            Self::NoLeaf { missing, .. } => {
                let mut text = "aggregate without a leaf cluster".to_owned();
                for (i, error) in missing.iter().enumerate() {
                    text.push_str(if i == 0 { ": " } else { "; " });
                    text.push_str(&error.without_node());
                }
                text
            }
            Self::Resource(error) => error.reason.to_string(),
            Self::TooDeep { at, .. } => {
                format!("aggregate exceeds max depth {MAX_DEPTH} at cluster {at}")
            }
        }
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, reason, node) = (self.cluster(), self.reason(), self.node());
        write!(f, "cluster {cluster}: {reason} [node {node}]")
    }
}

impl std::error::Error for ClusterError {}

/// The largest number of levels of an aggregate, itself and its leaves included (gRFC A37).
pub const MAX_DEPTH: usize = 16;

/// The reason why a channel has no configuration.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ResolveError {
    /// No virtual host of the routes matches the authority.
    #[error("route configuration {routes}: no virtual host matches `{authority}`")]
    NoVirtualHost {
        /// The route configuration.
        routes: String,
        /// The authority that was looked for.
        authority: Arc<str>,
    },
    /// The listener or the route configuration is in error.
    #[error(transparent)]
    Resource(ResourceError),
    /// The listener is a socket listener, which is for a server.
    #[error("listener {0}: is a socket listener, expected an API listener")]
    SocketListener(Arc<str>),
}

/// The resources that resolution waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub BTreeSet<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, what) in self.0.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            write!(f, "{separator}{what}")?;
        }
        Ok(())
    }
}
