//! A server that serves a snapshot through the server half of the protocol.
//!
//! [`Witness`] is separate, because each test server on top of it records something else.

use std::fmt::Debug;
use std::sync::Arc;

use crowfly_xds::{Protocol, Request, RequestOutcome, Snapshot};
use tokio::sync::watch;
use tokio_stream::StreamExt;

use super::{AdsStream, Behaviour, Server};
use crate::Said;
use crate::builders::Resources;
use crate::half::EitherHalf;

/// A server of a snapshot that can be replaced, with a witness that sees every message.
#[derive(Debug)]
pub(crate) struct SnapshotServer<W> {
    pub(crate) server: Server<Serving<W>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

impl<W: Witness> SnapshotServer<W> {
    /// A server of `resources` that refuses connections until it is restarted.
    pub(crate) fn stopped(resources: &Resources, witness: W) -> Self {
        let (snapshot, receiver) = watch::channel(resources.snapshot());
        Self {
            server: Server::stopped(Serving {
                snapshot: receiver,
                witness,
            }),
            snapshot,
        }
    }

    /// Serves `resources`, and nothing else, from now on.
    pub(crate) fn set(&self, resources: &Resources) {
        self.snapshot.send_replace(resources.snapshot());
    }

    pub(crate) fn witness(&self) -> &W {
        &self.server.behaviour.witness
    }
}

/// Observes the streams of a server.
pub(crate) trait Witness: Clone + Debug + Send + Sync + 'static {
    type Stream: StreamWitness;

    /// True if the server takes streams of this protocol.
    fn speaks(&self, _: Protocol) -> bool {
        true
    }

    /// Observes a new stream.
    fn opened(&self) -> Self::Stream;
}

/// Observes the messages of a stream, and is dropped when the stream ends.
pub(crate) trait StreamWitness: Send + 'static {
    /// Observes a request of the client.
    fn asked(&mut self, request: &Request);

    /// Observes the outcome of that request.
    fn understood(&mut self, _: RequestOutcome) {}

    /// Observes a response of the server.
    fn said(&mut self, _: &Said) {}
}

#[derive(Clone, Debug)]
pub(crate) struct Serving<W> {
    snapshot: watch::Receiver<Arc<Snapshot>>,
    witness: W,
}

#[tonic::async_trait]
impl<W: Witness> Behaviour for Serving<W> {
    fn speaks(&self, protocol: Protocol) -> bool {
        self.witness.speaks(protocol)
    }

    async fn serve(mut self, mut stream: AdsStream) {
        let mut witness = self.witness.opened();
        let snapshot = Arc::clone(&self.snapshot.borrow_and_update());
        let mut half = EitherHalf::new(stream.protocol, snapshot);
        loop {
            tokio::select! {
                request = stream.requests.next() => {
                    let Some(request) = request else { return };
                    witness.asked(&request);
                    witness.understood(half.handle_request(request));
                }
                changed = self.snapshot.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    half.handle_snapshot(Arc::clone(&self.snapshot.borrow_and_update()));
                }
            }
            while let Some(response) = half.poll_response() {
                witness.said(&response);
                if stream.responses.send(Ok(response)).is_err() {
                    return;
                }
            }
        }
    }
}
