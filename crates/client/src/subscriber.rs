//! A reader of many resources that change together.
//!
//! A channel needs listener, routes, clusters and endpoints of one instant. A watch per resource could not give
//! it that, so a subscriber gets everything that one response changed as one batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crowfly_xds::{CacheEntry, Changed, Key, Kind, ReadingError};
use futures_channel::mpsc;

use crate::client::XdsClient;
use crate::driver::Command;
use crate::flow::Unconsumed;

/// A change of one resource.
#[derive(Clone, Debug)]
pub struct Update {
    /// The resource that changed.
    pub key: Key,
    /// The part of it that changed.
    pub changed: Changed,
    /// The cache's entry for the resource after the change.
    pub entry: CacheEntry,
}

/// All changes that one response of a server made. Between two batches, a reader sees one consistent state of
/// the server.
///
/// The server is not read further until every subscriber has dropped its batch.
#[derive(Debug)]
pub struct Batch {
    /// The changes.
    pub updates: Vec<Update>,
    /// The types that the subscriber watches as a whole and that the server answered for, even if it has nothing of
    /// them. By this list a reader knows when it has all resources of a type.
    pub answered: Vec<Kind>,
    /// The reason if no server of the list could be reached. Only subscribers of whole types get this reason, because
    /// others get it in the errors of their resources.
    pub unreachable: Option<Arc<str>>,
    pub(crate) unconsumed: Option<Arc<Unconsumed>>,
}

/// Watches a changing set of resources. Dropping it ends all of its watches.
#[derive(Debug)]
pub struct Subscriber {
    id: SubscriberId,
    client: XdsClient,
    batches: mpsc::UnboundedReceiver<Batch>,
}

impl Subscriber {
    pub(crate) fn new(client: XdsClient) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = SubscriberId(NEXT.fetch_add(1, Ordering::Relaxed));
        let (sender, batches) = mpsc::unbounded();
        let subscriber = Self {
            id,
            client,
            batches,
        };
        subscriber.client.command(Command::Join { id, sender });
        subscriber
    }

    /// Begins to watch a resource. If the cache has the resource, its entry comes with the next batch. The error is
    /// that of [`XdsClient::watch`].
    pub fn watch(&self, key: Key) -> Result<(), ReadingError> {
        self.client.inner().common.readings.check(key.kind)?;
        self.client.command(Command::Watch { id: self.id, key });
        Ok(())
    }

    /// Begins to watch every resource of a type. The error is that of [`XdsClient::watch`].
    pub fn watch_all(&self, kind: Kind) -> Result<(), ReadingError> {
        self.client.inner().common.readings.check(kind)?;
        self.client.command(Command::WatchAll { id: self.id, kind });
        Ok(())
    }

    /// Stops watching a resource.
    pub fn unwatch(&self, key: Key) {
        self.client.command(Command::Unwatch { id: self.id, key });
    }

    /// The next batch of changes; `None` once the client's task is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Batch> {
        self.batches.recv().await.ok()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.client.command(Command::Leave { id: self.id });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscriberId(u64);
