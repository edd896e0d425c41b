//! One ADS stream over tonic, as events.
//!
//! The protocol is elsewhere, without I/O; this moves messages and says when they were sent.

use std::convert::Infallible;
use std::error::Error as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use crowfly_xds::{Ending, EndingKind, Protocol, Request, ServerId};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use futures_channel::mpsc;
use futures_util::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Method, Uri, Version};
use http_body::Frame;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tower_service::Service as _;

use crate::codec;
use crate::messages::{Messages, TooLarge};
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

/// Names a stream by its server and a number that is unique in the client, because an event of a
/// stream that was replaced must not count for its successor.
pub(crate) type StreamId = (ServerId, u64);

/// Something that happened on a stream.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    Closed(Ending),
    /// Every watcher has taken what the last response changed.
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
    /// Its last response has been consumed, and it has not been resumed since.
    pub(crate) paused: bool,
    requests: mpsc::UnboundedSender<Box<Request>>,
    resume: Arc<Notify>,
    task: JoinHandle<()>,
}

impl AdsStream {
    /// Hands over a request. If the stream is over, its `Closed` says so.
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
    /// Opens a stream in the background. Its first event is `Opened` or `Closed`; after each
    /// response it reads no further until it is resumed.
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
        let request = Outgoing {
            to_send,
            link: link.clone(),
        };
        // Boxed, for it is large, and done when the conversation has begun.
        let response = Box::pin(call(lease, protocol, request)).await?;
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

/// The way back to the driver.
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

/// The body of the request. It tells when the transport takes a message: the deadline of what that asks
/// for begins then.
struct Outgoing {
    to_send: Requests,
    link: Link,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(request) = ready!(self.to_send.poll_next_unpin(cx)) else {
            return Poll::Ready(None);
        };
        self.link.tell(StreamEvent::Sent);
        Poll::Ready(Some(Ok(Frame::data(codec::encode(&request)))))
    }
}

/// Begins a conversation. A server may hold its headers back until its first response: requests go out
/// meanwhile.
async fn call(
    lease: &Lease,
    protocol: Protocol,
    outgoing: Outgoing,
) -> Result<http::Response<Body>, Status> {
    let mut metadata = MetadataMap::new();
    lease.authorize(&mut metadata).await?;
    let mut request = http::Request::new(Body::new(outgoing));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(match protocol {
        Protocol::Delta => DELTA,
        Protocol::StateOfTheWorld => SOTW,
    });
    *request.headers_mut() = metadata.into_headers();
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut channel = lease.channel();
    poll_fn(|cx| channel.poll_ready(cx))
        .await
        .map_err(|error| Status::unavailable(error_chain(&error)))?;
    let response = channel.call(request).await;
    response.map_err(|error| Status::from_error(error.into()))
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
