//! A server of resources that records whether the client accepts or refuses them.
//!
//! Most tests are about the resources and not about the protocol, so they use this server.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crowfly_model::Bootstrap;
use crowfly_xds::{Protocol, Request, RequestOutcome};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::PATIENCE;
use super::names::AskedNames;
use super::snapshot::{SnapshotServer, StreamWitness, Witness};
use crate::LrsServer;
use crate::builders::Resources;
use crate::lrs::lrs;

/// A control plane for tests of a client's use of resources, not of the protocol that brings them.
/// The server speaks both variants of the protocol.
#[derive(Debug)]
pub struct ResourceServer {
    server: SnapshotServer<Notes>,
    outcomes: mpsc::UnboundedReceiver<RequestOutcome>,
}

impl ResourceServer {
    /// Starts to serve `resources`.
    pub fn start(resources: &Resources) -> Self {
        let mut server = Self::stopped(resources);
        server.restart();
        server
    }

    /// Starts to serve `resources`, and to take load reports on the same socket.
    pub fn start_with_lrs(resources: &Resources) -> (Self, LrsServer) {
        let mut server = Self::stopped(resources);
        let (lrs, service) = lrs();
        server.server.server.lrs = Some(service);
        server.restart();
        (server, lrs)
    }

    /// A server that refuses connections until [`restart`](Self::restart).
    pub fn stopped(resources: &Resources) -> Self {
        let (sender, outcomes) = mpsc::unbounded_channel();
        let notes = Notes {
            outcomes: sender,
            asked: watch::Sender::default(),
            streams: watch::Sender::new(0),
        };
        Self {
            server: SnapshotServer::stopped(resources, notes),
            outcomes,
        }
    }

    /// The address that the server listens on. The address stays the same through stops and
    /// restarts.
    pub fn address(&self) -> SocketAddr {
        self.server.server.address()
    }

    /// A bootstrap with this server.
    pub fn bootstrap(&self) -> Bootstrap {
        self.server.server.bootstrap(Protocol::StateOfTheWorld)
    }

    /// Serves `resources`, and nothing else, from now on.
    pub fn set(&self, resources: &Resources) {
        self.server.set(resources);
    }

    /// Waits until the client accepts a response of a type, and returns its version. Earlier
    /// outcomes are dropped.
    pub async fn next_ack(&mut self, of_type: &str) -> String {
        loop {
            if let RequestOutcome::Ack { type_url, version } = self.next_outcome().await
                && type_url == of_type
            {
                return version;
            }
        }
    }

    /// Waits until the client refuses a response, and returns its reason. Earlier outcomes are
    /// dropped.
    pub async fn next_nack(&mut self) -> String {
        loop {
            if let RequestOutcome::Nack { message, .. } = self.next_outcome().await {
                return message;
            }
        }
    }

    /// The names of a type that the client asks for now.
    pub fn asked_for(&self, type_url: &str) -> BTreeSet<String> {
        let asked = self.server.witness().asked.borrow();
        asked.of_type(type_url).cloned().unwrap_or_default()
    }

    /// Waits until the client asks for these names of a type, and no others.
    pub async fn until_asked_for(&self, type_url: &str, names: &[&str]) {
        let wanted: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let mut asked = self.server.witness().asked.subscribe();
        let waiting = asked.wait_for(|asked| asked.of_type(type_url) == Some(&wanted));
        let waited = timeout(PATIENCE, waiting).await.is_ok();
        let asked = self.asked_for(type_url);
        assert!(waited, "{type_url}: {asked:?} instead of {wanted:?}");
    }

    /// Waits until this many streams are open.
    pub async fn has_streams(&self, count: usize) {
        let mut streams = self.server.witness().streams.subscribe();
        let reached = streams.wait_for(|streams| *streams == count);
        let reached = timeout(PATIENCE, reached).await;
        reached
            .expect("streams open or end")
            .expect("the service lives as long as this");
    }

    /// Cuts every connection at once and refuses new ones.
    pub async fn stop(&mut self) {
        self.server.server.stop().await;
    }

    /// Accepts connections again.
    pub fn restart(&mut self) {
        self.server.server.restart();
    }

    async fn next_outcome(&mut self) -> RequestOutcome {
        let outcome = timeout(PATIENCE, self.outcomes.recv()).await;
        outcome
            .expect("the client says something")
            .expect("the service lives as long as this")
    }
}

#[derive(Clone, Debug)]
struct Notes {
    outcomes: mpsc::UnboundedSender<RequestOutcome>,
    /// The names that the client asks for on the newest stream.
    asked: watch::Sender<AskedNames>,
    /// The number of open streams.
    streams: watch::Sender<usize>,
}

impl Witness for Notes {
    type Stream = OpenStream;

    fn opened(&self) -> OpenStream {
        self.streams.send_modify(|count| *count += 1);
        self.asked.send_replace(AskedNames::default());
        OpenStream(self.clone())
    }
}

/// Counts as an open stream until it is dropped.
struct OpenStream(Notes);

impl StreamWitness for OpenStream {
    fn asked(&mut self, request: &Request) {
        self.0.asked.send_modify(|asked| {
            asked.follow(request);
        });
    }

    fn understood(&mut self, outcome: RequestOutcome) {
        // The test may have ended.
        let _ = self.0.outcomes.send(outcome);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.send_modify(|count| *count -= 1);
    }
}
