//! A typed watch on one resource, in the vocabulary of gRFC A88.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_xds::{Changed, ResourceError};

use crate::subscriber::{Subscriber, Update};

/// What a watcher is told (gRFC A88).
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// Trouble that is no reason to stop using the resource; `None` when it is over.
    AmbientError(Option<ResourceError>),
    /// The resource is new, has changed, or is not to be had.
    ResourceChanged(Result<Arc<T>, ResourceError>),
}

/// A watch on one resource; dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<R: ResourceType> {
    subscriber: Subscriber,
    pending: VecDeque<WatchEvent<R::Parsed>>,
    of: PhantomData<fn() -> R>,
}

impl<R: ResourceType> Watch<R> {
    pub(crate) fn new(subscriber: Subscriber) -> Self {
        Self {
            subscriber,
            pending: VecDeque::new(),
            of: PhantomData,
        }
    }

    /// The next event; cancel-safe. `None` once the client's task is gone.
    pub async fn next(&mut self) -> Option<WatchEvent<R::Parsed>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            for update in self.subscriber.next().await? {
                self.take(&update);
            }
        }
    }

    /// gRFC A88: the resource first, then what is wrong around it.
    fn take(&mut self, update: &Update) {
        let ambient = update.entry.ambient();
        if update.changed == Changed::Data {
            let data = update.entry.read::<R>();
            self.pending.extend(data.map(WatchEvent::ResourceChanged));
        }
        if update.changed == Changed::Ambient || ambient.is_some() {
            self.pending
                .push_back(WatchEvent::AmbientError(ambient.cloned()));
        }
    }
}
