//! One open stream: its task works on it, and pages look at it, each for a moment under its lock.
//!
//! Pages are worked out when somebody asks, so that a stream keeps no second copy of its state.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crowfly_xds::{ClientNode, ServerHalf};
use envoy_types::pb::envoy::config::core::v3::Node;

use super::ledger::Ledger;
use super::rows::{self, Clock, Row};
use super::view::{ClientView, NodeView, Protocol};
use super::{Clients, unix};
use crate::incoming::Peer;
use crate::limits::Reached;
use crate::metrics::Metrics;

/// The part of a stream that never changes.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) stream: u64,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Peer,
    pub(crate) connected_at: std::time::SystemTime,
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
    /// The view that the client is served; `None` for the base.
    pub(crate) view: Option<Arc<str>>,
    pub(crate) ledger: Ledger,
    pub(crate) reached: Reached,
}

impl<H> OpenStream<H> {
    pub(super) fn new(head: Head, metrics: Metrics) -> Self {
        Self {
            head,
            talk: Mutex::new(Talk {
                half: None,
                view: None,
                ledger: Ledger::new(metrics),
                reached: Reached::default(),
            }),
        }
    }

    fn talk(&self) -> MutexGuard<'_, Talk<H>> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open stream of either variant of the protocol.
pub(crate) trait Inspect: fmt::Debug + Send + Sync {
    /// The number and the address of the stream, because a node may have several.
    fn scope(&self) -> String;
    /// The identity of the client; `None` before its first request.
    fn node(&self) -> Option<Node>;
    /// True if the client has this node id.
    fn has_id(&self, id: &str) -> bool;
    /// The stream as it is now, without its resources.
    fn view(&self, clock: Clock) -> ClientView;
    /// The resources that the client wants, by type.
    fn rows(&self, clock: Clock) -> Vec<(String, Vec<Row>)>;
}

impl<H: ServerHalf + Send> Inspect for OpenStream<H> {
    fn scope(&self) -> String {
        let Head { stream, peer, .. } = &self.head;
        format!("stream {stream} from {}", peer.address())
    }

    fn node(&self) -> Option<Node> {
        self.talk().node().map(ClientNode::to_message)
    }

    fn has_id(&self, id: &str) -> bool {
        self.talk().node().is_some_and(|node| node.id() == id)
    }

    fn view(&self, clock: Clock) -> ClientView {
        let talk = self.talk();
        let types = talk.half.iter().flat_map(|half| {
            let types = talk.ledger.types();
            types.map(move |(url, of)| (url.to_owned(), rows::of_type(half, url, of, clock)))
        });
        ClientView {
            stream: self.head.stream,
            protocol: self.head.protocol,
            peer: Some(self.head.peer.address()),
            identity: self.head.peer.names().to_vec(),
            connected_at: unix(self.head.connected_at),
            node: talk.node().map(|node| NodeView::new(&node.to_message())),
            view: talk.view.as_deref().map(str::to_owned),
            types: types.collect(),
            slow_since: talk.reached.slow_since(),
            limits_reached: talk.reached.view(),
            resources: None,
        }
    }

    fn rows(&self, clock: Clock) -> Vec<(String, Vec<Row>)> {
        let talk = self.talk();
        let rows = talk.half.iter().flat_map(|half| {
            let types = talk.ledger.types();
            types.map(move |(url, of)| (url.to_owned(), rows::of_resources(half, url, of, clock)))
        });
        rows.collect()
    }
}

impl<H: ServerHalf> Talk<H> {
    /// The identity of the client; `None` before its first request.
    pub(crate) fn node(&self) -> Option<&ClientNode> {
        self.half.as_ref().and_then(ServerHalf::node)
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
