//! One reader of many resources.

use std::sync::atomic::{AtomicU64, Ordering};

use crowfly_xds::{Changed, Entry, Key, Kind};
use tokio::sync::mpsc;

use crate::driver::Command;

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

/// Watches a changing set of resources. Dropping it ends all of its watches.
#[derive(Debug)]
pub struct Subscriber {
    id: SubscriberId,
    commands: mpsc::UnboundedSender<Command>,
    updates: mpsc::UnboundedReceiver<Vec<Update>>,
}

impl Subscriber {
    pub(crate) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = SubscriberId(NEXT.fetch_add(1, Ordering::Relaxed));
        let (sender, updates) = mpsc::unbounded_channel();
        let subscriber = Self {
            id,
            commands,
            updates,
        };
        subscriber.command(Command::Join { id, sender });
        subscriber
    }

    /// Begins to watch a resource. What is already known of it comes with the next batch.
    pub fn watch(&self, key: Key, kind: Kind) {
        self.command(Command::Watch {
            id: self.id,
            key,
            kind,
        });
    }

    /// Stops watching a resource.
    pub fn unwatch(&self, key: Key) {
        self.command(Command::Unwatch { id: self.id, key });
    }

    /// What changed next. A batch holds all that one response of the server changed, so that whoever
    /// looks between batches sees what the server meant at one instant. `None` once the client's
    /// task is gone.
    pub async fn next(&mut self) -> Option<Vec<Update>> {
        self.updates.recv().await
    }

    fn command(&self, command: Command) {
        // The task ends only after the last handle, or with its runtime; then nobody can be told.
        let _ = self.commands.send(command);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.command(Command::Leave { id: self.id });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscriberId(u64);
