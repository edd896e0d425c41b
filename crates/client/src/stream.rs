//! One ADS stream over tonic, as events.
//!
//! The driver must never wait for one server, because it serves all of them. So each stream is a task of its own. The
//! task sends its events to the driver, and reads one response at a time.

use std::error::Error as _;
use std::sync::Arc;

use crowfly_xds::{Ending, EndingKind, Protocol, Request, ServerId};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use futures_channel::mpsc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::codec;
use crate::messages::{Messages, TooLarge};
use crate::outgoing::{Outgoing, call};
use crate::transports::{Lease, Transports};

const SOTW: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// One server, as a client sees it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) uri: Arc<str>,
    pub(crate) transports: Arc<Transports>,
    pub(crate) max_response_bytes: usize,
}

/// Names a stream: its server, and its number among all streams that the client has opened. An event of an
/// older stream is recognised by its number, and ignored.
pub(crate) type StreamId = (ServerId, u64);

/// An event on a stream, for the driver.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    Closed(Ending),
    /// All watchers have taken the updates of the last response.
    Consumed,
    DeltaResponse(Box<DeltaDiscoveryResponse>),
    Opened,
    Response(Box<DiscoveryResponse>),
    Sent,
}

/// A stream that is open or being opened. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct AdsStream {
    pub(crate) id: StreamId,
    /// True if the last response has been consumed, and the stream has not been resumed since.
    pub(crate) paused: bool,
    requests: mpsc::UnboundedSender<Box<Request>>,
    resume: Arc<Notify>,
    task: JoinHandle<()>,
}

impl AdsStream {
    /// Queues a request. The request is lost if the stream has ended. The event `Closed` tells the driver so.
    pub(crate) fn send(&self, request: Box<Request>) {
        let _ = self.requests.unbounded_send(request);
    }

    /// Lets the next response be read.
    pub(crate) fn resume(&mut self) {
        self.paused = false;
        self.resume.notify_one();
    }
}

impl Drop for AdsStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Opens a stream in the background. The first event is `Opened` or `Closed`. After each response the stream reads
    /// no further until it is resumed.
    pub(crate) fn open(
        &self,
        id: StreamId,
        protocol: Protocol,
        events: mpsc::UnboundedSender<(StreamId, StreamEvent)>,
    ) -> AdsStream {
        let (requests, to_send) = mpsc::unbounded();
        let resume = Arc::new(Notify::new());
        let link = Link {
            id,
            events,
            resume: Arc::clone(&resume),
        };
        let server = self.clone();
        let task = tokio::spawn(async move {
            let ending = server.run(protocol, to_send, &link).await;
            link.tell(StreamEvent::Closed(ending));
        });
        AdsStream {
            id,
            paused: false,
            requests,
            resume,
            task,
        }
    }

    /// Runs a stream to its end.
    async fn run(&self, protocol: Protocol, to_send: Requests, link: &Link) -> Ending {
        let lease = match self.transports.lease().await {
            Ok(lease) => lease,
            Err(reason) => {
                let uri = &self.uri;
                return Ending::ordinary(format!("cannot connect to {uri}: {reason}"));
            }
        };
        link.tell(StreamEvent::Opened);
        let ended = self.converse(&lease, protocol, to_send, link).await;
        match ended {
            Ok(()) => Ending::ordinary(format!("{} ended the stream", self.uri)),
            Err(status) => {
                if status.code() == Code::Unavailable {
                    lease.discard();
                }
                self.ending(&status)
            }
        }
    }

    async fn converse(
        &self,
        lease: &Lease,
        protocol: Protocol,
        to_send: Requests,
        link: &Link,
    ) -> Result<(), Status> {
        // The driver is told when the transport takes a message, because the timers of the resources that the
        // message asks for start then.
        let told = link.clone();
        let request = Outgoing {
            messages: to_send,
            take: move |request: &Request| {
                told.tell(StreamEvent::Sent);
                codec::encode(request)
            },
        };
        let path = match protocol {
            Protocol::Delta => DELTA,
            Protocol::StateOfTheWorld => SOTW,
        };
        // Boxed: the future is large, and is needed only until the stream is open.
        let response = Box::pin(call(lease, path, Body::new(request))).await?;
        let Some(mut messages) = Messages::of(response, self.max_response_bytes)? else {
            return Ok(());
        };
        while let Some(event) = messages.next(|message| read(message, protocol)).await? {
            link.tell(event);
            link.resume.notified().await;
        }
        Ok(())
    }

    fn ending(&self, status: &Status) -> Ending {
        let uri = &self.uri;
        let source = status.source();
        if let Some(too_large) = source.and_then(|error| error.downcast_ref::<TooLarge>()) {
            return Ending {
                reason: format!("{uri} sent {too_large}").into(),
                kind: EndingKind::TooLarge {
                    type_known: too_large.of_type.is_some(),
                },
            };
        }
        let cause = status
            .source()
            .map(|source| format!(": {}", error_chain(source)))
            .unwrap_or_default();
        let (code, message) = (status.code(), status.message());
        Ending {
            reason: format!("{uri} ended the stream with {code:?}: {message}{cause}").into(),
            kind: match code {
                Code::Unimplemented => EndingKind::Unimplemented,
                _ => EndingKind::Ordinary,
            },
        }
    }
}

type Requests = mpsc::UnboundedReceiver<Box<Request>>;

/// Sends events of one stream to the driver.
#[derive(Clone, Debug)]
struct Link {
    id: StreamId,
    events: mpsc::UnboundedSender<(StreamId, StreamEvent)>,
    resume: Arc<Notify>,
}

impl Link {
    fn tell(&self, event: StreamEvent) {
        // The driver is gone only when the client is.
        let _ = self.events.unbounded_send((self.id, event));
    }
}

fn read(message: &[u8], protocol: Protocol) -> Result<StreamEvent, Status> {
    Ok(match protocol {
        Protocol::Delta => StreamEvent::DeltaResponse(Box::new(codec::decode(message)?)),
        Protocol::StateOfTheWorld => StreamEvent::Response(Box::new(codec::decode(message)?)),
    })
}

/// An error with everything that caused it; tonic's own text is often only "transport error".
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
