//! One ADS stream over tonic, as events.

use std::error::Error as _;
use std::sync::Arc;

use crowfly_xds::{Ending, EndingKind, Protocol, Request, ServerId};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use futures_util::stream;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::{Code, Status};

use crate::codec::AdsCodec;
use crate::limit::{Limited, TooLarge};
use crate::queue::{Receiver, Sender, queue};
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

/// Names a stream: to which server, and the how-manieth of this client.
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
    requests: Sender<Box<Request>>,
    resume: Arc<Notify>,
    task: JoinHandle<()>,
}

impl AdsStream {
    /// Hands over a request. If the stream is over, its `Closed` says so.
    pub(crate) fn send(&self, request: Box<Request>) {
        self.requests.send(request);
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
        events: Sender<(StreamId, StreamEvent)>,
    ) -> AdsStream {
        let (requests, to_send) = queue();
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
        let ended = match protocol {
            Protocol::Delta => {
                let wrap = |response| StreamEvent::DeltaResponse(Box::new(response));
                self.converse::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>(
                    &lease, DELTA, to_send, as_delta, wrap, link,
                )
                .await
            }
            Protocol::StateOfTheWorld => {
                let wrap = |response| StreamEvent::Response(Box::new(response));
                self.converse::<DiscoveryRequest, DiscoveryResponse>(
                    &lease, SOTW, to_send, as_sotw, wrap, link,
                )
                .await
            }
        };
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

    async fn converse<Q, P>(
        &self,
        lease: &Lease,
        path: &'static str,
        to_send: Requests,
        unwrap: fn(Request) -> Option<Q>,
        wrap: fn(P) -> StreamEvent,
        link: &Link,
    ) -> Result<(), Status>
    where
        Q: Message + 'static,
        P: Message + Default + 'static,
    {
        let mut request = tonic::Request::new(announce_sent(to_send, unwrap, link.clone()));
        lease.authorize(request.metadata_mut()).await?;
        let channel = Limited {
            channel: lease.channel(),
            limit: self.max_response_bytes,
        };
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.max_response_bytes);
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(error_chain(&error)))?;
        // A server may hold its headers back until its first response, so this does not wait for
        // them before the first request goes out: the request stream is polled meanwhile.
        let codec = AdsCodec::<Q, P>::default();
        let path = PathAndQuery::from_static(path);
        let response = grpc.streaming(request, path, codec).await?;
        let mut responses = response.into_inner();
        while let Some(response) = responses.message().await? {
            link.tell(wrap(response));
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

type Requests = Receiver<Box<Request>>;

/// The way back to the driver.
#[derive(Clone, Debug)]
struct Link {
    id: StreamId,
    events: Sender<(StreamId, StreamEvent)>,
    resume: Arc<Notify>,
}

impl Link {
    fn tell(&self, event: StreamEvent) {
        self.events.send((self.id, event));
    }
}

/// Tells when the transport takes a request: the deadline of what it asks for begins then.
fn announce_sent<Q>(
    to_send: Requests,
    unwrap: fn(Request) -> Option<Q>,
    link: Link,
) -> impl stream::Stream<Item = Q> {
    stream::unfold((to_send, link), move |(mut to_send, link)| async move {
        let request = unwrap(*to_send.recv().await?)?;
        link.tell(StreamEvent::Sent);
        Some((request, (to_send, link)))
    })
}

fn as_delta(request: Request) -> Option<DeltaDiscoveryRequest> {
    match request {
        Request::Delta(request) => Some(request),
        Request::Sotw(_) => None,
    }
}

fn as_sotw(request: Request) -> Option<DiscoveryRequest> {
    match request {
        Request::Delta(_) => None,
        Request::Sotw(request) => Some(request),
    }
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
