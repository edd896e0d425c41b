//! One LRS stream over tonic, as events. The task of a server must not block on its stream, because it serves all
//! sources of that server.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use crowfly_xds::load_report::StreamEnd;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use futures_channel::{mpsc, oneshot};
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::warn;

use crate::codec;
use crate::credentials::SILENCE;
use crate::messages::Messages;
use crate::outgoing::{Outgoing, call};
use crate::stream::{Server, error_chain};
use crate::transports::Lease;

const PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The largest response. A response holds only the names of clusters.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// An event on a stream, for the task that owns it.
#[derive(Debug)]
pub(super) enum StreamEvent {
    Closed(StreamEnd),
    Opened,
    Response(LoadStatsResponse),
    Sent,
}

pub(super) type Events = mpsc::UnboundedSender<(u64, StreamEvent)>;

/// A stream that is open or being opened. Dropping it ends it at once.
#[derive(Debug)]
pub(super) struct LrsStream {
    pub(super) id: u64,
    requests: Option<mpsc::UnboundedSender<Box<LoadStatsRequest>>>,
    resume: Arc<Notify>,
    task: JoinHandle<()>,
    /// Dropped with the stream, so that no request goes out that is still queued.
    _alive: oneshot::Sender<Never>,
}

/// A type without values, because the channel carries no message: the receiver only notices that the sender is dropped.
#[derive(Debug)]
enum Never {}

/// The requests that are queued. The queue ends when the stream is dropped, because the connection holds it for longer.
fn while_alive<M>(
    queued: mpsc::UnboundedReceiver<M>,
    dropped: oneshot::Receiver<Never>,
) -> impl Stream<Item = M> + Send + Unpin
where
    M: Send,
{
    queued.take_until(dropped)
}

impl LrsStream {
    /// Opens a stream in the background. The first event is `Opened` or `Closed`. After each response the stream reads
    /// no further until it is resumed.
    pub(super) fn open(server: &Server, id: u64, events: Events) -> Self {
        let (requests, queued) = mpsc::unbounded();
        let (alive, dropped) = oneshot::channel();
        let to_send = while_alive(queued, dropped);
        let resume = Arc::new(Notify::new());
        let run = Run {
            id,
            server: server.clone(),
            events,
            resume: Arc::clone(&resume),
        };
        let task = tokio::spawn(async move {
            let end = run.to_end(to_send).await;
            run.tell(StreamEvent::Closed(end));
        });
        Self {
            id,
            requests: Some(requests),
            resume,
            task,
            _alive: alive,
        }
    }

    /// Queues a request. The request is lost if the stream has ended. The event `Closed` tells the task so.
    pub(super) fn send(&self, request: Box<LoadStatsRequest>) {
        if let Some(requests) = &self.requests {
            let _ = requests.unbounded_send(request);
        }
    }

    /// Ends the client's half of the stream, after the requests that are queued.
    pub(super) fn finish(&mut self) {
        self.requests = None;
    }

    /// Lets the next response be read.
    pub(super) fn resume(&self) {
        self.resume.notify_one();
    }
}

impl Drop for LrsStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The requests of a stream, as its connection takes them.
trait Requests: Stream<Item = Box<LoadStatsRequest>> + Send + Unpin + 'static {}

impl<S: Stream<Item = Box<LoadStatsRequest>> + Send + Unpin + 'static> Requests for S {}

/// A stream from its own side.
struct Run {
    id: u64,
    server: Server,
    events: Events,
    resume: Arc<Notify>,
}

impl Run {
    async fn to_end(&self, to_send: impl Requests) -> StreamEnd {
        let uri = &self.server.uri;
        let lease = match self.server.transports.lease().await {
            Ok(lease) => lease,
            Err(reason) => return StreamEnd::told(format!("cannot connect to {uri}: {reason}")),
        };
        self.tell(StreamEvent::Opened);
        match self.converse(&lease, to_send).await {
            Ok(()) => StreamEnd::told(format!("{uri} ended the stream")),
            Err(status) => {
                if status.code() == Code::Unavailable {
                    lease.discard();
                }
                end_of(uri, &status)
            }
        }
    }

    async fn converse(&self, lease: &Lease, to_send: impl Requests) -> Result<(), Status> {
        let (id, events) = (self.id, self.events.clone());
        let request = Outgoing {
            messages: to_send,
            // From here on the report belongs to the connection.
            take: move |request: &LoadStatsRequest| {
                let _ = events.unbounded_send((id, StreamEvent::Sent));
                codec::encode_message(request)
            },
        };
        let response = Box::pin(call(lease, PATH, Body::new(request))).await?;
        let Some(mut messages) = Messages::of(response, MAX_RESPONSE_BYTES)? else {
            return Ok(());
        };
        let read = |message: &[u8]| Ok(LoadStatsResponse::decode(message));
        while let Some(response) = messages.next(read).await? {
            match response {
                Ok(response) => {
                    self.tell(StreamEvent::Response(response));
                    self.resume.notified().await;
                }
                Err(error) => {
                    let server = &*self.server.uri;
                    warn!(server, %error, "an LRS response is not valid and has no effect");
                }
            }
        }
        Ok(())
    }

    fn tell(&self, event: StreamEvent) {
        // The task that listens is gone only when nothing is to be reported.
        let _ = self.events.unbounded_send((self.id, event));
    }
}

fn end_of(uri: &str, status: &Status) -> StreamEnd {
    let cause = status.source().map(error_chain);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let (code, message) = (status.code(), status.message());
    // Only a connection that timed out was silent; every other end came from the other side.
    let silence = match cause.contains("timed out") {
        true => SILENCE,
        false => Duration::ZERO,
    };
    StreamEnd {
        reason: format!("{uri} ended the stream with {code:?}: {message}{cause}").into(),
        silence,
        // A status with a cause was made here, from an error of the connection.
        is_refusal: is_refusal(code) && status.source().is_none(),
    }
}

/// Returns whether a server ends streams with this code because it does not want them. The other codes are of servers
/// that restart or fail.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Unauthenticated
            | Code::Unimplemented
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S13-08: a report that was given up does not go out, although the connection still holds its queue.
    #[tokio::test]
    async fn a_stream_that_is_dropped_sends_nothing_more() {
        let queue = || {
            let (requests, queued) = mpsc::unbounded();
            let (alive, dropped) = oneshot::channel();
            requests.unbounded_send("report").unwrap();
            (requests, alive, while_alive(queued, dropped))
        };
        let (requests, _alive, mut finished) = queue();
        drop(requests);
        assert_eq!(finished.next().await, Some("report"), "its end is awaited");
        assert_eq!(finished.next().await, None);

        let (_requests, alive, mut dropped) = queue();
        drop(alive);
        assert_eq!(dropped.next().await, None);
    }
}
