//! The references that the clients of a view see, and the way up from a resource to a listener.

use std::collections::HashSet;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Listener;

use super::{References, is_root, references_of};
use crate::translate::ResourceKey;
use crate::views::Overlay;

/// The references of a base with an overlay over it.
pub(crate) struct Seen<'a> {
    base: &'a References,
    overlay: &'a Overlay,
    /// The references of the resources in the overlay.
    own: References,
    /// Resources that no listener for gRPC clients leads to. They are kept, so that each is looked at once.
    dead: HashSet<ResourceKey>,
}

impl<'a> Seen<'a> {
    /// The references of `base` where `overlay` has nothing, and those of `overlay`.
    pub(crate) fn new(base: &'a References, overlay: &'a Overlay) -> Self {
        let mut own = References::default();
        for (key, laid) in overlay {
            if let Some(resource) = laid {
                own.insert(key, references_of(&resource.any));
                if is_root(&resource.any) {
                    own.roots.insert(Arc::clone(&key.name));
                }
            }
        }
        Self {
            base,
            overlay,
            own,
            dead: HashSet::new(),
        }
    }

    /// A listener from which a gRPC client comes to this resource; `None` if there is none.
    pub(crate) fn listener_above(&mut self, key: &ResourceKey) -> Option<Arc<str>> {
        let mut open = vec![key.clone()];
        let mut seen = HashSet::new();
        while let Some(key) = open.pop() {
            if self.is_root(&key) {
                return Some(key.name);
            }
            if !self.dead.contains(&key) && seen.insert(key.clone()) {
                open.extend(self.users_of(&key).cloned());
            }
        }
        self.dead.extend(seen);
        None
    }

    fn is_root(&self, key: &ResourceKey) -> bool {
        let is_laid = self.overlay.contains_key(key);
        let roots = if is_laid {
            &self.own.roots
        } else {
            &self.base.roots
        };
        key.type_url == Listener::TYPE_URL && roots.contains(&key.name)
    }

    fn users_of(&self, key: &ResourceKey) -> impl Iterator<Item = &ResourceKey> {
        let of_base = self.base.users.get(key).into_iter().flatten();
        let of_base = of_base.filter(|user| !self.overlay.contains_key(*user));
        of_base.chain(self.own.users.get(key).into_iter().flatten())
    }
}
