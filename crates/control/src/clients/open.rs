//! One open stream: its task works on it, and pages look at it, each for a moment under its lock.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crowfly_xds::ServerHalf;
use serde::Serialize;

use super::ledger::{Ledger, TypeView};
use super::{Clients, NodeView, Protocol};
use crate::metrics::Metrics;

/// The part of a stream that never changes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Head {
    pub(super) stream: u64,
    pub(super) protocol: Protocol,
    pub(super) peer: Option<SocketAddr>,
    pub(super) connected_at: u64,
}

/// One stream, as an operator sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Client {
    #[serde(flatten)]
    head: Head,
    node: Option<NodeView>,
    types: BTreeMap<String, TypeView>,
}

/// One open stream.
pub(super) struct OpenStream<H> {
    head: Head,
    talk: Mutex<Talk<H>>,
}

/// The state of a stream: what its client asked for, was sent, and answered.
#[derive(Debug)]
pub(crate) struct Talk<H> {
    /// The server half; `None` before the first request, which says what the client is served.
    pub(crate) half: Option<H>,
    pub(crate) ledger: Ledger,
}

impl<H> OpenStream<H> {
    pub(super) fn new(head: Head, metrics: Metrics) -> Self {
        Self {
            head,
            talk: Mutex::new(Talk {
                half: None,
                ledger: Ledger::new(metrics),
            }),
        }
    }

    fn talk(&self) -> MutexGuard<'_, Talk<H>> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open stream of either variant of the protocol.
pub(super) trait Inspect: fmt::Debug + Send + Sync {
    /// The stream as it is now.
    fn client(&self) -> Client;
}

impl<H: ServerHalf + Send> Inspect for OpenStream<H> {
    fn client(&self) -> Client {
        let talk = self.talk();
        let node = talk.half.as_ref().and_then(ServerHalf::node);
        Client {
            head: self.head,
            node: node.map(NodeView::new),
            types: talk.ledger.types(),
        }
    }
}

impl<H> fmt::Debug for OpenStream<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenStream").field(&self.head).finish()
    }
}

/// The handle of the task that drives a stream. The stream is gone when it is dropped.
pub(crate) struct ClientHandle<H> {
    clients: Clients,
    stream: Arc<OpenStream<H>>,
}

impl<H> ClientHandle<H> {
    pub(super) fn new(clients: Clients, stream: Arc<OpenStream<H>>) -> Self {
        Self { clients, stream }
    }

    pub(crate) fn id(&self) -> u64 {
        self.stream.head.stream
    }

    /// The state of the stream. It is locked until the guard is dropped, so nothing is awaited with it.
    pub(crate) fn talk(&self) -> MutexGuard<'_, Talk<H>> {
        self.stream.talk()
    }
}

impl<H> Drop for ClientHandle<H> {
    fn drop(&mut self) {
        self.clients.close(self.stream.head.stream);
    }
}
