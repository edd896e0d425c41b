//! The place of one stream among the snapshots: it gives the stream the newest one that is for its client.
//!
//! The view of a client is chosen once and kept, because a change goes to thousands of streams.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::watch;

use crate::forms::{FormKey, InUse, Rules};
use crate::store::{Published, Store};

/// The place of a stream. While it exists, the snapshot of its client is kept up to date.
#[derive(Debug)]
pub(crate) struct Seat {
    store: Arc<Store>,
    published: watch::Receiver<Published>,
    /// The snapshot that was chosen for the client; `None` before the first one.
    place: Option<Place>,
}

/// A snapshot that was chosen for a client.
#[derive(Debug)]
pub(crate) struct Place {
    /// The rules by which it was chosen. Other rules may choose another one.
    pub(crate) rules: Arc<Rules>,
    pub(crate) key: FormKey,
    /// Keeps the snapshot from being dropped.
    pub(crate) _in_use: InUse,
}

impl Seat {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self {
            published: store.published(),
            store: Arc::clone(store),
            place: None,
        }
    }

    /// Waits for a snapshot that was not taken yet.
    ///
    /// # Errors
    /// The control plane is gone.
    pub(crate) fn changed(
        &mut self,
    ) -> impl Future<Output = Result<(), watch::error::RecvError>> + Send {
        self.published.changed()
    }

    /// Takes the newest snapshot for a client with this node. The view is chosen once, and again if the rules change. So
    /// the node is seldom asked for.
    pub(crate) fn snapshot<'n>(
        &mut self,
        node: impl Fn() -> Option<Cow<'n, Node>>,
    ) -> Arc<Snapshot> {
        let published = self.published.borrow_and_update();
        if published.has_nodes()
            && let Some(own) = node().and_then(|node| published.of_node(&node.id))
        {
            return own;
        }
        if let Some(place) = &self.place
            && let Some(snapshot) = published.of(place)
        {
            return snapshot;
        }
        drop(published);
        let (place, snapshot) = self.store.place(node().as_deref());
        self.place = Some(place);
        snapshot
    }

    /// The time at which the newest snapshot was published.
    pub(crate) fn published_at(&self) -> Option<Instant> {
        self.published.borrow().at
    }

    /// The name of the view that the client has; `None` if it has the base.
    pub(crate) fn view(&self) -> Option<&Arc<str>> {
        self.place.as_ref()?.key.view.as_ref()
    }
}
