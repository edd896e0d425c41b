//! Fields of a call's virtual host that are set and have no effect yet.

use std::sync::Arc;

use crowfly_model::{
    Unsupported,
    grpc::{RouteConfig, route::VirtualHost},
};

/// The wishes of one virtual host and its routes, with paths from there.
#[derive(Default)]
pub(super) struct Wishes(Vec<Unsupported>);

impl Wishes {
    /// Those of a virtual host of the configuration.
    pub(super) fn of(config: &RouteConfig, host: &Arc<VirtualHost>) -> Self {
        let mut hosts = config.virtual_hosts.iter();
        let Some(index) = hosts.position(|other| Arc::ptr_eq(other, host)) else {
            return Self::default();
        };
        let path = format!("virtual_hosts[{index}]");
        let wishes = config.unsupported.iter();
        Self(wishes.filter_map(|wish| wish.below(&path)).collect())
    }

    /// Those of the host itself.
    pub(super) fn of_host(&self) -> Vec<String> {
        let is_own = |wish: &&Unsupported| !wish.path.starts_with("routes[");
        let own = self.0.iter().filter(is_own);
        own.map(ToString::to_string).collect()
    }

    /// Those of the route in this place.
    pub(super) fn of_route(&self, index: usize) -> Vec<String> {
        let path = format!("routes[{index}]");
        let below = self.0.iter().filter_map(|wish| wish.below(&path));
        below.map(|wish| wish.to_string()).collect()
    }
}
