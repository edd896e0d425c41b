//! One reader of many resources.
//!
//! It is told of what changed together in one batch, so that it never sees half of a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crowfly_xds::{Changed, Entry, Key, Kind, ReadingError};
use futures_channel::mpsc;

use crate::client::XdsClient;
use crate::driver::Command;
use crate::flow::Unconsumed;

/// What has become of one resource.
#[derive(Clone, Debug)]
pub struct Update {
    /// Which resource.
    pub key: Key,
    /// What of it is new.
    pub changed: Changed,
    /// All that is known of it now.
    pub entry: Entry,
}

/// All that one response of the server changed, so that whoever looks between batches sees what the
/// server meant at one instant.
///
/// The server is not read further until every subscriber has dropped its batch.
#[derive(Debug)]
pub struct Batch {
    /// What changed.
    pub updates: Vec<Update>,
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

    /// Begins to watch a resource. What is already known of it comes with the next batch. The error
    /// is that of [`XdsClient::watch`].
    pub fn watch(&self, key: Key) -> Result<(), ReadingError> {
        self.client.inner().readings.check(key.kind)?;
        self.client.command(Command::Watch { id: self.id, key });
        Ok(())
    }

    /// Begins to watch every resource of a type. The error is that of [`XdsClient::watch`].
    pub fn watch_all(&self, kind: Kind) -> Result<(), ReadingError> {
        self.client.inner().readings.check(kind)?;
        self.client.command(Command::WatchAll { id: self.id, kind });
        Ok(())
    }

    /// Stops watching a resource.
    pub fn unwatch(&self, key: Key) {
        self.client.command(Command::Unwatch { id: self.id, key });
    }

    /// What changed next; `None` once the client's task is gone. Cancel-safe.
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
