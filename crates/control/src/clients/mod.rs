//! The connected clients, and whether they accepted what they were sent. The admin port shows them,
//! because a client that refuses its configuration tells nobody else.
//!
//! ```text
//! a stream's task --> Talk { ServerHalf, Ledger } <-- /clients, CSDS: rows, worked out when asked
//! ```
//!
//! Each stream has a lock of its own. So a change that goes to all clients takes no lock that they
//! share.

mod answers;
mod blame;
mod cut;
mod ledger;
mod near;
mod node;
mod open;
mod recent;
mod refused;
mod rows;
#[cfg(test)]
mod tests;
mod unanswered;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crowfly_xds::ServerHalf;

use crate::incoming::Peer;
use crate::metrics::Metrics;
pub(crate) use answers::Since;
pub(crate) use cut::{cut, logged};
pub(crate) use open::{ClientHandle, Inspect, Talk};
use open::{Head, OpenStream};
pub(crate) use rows::{Clock, Row, RowRefusal};
pub use view::{
    ClientList, ClientView, LimitView, NackView, NodeView, Protocol, ResourceView, State, TypeView,
};

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

impl Clients {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            streams: Arc::default(),
            metrics,
        }
    }

    /// Registers a new stream, which is removed when the handle is dropped.
    pub(crate) fn open<H>(&self, protocol: Protocol, peer: Peer) -> ClientHandle<H>
    where
        H: ServerHalf + Send + 'static,
    {
        self.metrics.stream_opened();
        let mut streams = self.lock();
        streams.opened += 1;
        let id = streams.opened;
        let head = Head {
            stream: id,
            protocol,
            peer,
            connected_at: SystemTime::now(),
        };
        let stream = Arc::new(OpenStream::new(head, self.metrics.clone()));
        streams.open.insert(id, stream.clone());
        drop(streams);
        ClientHandle::new(self.clone(), stream)
    }

    /// All clients, without their resources.
    pub(crate) fn list(&self) -> ClientList {
        let clock = Clock::now();
        let streams = self.streams();
        ClientList {
            clients: streams.iter().map(|stream| stream.view(clock)).collect(),
        }
    }

    /// The clients with this node id, with their resources: refused ones first, then those that lag.
    ///
    /// # Errors
    /// There are none. The error has the ids that are spelled nearly alike.
    pub(crate) fn of_node(&self, id: &str) -> Result<ClientList, Vec<String>> {
        let clock = Clock::now();
        let streams = self.streams();
        let found = streams.iter().filter(|stream| stream.has_id(id));
        let clients: Vec<_> = found.map(|stream| detailed(&**stream, clock)).collect();
        if clients.is_empty() {
            let nodes = streams.iter().filter_map(|stream| stream.node());
            return Err(near::names(id, nodes.map(|node| node.id)));
        }
        Ok(ClientList { clients })
    }

    /// All streams, the oldest first. Each is locked while it is looked at, and only then.
    pub(crate) fn streams(&self) -> Vec<Arc<dyn Inspect>> {
        self.lock().open.values().cloned().collect()
    }

    fn close(&self, stream: u64) {
        self.lock().open.remove(&stream);
        self.metrics.stream_closed();
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn detailed(stream: &dyn Inspect, clock: Clock) -> ClientView {
    let mut resources = Vec::new();
    for (type_url, rows) in stream.rows(clock) {
        resources.extend(rows.iter().map(|row| row.view(&type_url)));
    }
    resources.sort_by_key(|row| {
        let is_refused = row.nack.is_some();
        std::cmp::Reverse((is_refused, row.state))
    });
    ClientView {
        resources: Some(resources),
        ..stream.view(clock)
    }
}

/// A time in seconds since 1970.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
