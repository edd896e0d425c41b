//! A behaviour: the server half of the protocol serves a snapshot.

use std::fmt::Debug;
use std::sync::Arc;

use crowfly_xds::{Protocol, Request, RequestOutcome, Snapshot};
use tokio::sync::watch;
use tokio_stream::StreamExt;

use super::{AdsStream, Behaviour, Server};
use crate::Said;
use crate::builders::Resources;
use crate::half::EitherHalf;

/// A server of a snapshot that can be replaced, with a witness of what is said.
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

/// Sees the streams of a server.
pub(crate) trait Witness: Clone + Debug + Send + Sync + 'static {
    type Stream: StreamWitness;

    /// Whether the server takes streams of this protocol.
    fn speaks(&self, _: Protocol) -> bool {
        true
    }

    /// A stream was opened.
    fn opened(&self) -> Self::Stream;
}

/// Sees what is said on a stream, and is dropped when the stream ends.
pub(crate) trait StreamWitness: Send + 'static {
    /// The client has said something.
    fn asked(&mut self, request: &Request);

    /// What the server half made of that.
    fn understood(&mut self, _: RequestOutcome) {}

    /// The server answers.
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
