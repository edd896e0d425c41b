//! Typed watches, with the events of gRFC A88.
//!
//! Watches are for readers of one resource or one type, which need no batches.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_xds::{Changed, ResourceError};

use crate::flow::Unconsumed;
use crate::subscriber::{Subscriber, Update};

/// An event of a watch (gRFC A88).
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// An error that does not make the resource unusable; `None` when it is over.
    AmbientError(Option<ResourceError>),
    /// The resource is new, has changed, or cannot be used.
    ResourceChanged(Result<Arc<T>, ResourceError>),
}

/// A watch on one resource; dropping it ends the watch.
///
/// The server is read no further until every watch has taken its events, so that events never pile up in
/// memory.
#[derive(Debug)]
pub struct Watch<R: ResourceType> {
    all: WatchAll<R>,
}

impl<R: ResourceType> Watch<R> {
    pub(crate) fn new(subscriber: Subscriber) -> Self {
        Self {
            all: WatchAll::new(subscriber),
        }
    }

    /// The next event; cancel-safe. `None` once the client's task is gone.
    pub async fn next(&mut self) -> Option<WatchEvent<R::Parsed>> {
        let (_, event) = self.all.next().await?;
        Some(event)
    }
}

/// A watch on every resource of a type; dropping it ends the watch.
#[derive(Debug)]
pub struct WatchAll<R: ResourceType> {
    subscriber: Subscriber,
    pending: VecDeque<(Arc<str>, WatchEvent<R::Parsed>)>,
    /// The token of the response that the pending events came with.
    unconsumed: Option<Arc<Unconsumed>>,
    of: PhantomData<fn() -> R>,
}

impl<R: ResourceType> WatchAll<R> {
    pub(crate) fn new(subscriber: Subscriber) -> Self {
        Self {
            subscriber,
            pending: VecDeque::new(),
            unconsumed: None,
            of: PhantomData,
        }
    }

    /// The next event, with the name of its resource; cancel-safe. `None` once the client's task is
    /// gone.
    pub async fn next(&mut self) -> Option<(Arc<str>, WatchEvent<R::Parsed>)> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                if self.pending.is_empty() {
                    self.unconsumed = None;
                }
                return Some(event);
            }
            let batch = self.subscriber.next().await?;
            for update in &batch.updates {
                self.take(update);
            }
            self.unconsumed = batch.unconsumed;
        }
    }

    /// gRFC A88: the resource comes first, then its ambient error.
    fn take(&mut self, update: &Update) {
        let name = &update.key.name;
        let ambient = update.entry.ambient();
        if update.changed == Changed::Data
            && let Some(data) = update.entry.read::<R>()
        {
            let event = WatchEvent::ResourceChanged(data);
            self.pending.push_back((Arc::clone(name), event));
        }
        if update.changed == Changed::Ambient || ambient.is_some() {
            let event = WatchEvent::AmbientError(ambient.cloned());
            self.pending.push_back((Arc::clone(name), event));
        }
    }
}
