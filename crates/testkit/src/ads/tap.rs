//! A server that forwards to another control plane and records the messages.
//!
//! The tap lets a test check the messages between two programs that it does not control.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_xds::{Protocol, Request as AdsRequest};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Response, Status, Streaming};

use super::names::AskedNames;
use super::{AdsStream, Behaviour, Messages, PATIENCE, Server};
use crate::Said;

/// Forwards the messages between a client and a control plane, and records them.
#[derive(Debug)]
pub struct Tap {
    server: Server<PassOn>,
}

/// The parts of a message that both variants of the protocol have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// From the client.
    Request {
        /// The type that the message is about.
        type_url: String,
        /// The nonce of the response that the request answers; empty if none.
        nonce: String,
        /// The reason why the client refuses that response; `None` for an ACK.
        error: Option<String>,
        /// All names that the client asks for after this request, not only new ones.
        names: BTreeSet<String>,
    },
    /// To the client.
    Response {
        /// The type that the message is about.
        type_url: String,
        /// The nonce of the response.
        nonce: String,
    },
}

impl Tap {
    /// Starts to forward to the control plane at `upstream`.
    pub fn start(upstream: SocketAddr) -> Self {
        let server = Server::start(PassOn {
            upstream: Endpoint::from_shared(format!("http://{upstream}")).expect("an address"),
            tape: Tape::default(),
        });
        Self { server }
    }

    /// The address on which clients reach the tap.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// All messages so far, in the order in which they passed.
    pub fn passed(&self) -> Vec<Passed> {
        self.server.behaviour.tape.0.borrow().clone()
    }

    /// Waits until `expected` is true of the messages so far. `what` names the condition in the
    /// message of a failure.
    ///
    /// # Panics
    ///
    /// If the condition does not become true in time.
    pub async fn until(&self, what: &str, expected: impl FnMut(&Vec<Passed>) -> bool) {
        let mut tape = self.server.behaviour.tape.0.subscribe();
        let waited = timeout(PATIENCE, tape.wait_for(expected)).await.is_ok();
        assert!(waited, "no {what} in {:#?}", self.passed());
    }
}

#[derive(Clone, Debug, Default)]
struct Tape(Arc<watch::Sender<Vec<Passed>>>);

impl Tape {
    fn record(&self, passed: Passed) {
        self.0.send_modify(|all| all.push(passed));
    }

    fn response(&self, said: &Said) {
        let (type_url, nonce) = match said {
            Said::Delta(response) => (&response.type_url, &response.nonce),
            Said::Sotw(response) => (&response.type_url, &response.nonce),
        };
        self.record(Passed::Response {
            type_url: type_url.clone(),
            nonce: nonce.clone(),
        });
    }

    fn request(&self, request: &AdsRequest, asked: &mut AskedNames) {
        let (type_url, nonce, error) = match request {
            AdsRequest::Delta(r) => (&r.type_url, &r.response_nonce, &r.error_detail),
            AdsRequest::Sotw(r) => (&r.type_url, &r.response_nonce, &r.error_detail),
        };
        self.record(Passed::Request {
            type_url: type_url.clone(),
            nonce: nonce.clone(),
            error: error.as_ref().map(|error| error.message.clone()),
            names: asked.follow(request).clone(),
        });
    }
}

#[derive(Clone, Debug)]
struct PassOn {
    upstream: Endpoint,
    tape: Tape,
}

#[tonic::async_trait]
impl Behaviour for PassOn {
    async fn serve(self, stream: AdsStream) {
        let mut client = AggregatedDiscoveryServiceClient::new(self.upstream.connect_lazy());
        let answers = match stream.protocol {
            Protocol::Delta => {
                let requests = self.requests(stream.requests, |request| match request {
                    AdsRequest::Delta(request) => Some(request),
                    AdsRequest::Sotw(_) => None,
                });
                let answers = client.delta_aggregated_resources(requests).await;
                answers.map(|answers| boxed(answers, Said::Delta))
            }
            Protocol::StateOfTheWorld => {
                let requests = self.requests(stream.requests, |request| match request {
                    AdsRequest::Sotw(request) => Some(request),
                    AdsRequest::Delta(_) => None,
                });
                let answers = client.stream_aggregated_resources(requests).await;
                answers.map(|answers| boxed(answers, Said::Sotw))
            }
        };
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(status) => {
                // The client may be gone.
                let _ = stream.responses.send(Err(status));
                return;
            }
        };
        while let Some(answer) = answers.next().await {
            if let Ok(said) = &answer {
                self.tape.response(said);
            }
            if stream.responses.send(answer).is_err() {
                return;
            }
        }
    }
}

impl PassOn {
    /// The requests of a stream; each is recorded as it passes.
    fn requests<Q: Send + 'static>(
        &self,
        mut requests: Messages<AdsRequest>,
        unwrap: fn(AdsRequest) -> Option<Q>,
    ) -> UnboundedReceiverStream<Q> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let tape = self.tape.clone();
        let mut asked = AskedNames::default();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                tape.request(&request, &mut asked);
                if unwrap(request).is_none_or(|request| sender.send(request).is_err()) {
                    return;
                }
            }
        });
        UnboundedReceiverStream::new(receiver)
    }
}

/// The answers of a control plane, in either protocol.
fn boxed<P: Send + 'static>(
    answers: Response<Streaming<P>>,
    wrap: fn(P) -> Said,
) -> Messages<Result<Said, Status>> {
    let answers = answers.into_inner();
    Box::pin(answers.map(move |answer| answer.map(wrap)))
}
