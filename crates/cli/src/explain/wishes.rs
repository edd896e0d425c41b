//! Fields of a virtual host and its routes that are set and have no effect yet. The fields are
//! sorted by host and route, because each is shown on the line of the host or the route.

use std::sync::Arc;

use crowfly_model::{
    Unsupported,
    grpc::{RouteConfig, route::VirtualHost},
};

/// The unsupported fields of one virtual host, with paths that begin there.
#[derive(Default)]
pub(super) struct Wishes(Vec<Unsupported>);

impl Wishes {
    /// Collects the unsupported fields of `host`, which is part of `config`.
    pub(super) fn of(config: &RouteConfig, host: &Arc<VirtualHost>) -> Self {
        let mut hosts = config.virtual_hosts.iter();
        let Some(index) = hosts.position(|other| Arc::ptr_eq(other, host)) else {
            return Self::default();
        };
        let path = format!("virtual_hosts[{index}]");
        let wishes = config.unsupported.iter();
        Self(wishes.filter_map(|wish| wish.below(&path)).collect())
    }

    /// The fields of the host itself, without its routes.
    pub(super) fn of_host(&self) -> Vec<String> {
        let is_own = |wish: &&Unsupported| !wish.path.starts_with("routes[");
        let own = self.0.iter().filter(is_own);
        own.map(ToString::to_string).collect()
    }

    /// The fields of the route with this index.
    pub(super) fn of_route(&self, index: usize) -> Vec<String> {
        let path = format!("routes[{index}]");
        let below = self.0.iter().filter_map(|wish| wish.below(&path));
        below.map(|wish| wish.to_string()).collect()
    }
}
