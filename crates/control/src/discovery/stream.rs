//! Drives one stream: it moves messages between the socket and a server half, which holds the rules
//! of the protocol.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::{RequestOutcome, Response, ServerHalf, StreamSettings};
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::watch;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::clients::{ClientHandle, Since, Talk};
use crate::ending::End;
use crate::seat::Seat;

use super::body::Sender;

/// The largest message that gRPC clients take if nothing else is set. A client that is sent more
/// ends the stream, and would be sent the same again.
const USUAL_LIMIT: usize = 4 << 20;

/// One stream of a client.
pub(super) struct Stream<H> {
    client: ClientHandle<H>,
    seat: Seat,
    settings: Arc<StreamSettings>,
    /// The only type that the client may ask for; `None` on ADS.
    only: Option<&'static str>,
    /// True if the server half may have something to send.
    due: bool,
    /// The types of which a response was too large for most clients.
    too_large: BTreeSet<String>,
}

impl<H: ServerHalf> Stream<H> {
    pub(super) fn new(
        client: ClientHandle<H>,
        seat: Seat,
        settings: Arc<StreamSettings>,
        only: Option<&'static str>,
    ) -> Self {
        Self {
            client,
            seat,
            settings,
            only,
            due: false,
            too_large: BTreeSet::new(),
        }
    }

    /// Serves the stream until one side ends it. The branches are tried in order: a request or a
    /// newer snapshot comes before a response, because either may make the response unnecessary.
    pub(super) async fn run(
        mut self,
        mut requests: Streaming<H::Request>,
        responses: Sender,
        mut stopping: watch::Receiver<bool>,
    ) {
        let end = loop {
            let timeout = self.next_timeout();
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => {
                    break End::stopping();
                }
                request = requests.message() => match request {
                    Ok(Some(request)) => if let Err(status) = self.handle(request) {
                        break End::Ours(status);
                    },
                    Ok(None) => break End::Theirs("it ended the stream".to_owned()),
                    Err(status) => break End::broken(&status),
                },
                changed = self.seat.changed() => match changed {
                    Ok(()) => self.refresh(),
                    Err(_) => break End::gone(),
                },
                () = until(timeout), if !self.due => self.pass_time(),
                permit = responses.reserve(), if self.due => match permit {
                    Ok(permit) => if let Some(response) = self.next_response() {
                        permit.send(Ok(Box::new(response)));
                    },
                    Err(_) => break End::Theirs("it closed the stream".to_owned()),
                },
            }
        };
        let (node, reason) = (self.node_id(), end.reason());
        info!(stream = self.client.id(), node, reason, "client gone");
        end.tell(&responses).await;
    }

    /// The node id of the client; empty before its first request.
    fn node_id(&self) -> String {
        let talk = self.client.talk();
        talk.node().map(|node| node.id.clone()).unwrap_or_default()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let talk = self.client.talk();
        talk.half.as_ref().and_then(ServerHalf::next_timeout)
    }

    fn handle(&mut self, mut request: H::Request) -> Result<(), Status> {
        self.check_type(H::type_of(&mut request))?;
        let mut talk = self.client.talk();
        if talk.half.is_none() {
            let node = H::node_in(&request);
            let snapshot = self.seat.snapshot(node);
            talk.half = Some(H::new(snapshot, Arc::clone(&self.settings)));
            talk.view = self.seat.view().cloned();
            log_introduction(self.client.id(), node, talk.view.as_deref());
        }
        let Talk { half, ledger, .. } = &mut *talk;
        let Some(half) = half else {
            return Ok(());
        };
        let now = Instant::now();
        half.handle_time(now);
        let nonce = H::nonce_in(&request).to_owned();
        let outcome = half.handle_request(request);
        ledger.received(&outcome, &nonce, half, now);
        drop(talk);
        self.log(&outcome);
        self.due = true;
        Ok(())
    }

    /// Checks the type of a request. On a service of one type it may be left out (xDS protocol:
    /// DiscoveryRequest).
    fn check_type(&self, type_url: &mut String) -> Result<(), Status> {
        match self.only {
            Some(only) if type_url.is_empty() => only.clone_into(type_url),
            Some(only) if type_url != only => {
                let message = format!("type_url: expected {only} on this service, got {type_url}");
                return Err(Status::invalid_argument(message));
            }
            None if type_url.is_empty() => {
                return Err(Status::invalid_argument("type_url: must be set"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the newest snapshot, in the view for this client.
    fn refresh(&mut self) {
        let mut talk = self.client.talk();
        let Talk { half, view, ledger } = &mut *talk;
        if let Some(half) = half {
            let snapshot = self.seat.snapshot(half.node());
            half.handle_snapshot(snapshot);
            *view = self.seat.view().cloned();
            let published = self.seat.published_at();
            let published = published.unwrap_or_else(Instant::now);
            ledger.look(half, Since::Change(published));
            self.due = true;
        }
    }

    fn pass_time(&mut self) {
        if let Some(half) = &mut self.client.talk().half {
            half.handle_time(Instant::now());
            self.due = true;
        }
    }

    fn next_response(&mut self) -> Option<Response> {
        let now = Instant::now();
        let mut talk = self.client.talk();
        let Talk { half, ledger, .. } = &mut *talk;
        let half = half.as_mut()?;
        half.handle_time(now);
        let response = half.poll_response();
        self.due = response.is_some();
        let Some(response) = response else {
            ledger.look(half, Since::Request(now));
            return None;
        };
        let size = response.encoded_len();
        ledger.sent(&response, size, half, now);
        drop(talk);
        self.log_sent(&response, size);
        Some(response)
    }

    fn log_sent(&mut self, response: &Response, size: usize) {
        let (type_url, version) = (response.type_url(), response.version());
        debug!(stream = self.client.id(), type_url, version, "sent");
        if size > USUAL_LIMIT && self.too_large.insert(type_url.to_owned()) {
            let (stream, node) = (self.client.id(), self.node_id());
            warn!(
                stream,
                node,
                type_url,
                size,
                "more than the {USUAL_LIMIT} bytes that gRPC clients take if not told otherwise"
            );
        }
    }

    fn log(&self, outcome: &RequestOutcome) {
        let stream = self.client.id();
        match outcome {
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                let node = self.node_id();
                warn!(stream, node, type_url, version, "refused: {message}");
            }
            RequestOutcome::Ack { type_url, version } => {
                debug!(stream, type_url, version, "accepted");
            }
            RequestOutcome::Stale { type_url } => debug!(stream, type_url, "stale"),
            RequestOutcome::Subscribed { type_url } => debug!(stream, type_url, "subscribed"),
        }
    }
}

fn log_introduction(stream: u64, node: Option<&Node>, view: Option<&str>) {
    let Some(node) = node else { return };
    let (agent, node) = (&node.user_agent_name, &node.id);
    info!(stream, node, agent, view, "client");
}

/// Waits for a time; without one, for ever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
