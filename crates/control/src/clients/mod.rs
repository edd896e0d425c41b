//! The connected clients, and whether they accepted what they were sent. The admin port shows them,
//! because a client that refuses its configuration tells nobody else.
//!
//! Each stream has a lock of its own ([`open`]). So a change that goes to all clients takes no lock
//! that they share.

mod ledger;
mod node;
mod open;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crowfly_xds::ServerHalf;
use serde::Serialize;

use crate::metrics::Metrics;
pub(crate) use node::NodeView;
pub(crate) use open::{Client, ClientHandle};
use open::{Head, Inspect, OpenStream};

/// All open streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    streams: Arc<Mutex<Streams>>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Streams {
    opened: u64,
    open: BTreeMap<u64, Arc<dyn Inspect>>,
}

/// The variant of xDS that a stream speaks.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    StateOfTheWorld,
    Delta,
}

impl Clients {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            streams: Arc::default(),
            metrics,
        }
    }

    /// Registers a new stream, which is removed when the handle is dropped.
    pub(crate) fn open<H>(&self, protocol: Protocol, peer: Option<SocketAddr>) -> ClientHandle<H>
    where
        H: ServerHalf + Send + 'static,
    {
        self.metrics.stream_opened();
        let mut streams = self.lock();
        streams.opened += 1;
        let head = Head {
            stream: streams.opened,
            protocol,
            peer,
            connected_at: unix_now(),
        };
        let stream = Arc::new(OpenStream::new(head, self.metrics.clone()));
        streams.open.insert(head.stream, stream.clone());
        drop(streams);
        ClientHandle::new(self.clone(), stream)
    }

    /// All clients, the oldest stream first. Each stream is locked for a moment, one after the other.
    pub(crate) fn list(&self) -> Vec<Client> {
        let streams: Vec<_> = self.lock().open.values().cloned().collect();
        streams.iter().map(|stream| stream.client()).collect()
    }

    fn close(&self, stream: u64) {
        self.lock().open.remove(&stream);
        self.metrics.stream_closed();
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    unix(SystemTime::now())
}

/// A time in seconds since 1970.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
