//! One whole configuration of a channel, and the errors that take its place.
//!
//! A channel uses a configuration whole or not at all (gRFC A74), so it is one value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crowfly_model::grpc::route::{RouteAction, VirtualHost};
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use thiserror::Error;

use crate::error::ResourceError;

/// One whole configuration of a channel.
///
/// It is built once and never edited. Between two configurations, a cluster that did not change is
/// the same `Arc`.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsConfig {
    /// The listener.
    pub listener: Arc<Listener>,
    /// The routes, whether they came with the listener or on their own.
    pub routes: Arc<RouteConfig>,
    /// The virtual host of `routes` that the authority chose.
    pub virtual_host: Arc<VirtualHost>,
    /// Every cluster that a route leads to or a call holds, and every leaf of those that are
    /// aggregates; each with data or an error.
    ///
    /// An aggregate inside of another is not here unless a route leads to it as well: its leaves
    /// are, in the list of the outer one.
    pub clusters: BTreeMap<Arc<str>, ClusterResult>,
    /// Trouble that leaves listener and routes standing; it becomes part of the error of an RPC.
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
    routes.filter_map(|route| match &route.action {
        RouteAction::Cluster(name) => Some(name.as_str()),
        RouteAction::NonForwarding => None,
    })
}

/// A cluster, or what is wrong with it: its trouble is its own, and others work on.
pub type ClusterResult = Result<Arc<ClusterState>, Arc<ClusterError>>;

/// One cluster with all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Where its calls go.
    pub members: Members,
    /// What went wrong on the way here without taking anything away, and why members are missing.
    /// It becomes part of the error of an RPC (gRFC A88's resolution notes).
    pub notes: Vec<ResourceError>,
}

/// Where the calls of a cluster go.
#[derive(Clone, Debug, PartialEq)]
pub enum Members {
    /// Of a leaf: its endpoints, from EDS or DNS; `None` if there are none to be had, which the
    /// notes explain.
    Endpoints(Option<Arc<Endpoints>>),
    /// Of an aggregate: the clusters below it that are not aggregates themselves, best first, each
    /// once (gRFC A37). Never empty.
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

    /// The leaves of an aggregate; none of a leaf.
    pub fn leaves(&self) -> &[Arc<str>] {
        match &self.members {
            Members::Endpoints(_) => &[],
            Members::Leaves(leaves) => leaves,
        }
    }
}

/// Why a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterError {
    /// It is an aggregate whose list is a resource of its own (gRFC A99), and that is in trouble.
    List {
        /// The aggregate.
        cluster: Arc<str>,
        /// What is wrong with its list.
        error: ResourceError,
    },
    /// It is an aggregate that leads nowhere.
    NoLeaf {
        /// The aggregate.
        cluster: Arc<str>,
        /// What is wrong with the clusters below it; none if they lead in a circle.
        missing: Vec<ResourceError>,
        /// The id of this client's node.
        node: Arc<str>,
    },
    /// The resource is in trouble.
    Resource(ResourceError),
    /// It is an aggregate of aggregates of aggregates ...
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

/// How many levels an aggregate may have, itself and its leaves included (gRFC A37).
pub const MAX_DEPTH: usize = 16;

/// Why a channel has no configuration.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ResolveError {
    /// No virtual host fits.
    #[error("route configuration {routes}: no virtual host matches `{authority}`")]
    NoVirtualHost {
        /// The route configuration.
        routes: String,
        /// The authority that was looked for.
        authority: Arc<str>,
    },
    /// A resource is in trouble.
    #[error(transparent)]
    Resource(ResourceError),
    /// The listener is one for a server.
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
