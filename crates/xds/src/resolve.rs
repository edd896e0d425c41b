//! From watched resources to one whole configuration (gRFC A74).
//!
//! [`resolve`] is a function of the cache at one instant: it says which resources must be watched,
//! and gives the configuration once every piece of it has data or an error. It never gives a part of
//! one, so no call sees a route whose cluster is not there yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::listener::{ListenerKind, RouteSource};
use crowfly_model::grpc::route::{RouteAction, VirtualHost};
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use thiserror::Error;

use crate::cache::Cache;
use crate::error::ResourceError;
use crate::kind::{Key, Kind};

/// Where resolution begins.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The name of the listener: the service in the channel's target.
    pub listener: Arc<str>,
    /// The data-plane authority, which chooses the virtual host.
    pub authority: Arc<str>,
}

/// What [`resolve`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// What must be watched for the answer to stay true. Watches not in it can stop.
    pub watches: BTreeMap<Key, Kind>,
    /// The answer.
    pub resolved: Resolved,
}

/// The answer of [`resolve`].
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// There is no configuration, and the channel can only fail.
    Error(ResolveError),
    /// Every piece is here.
    Ready(Arc<XdsConfig>),
    /// These pieces are still missing.
    Waiting(Missing),
}

/// The resources that resolution waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub BTreeSet<String>);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, what) in self.0.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            write!(f, "{separator}{what}")?;
        }
        Ok(())
    }
}

/// One whole configuration of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsConfig {
    /// The listener.
    pub listener: Arc<Listener>,
    /// The virtual host that the authority chose.
    pub virtual_host: Arc<VirtualHost>,
    /// Every cluster that a route leads to, with data or an error.
    pub clusters: BTreeMap<String, Result<Arc<ClusterState>, ResourceError>>,
}

/// One cluster with its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Its endpoints; `None` if there are none to be had, which `note` explains.
    pub endpoints: Option<Arc<Endpoints>>,
    /// What went wrong on the way to the endpoints; it becomes part of the error of an RPC.
    pub note: Option<ResourceError>,
}

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

/// Works out the configuration that `cache` holds for `roots`.
pub fn resolve(cache: &Cache, roots: &Roots) -> Resolution {
    let mut walk = Walk {
        cache,
        watches: BTreeMap::new(),
        missing: BTreeSet::new(),
    };
    let config = walk.config(roots);
    let resolved = match config {
        Err(error) => Resolved::Error(error),
        Ok(Some(config)) if walk.missing.is_empty() => Resolved::Ready(Arc::new(config)),
        Ok(_) => Resolved::Waiting(Missing(walk.missing)),
    };
    Resolution {
        watches: walk.watches,
        resolved,
    }
}

/// One walk over the graph. It goes on where data is missing, so that all watches start at once.
struct Walk<'a> {
    cache: &'a Cache,
    watches: BTreeMap<Key, Kind>,
    missing: BTreeSet<String>,
}

impl Walk<'_> {
    fn config(&mut self, roots: &Roots) -> Result<Option<XdsConfig>, ResolveError> {
        let Some(listener) = self.need::<Listener>(&roots.listener)? else {
            return Ok(None);
        };
        let ListenerKind::Api(api) = &listener.kind else {
            return Err(ResolveError::SocketListener(Arc::clone(&roots.listener)));
        };
        let routes = match &api.routes {
            RouteSource::Inline(routes) => Arc::clone(routes),
            RouteSource::Rds(name) => match self.need::<RouteConfig>(name)? {
                Some(routes) => routes,
                None => return Ok(None),
            },
        };
        let Some(virtual_host) = routes.virtual_host(&roots.authority).cloned() else {
            return Err(ResolveError::NoVirtualHost {
                routes: routes.name.clone(),
                authority: Arc::clone(&roots.authority),
            });
        };
        let mut clusters = BTreeMap::new();
        for route in &virtual_host.routes {
            let RouteAction::Cluster(name) = &route.action else {
                continue;
            };
            if clusters.contains_key(name) {
                continue;
            }
            if let Some(state) = self.cluster(name) {
                clusters.insert(name.clone(), state);
            }
        }
        Ok(Some(XdsConfig {
            listener,
            virtual_host,
            clusters,
        }))
    }

    /// A cluster's trouble is its own: other clusters work on.
    fn cluster(&mut self, name: &str) -> Option<Result<Arc<ClusterState>, ResourceError>> {
        let cluster = match self.watch::<Cluster>(name)? {
            Ok(cluster) => cluster,
            Err(error) => return Some(Err(error)),
        };
        let (endpoints, note) = match cluster.eds_name() {
            None => (None, None),
            Some(name) => match self.watch::<Endpoints>(name)? {
                Ok(endpoints) => (Some(endpoints), None),
                Err(error) => (None, Some(error)),
            },
        };
        Some(Ok(Arc::new(ClusterState {
            cluster,
            endpoints,
            note,
        })))
    }

    fn need<R: ResourceType>(
        &mut self,
        name: &str,
    ) -> Result<Option<Arc<R::Parsed>>, ResolveError> {
        self.watch::<R>(name)
            .transpose()
            .map_err(ResolveError::Resource)
    }

    /// Notes that the resource must be watched; `None` if nothing is known of it yet.
    fn watch<R: ResourceType>(
        &mut self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.watches.insert(Key::of::<R>(name), Kind::of::<R>());
        let known = self.cache.read::<R>(name);
        if known.is_none() {
            self.missing.insert(format!("{} {name}", R::NOUN));
        }
        known
    }
}
