//! Finds the listener, the routes and the virtual host of a channel.
//!
//! An error here fails the whole channel, so it is kept apart from the errors of single clusters.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::listener::{ListenerKind, RouteSource};
use crowfly_model::grpc::route::VirtualHost;
use crowfly_model::grpc::{Listener, RouteConfig};

use super::ResolveRoots;
use super::config::ResolveError;
use super::look::Look;

/// The part of a configuration that is the same for all clusters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Base {
    pub(super) listener: Arc<Listener>,
    pub(super) routes: Arc<RouteConfig>,
    pub(super) virtual_host: Arc<VirtualHost>,
}

impl Base {
    /// Finds the base of a configuration; `None` while a piece is missing. An error here fails the
    /// whole channel.
    pub(super) fn find(
        look: &mut Look<'_>,
        roots: &ResolveRoots,
    ) -> Result<Option<Self>, ResolveError> {
        let Some(listener) = need::<Listener>(look, &roots.listener)? else {
            return Ok(None);
        };
        let ListenerKind::Api(api) = &listener.kind else {
            return Err(ResolveError::SocketListener(Arc::clone(&roots.listener)));
        };
        let routes = match &api.routes {
            RouteSource::Inline(routes) => Arc::clone(routes),
            RouteSource::Rds(name) => match need::<RouteConfig>(look, name)? {
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
        Ok(Some(Self {
            listener,
            routes,
            virtual_host,
        }))
    }
}

fn need<R: ResourceType>(
    look: &mut Look<'_>,
    name: &str,
) -> Result<Option<Arc<R::Parsed>>, ResolveError> {
    let found = look.resource::<R>(name);
    found.transpose().map_err(ResolveError::Resource)
}
