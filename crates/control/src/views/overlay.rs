//! Lays the resources of a view over the base, and follows the changes of both.
//!
//! The view shares with the base all resources that it does not name. So a view costs memory for
//! its own resources alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_xds::{Snapshot, SnapshotResource};

use crate::translate::ResourceKey;

/// The resources in which a view differs from the base. `None` stands for a resource that the view does not have.
pub(crate) type Overlay = BTreeMap<ResourceKey, Option<Arc<SnapshotResource>>>;

/// A snapshot with an overlay over it, which follows the changes of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverlaidView {
    /// The snapshot below the overlay.
    of: Arc<Snapshot>,
    overlay: Arc<Overlay>,
    view: Arc<Snapshot>,
}

impl OverlaidView {
    /// A view over `base`. Without an overlay it is `base` itself.
    pub(crate) fn new(base: &Arc<Snapshot>, overlay: &Arc<Overlay>) -> Self {
        let mut view = Self {
            of: Arc::clone(base),
            overlay: Arc::default(),
            view: Arc::clone(base),
        };
        view.follow(base, overlay);
        view
    }

    /// The snapshot of the view.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.view
    }

    /// Updates the view to the next base and overlay. The work is in proportion to the changes of the base and to
    /// the size of the overlay. Resources that the overlay does not name are shared with the base.
    pub(crate) fn follow(&mut self, base: &Arc<Snapshot>, overlay: &Arc<Overlay>) {
        if overlay.is_empty() {
            *self = Self {
                of: Arc::clone(base),
                overlay: Arc::clone(overlay),
                view: Arc::clone(base),
            };
            return;
        }
        if self.view.types().next().is_none() {
            // A view that starts from the base shares its memory.
            (self.of, self.view) = (Arc::clone(base), Arc::clone(base));
        }
        let before = std::mem::replace(&mut self.of, Arc::clone(base));
        let overlay_before = std::mem::replace(&mut self.overlay, Arc::clone(overlay));
        let mut builder = self.view.to_builder();
        let mut put =
            |url: &str, name: &Arc<str>, resource: Option<&Arc<SnapshotResource>>| match resource {
                Some(resource) => builder.put(Arc::clone(name), Arc::clone(resource)),
                None => {
                    builder.remove(url, name);
                }
            };
        let of_base = |url: &str, name: &str| base.of(url).and_then(|of| of.resources().get(name));
        for (url, names) in base.changes_since(&before) {
            for name in &*names {
                put(url, name, of_base(url, name));
            }
        }
        for key in overlay_before.keys() {
            if !overlay.contains_key(key) {
                put(&key.type_url, &key.name, of_base(&key.type_url, &key.name));
            }
        }
        for (key, resource) in &**overlay {
            put(&key.type_url, &key.name, resource.as_ref());
        }
        self.view = Arc::new(builder.build());
    }
}
