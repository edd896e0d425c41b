//! The services that routes lead to, kept up to date.
//!
//! A route to a service that does not exist is an error. Checking all routes for that at each change
//! would cost too much. So each name is kept with the services whose routes lead to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::service::Service;

/// The routes between services.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// For each service, the services that its routes lead to.
    of: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// For each name, the services whose routes lead to it.
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The names that routes lead to and that no service has.
    lost: BTreeSet<Arc<str>>,
}

impl Targets {
    /// Sets the routes of a service; `None` if the service was removed.
    pub(crate) fn set(&mut self, name: &Arc<str>, service: Option<&Service>) {
        let mut touched = BTreeSet::from([Arc::clone(name)]);
        for old in self.of.remove(name).into_iter().flatten() {
            if let Some(users) = self.users.get_mut(&old) {
                users.remove(name);
                if users.is_empty() {
                    self.users.remove(&old);
                }
            }
            touched.insert(old);
        }
        if let Some(service) = service {
            let routes = service.routes.iter().flat_map(|route| route.targets());
            let targets: BTreeSet<Arc<str>> = routes.map(|(_, to)| to.as_str().into()).collect();
            for target in &targets {
                let users = self.users.entry(Arc::clone(target)).or_default();
                users.insert(Arc::clone(name));
                touched.insert(Arc::clone(target));
            }
            self.of.insert(Arc::clone(name), targets);
        }
        for name in touched {
            if self.users.contains_key(&name) && !self.of.contains_key(&name) {
                self.lost.insert(name);
            } else {
                self.lost.remove(&name);
            }
        }
    }

    /// The services whose routes lead to `name`.
    pub(crate) fn users_of(&self, name: &str) -> impl Iterator<Item = &Arc<str>> {
        self.users.get(name).into_iter().flatten()
    }

    /// True if every route leads to a service.
    pub(crate) fn are_sound(&self) -> bool {
        self.lost.is_empty()
    }
}
