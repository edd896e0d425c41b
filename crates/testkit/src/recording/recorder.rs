//! A control plane that records every message.
//!
//! The recorder serves resources over a real socket, because a foreign client needs a server to
//! connect to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crowfly_xds::{Protocol, Request};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Event, Message};
use crate::Said;
use crate::ads::PATIENCE;
use crate::ads::snapshot::{SnapshotServer, StreamWitness, Witness};
use crate::builders::Resources;

/// Serves resources over incremental ADS on a real socket, and records every message.
#[derive(Debug)]
pub struct Recorder {
    server: SnapshotServer<Tape>,
}

impl Recorder {
    /// Starts to serve `resources`.
    pub fn start(resources: &Resources) -> Self {
        let mut server = SnapshotServer::stopped(resources, Tape::default());
        server.server.restart();
        Self { server }
    }

    /// The address that the server listens on. The address stays the same through stops and
    /// restarts.
    pub fn address(&self) -> SocketAddr {
        self.server.server.address()
    }

    /// Serves `resources`, and nothing else, from now on.
    pub fn set(&self, resources: &Resources) {
        self.server.set(resources);
    }

    /// Cuts every connection at once and refuses new ones.
    pub async fn stop(&mut self) {
        self.server.server.stop().await;
    }

    /// Accepts connections again.
    pub fn restart(&mut self) {
        self.server.server.restart();
    }

    /// Waits until `expected` is true of the recording. `what` names the condition in the message
    /// of a failure.
    ///
    /// # Panics
    ///
    /// If the condition does not become true in time.
    pub async fn until(&self, what: &str, expected: impl Fn(&[Event]) -> bool) {
        let mut tape = self.server.witness().0.grown.subscribe();
        let waiting = tape.wait_for(|_| expected(&self.events()));
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "no {what} in {:#?}", self.events());
    }

    /// All messages so far.
    pub fn events(&self) -> Vec<Event> {
        self.server.witness().events()
    }
}

#[derive(Clone, Debug, Default)]
struct Tape(Arc<Events>);

#[derive(Debug, Default)]
struct Events {
    events: Mutex<Vec<Event>>,
    grown: watch::Sender<usize>,
    streams: AtomicU64,
}

impl Tape {
    fn events(&self) -> Vec<Event> {
        let events = self.0.events.lock();
        events.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, stream: u64, message: Message) {
        let events = self.0.events.lock();
        let mut events = events.unwrap_or_else(PoisonError::into_inner);
        events.push(Event { stream, message });
        drop(events);
        self.0.grown.send_modify(|length| *length += 1);
    }
}

impl Witness for Tape {
    type Stream = RecordedStream;

    /// True for incremental streams, because only those are recorded.
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Delta
    }

    fn opened(&self) -> RecordedStream {
        RecordedStream {
            tape: self.clone(),
            number: self.0.streams.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

struct RecordedStream {
    tape: Tape,
    number: u64,
}

impl StreamWitness for RecordedStream {
    fn asked(&mut self, request: &Request) {
        if let Request::Delta(request) = request {
            let mut request = Box::new(request.clone());
            request.node = None;
            self.tape.record(self.number, Message::Request(request));
        }
    }

    fn said(&mut self, said: &Said) {
        if let Said::Delta(response) = said {
            let message = Message::Response(response.clone());
            self.tape.record(self.number, message);
        }
    }
}
