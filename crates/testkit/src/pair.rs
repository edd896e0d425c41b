//! Both halves of the protocol against each other, in memory and under a simulated clock.
//!
//! Tests of long random scripts use a pair, because they need to control the order of messages and
//! the passing of time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::{Features, ResourceType};
use crowfly_xds::discovery::DiscoveryOutput;
use crowfly_xds::{
    Authorities, Cache, Discovery, Ending, Input, Key, Kind, Protocol, Readings, Request,
    RequestOutcome, ServerId, SessionConfig, Snapshot,
};
use envoy_types::pb::envoy::config::core::v3::Node;

use crate::half::EitherHalf;
use crate::{NODE_ID, Said};

/// A client session and a server subscription with a network between them that can hold messages
/// back and break.
///
/// Messages wait in the network until the test delivers them one by one, or
/// [`drive`](Self::drive)s until both sides are silent.
#[derive(Debug)]
pub struct Pair {
    client: Discovery,
    snapshot: Arc<Snapshot>,
    server: Option<EitherHalf>,
    reachable: bool,
    /// The stream that the client has asked for and that is not open yet.
    opening: Option<Protocol>,
    /// True if the transport of the client has not taken the last request yet.
    sending: bool,
    to_server: VecDeque<Request>,
    to_client: VecDeque<Said>,
    /// The outcome of the last request of each type on this stream. In delta, requests that only
    /// change names are left out.
    outcomes: BTreeMap<String, RequestOutcome>,
    /// The version of the last response of each type that the client was given on this stream.
    versions: BTreeMap<String, String>,
    /// The types whose last response on this stream was refused.
    refused: BTreeSet<String>,
    messages: usize,
    now: Instant,
}

impl Pair {
    /// A client that wants nothing yet, and a server of `snapshot`.
    pub fn new(protocol: Protocol, snapshot: Arc<Snapshot>) -> Self {
        let node = Node {
            id: NODE_ID.to_owned(),
            ..Node::default()
        };
        let authorities = Authorities {
            default: vec![SERVER],
            ..Authorities::default()
        };
        let config = SessionConfig {
            protocol,
            ..SessionConfig::new(node, 7)
        };
        Self {
            client: Discovery::new(vec![config], authorities, Readings::grpc(Features::ALL)),
            snapshot,
            server: None,
            reachable: true,
            opening: None,
            sending: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            outcomes: BTreeMap::new(),
            versions: BTreeMap::new(),
            refused: BTreeSet::new(),
            messages: 0,
            now: Instant::now(),
        }
    }

    /// The state of each resource in the client.
    pub fn cache(&self) -> &Cache {
        self.client.cache()
    }

    /// The number of requests and responses that were delivered so far.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// The outcome of the last request of a type on this stream. In delta, a request that only
    /// changes names does not count.
    pub fn last_outcome(&self, type_url: &str) -> Option<&RequestOutcome> {
        self.outcomes.get(type_url)
    }

    /// The version of the last response of a type that the client was given on this stream.
    pub fn last_version(&self, type_url: &str) -> Option<&str> {
        self.versions.get(type_url).map(String::as_str)
    }

    /// True if the client refused the last response of a type that it was given on this stream.
    pub fn refused(&self, type_url: &str) -> bool {
        self.refused.contains(type_url)
    }

    /// Makes the client watch a resource.
    pub fn subscribe<R: ResourceType>(&mut self, name: &str) {
        self.client.watch(Kind::of::<R>(), name, self.now).unwrap();
        self.act();
    }

    /// Makes the client stop watching a resource.
    pub fn unsubscribe<R: ResourceType>(&mut self, name: &str) {
        self.client.unwatch(&Key::of::<R>(name), self.now);
        self.act();
    }

    /// Makes the client watch all resources of a type.
    pub fn subscribe_all<R: ResourceType>(&mut self) {
        self.client.watch_all(Kind::of::<R>(), self.now).unwrap();
        self.act();
    }

    /// Makes the client stop watching all resources of a type.
    pub fn unsubscribe_all<R: ResourceType>(&mut self) {
        self.client.unwatch_all(Kind::of::<R>(), self.now);
        self.act();
    }

    /// The server serves `snapshot` from now on.
    pub fn set_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = snapshot;
        if let Some(server) = &mut self.server {
            server.handle_snapshot(Arc::clone(&self.snapshot));
        }
        self.take_responses();
    }

    /// Makes the server reachable or not. When it becomes unreachable, its stream breaks.
    pub fn set_reachable(&mut self, reachable: bool) {
        self.reachable = reachable;
        if !reachable {
            self.break_stream();
        }
    }

    /// Ends the stream. Messages in flight are lost.
    pub fn break_stream(&mut self) {
        if self.forget_stream() {
            self.tell_client(Input::Closed(Ending::ordinary("the stream broke")));
        }
    }

    fn forget_stream(&mut self) -> bool {
        self.to_server.clear();
        self.to_client.clear();
        self.outcomes.clear();
        self.versions.clear();
        self.refused.clear();
        self.sending = false;
        self.server.take().is_some()
    }

    /// Opens the stream that the client asks for, or refuses it. Returns false if the client asks
    /// for none.
    pub fn connect(&mut self) -> bool {
        let Some(protocol) = self.opening.take() else {
            return false;
        };
        if self.reachable {
            self.server = Some(EitherHalf::new(protocol, Arc::clone(&self.snapshot)));
            self.tell_client(Input::Opened);
        } else {
            self.tell_client(Input::Closed(Ending::ordinary("connection refused")));
        }
        true
    }

    /// Delivers the client's oldest request, if there is one.
    pub fn deliver_request(&mut self) -> bool {
        let Some(request) = self.to_server.pop_front() else {
            return false;
        };
        self.messages += 1;
        let server = self.server.as_mut().expect("a request has a stream");
        let names_alone = matches!(&request, Request::Delta(r) if r.response_nonce.is_empty());
        let type_url = match &request {
            Request::Delta(request) => request.type_url.clone(),
            Request::Sotw(request) => request.type_url.clone(),
        };
        let outcome = server.handle_request(request);
        if matches!(outcome, RequestOutcome::Nack { .. }) {
            self.refused.insert(type_url.clone());
        }
        if !names_alone {
            self.outcomes.insert(type_url, outcome);
        }
        self.take_responses();
        true
    }

    /// Makes the client's transport take the last request, which is then in flight. Returns false
    /// if there is none to take.
    pub fn confirm_send(&mut self) -> bool {
        if !std::mem::take(&mut self.sending) {
            return false;
        }
        self.tell_client(Input::Sent);
        true
    }

    /// Delivers the server's oldest response, if there is one.
    pub fn deliver_response(&mut self) -> bool {
        let Some(response) = self.to_client.pop_front() else {
            return false;
        };
        self.messages += 1;
        let (type_url, version) = match &response {
            Said::Delta(response) => (&response.type_url, &response.system_version_info),
            Said::Sotw(response) => (&response.type_url, &response.version_info),
        };
        self.refused.remove(type_url);
        self.versions
            .insert(type_url.to_owned(), version.to_owned());
        self.tell_client(response.into());
        self.tell_client(Input::Consumed);
        true
    }

    /// Delivers everything until both sides are silent. The clock does not advance.
    ///
    /// # Panics
    ///
    /// If both sides still send after `limit` messages, because then they would never stop.
    pub fn drive(&mut self, limit: usize) {
        let end = self.messages + limit;
        while self.connect()
            | self.confirm_send()
            | self.deliver_request()
            | self.deliver_response()
        {
            assert!(self.messages <= end, "no end after {limit} messages");
        }
    }

    /// Lets time pass for the client; every timeout comes at its own moment.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.client.next_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.client.handle_timeout(self.now);
            self.act();
        }
        self.now = end;
    }

    fn tell_client(&mut self, input: Input) {
        self.client.handle(SERVER, input, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(output) = self.client.poll_output(self.now) {
            match output {
                DiscoveryOutput::Changed { .. }
                | DiscoveryOutput::Failed(_)
                | DiscoveryOutput::Unreachable(_)
                | DiscoveryOutput::Received { .. } => {}
                DiscoveryOutput::Close(_) => {
                    self.opening = None;
                    self.forget_stream();
                }
                DiscoveryOutput::Open(_, protocol) => self.opening = Some(protocol),
                DiscoveryOutput::Send(_, request) => {
                    assert!(!self.sending, "two requests on their way");
                    self.sending = true;
                    self.to_server.push_back(*request);
                }
            }
        }
    }

    fn take_responses(&mut self) {
        let server = self.server.as_mut();
        self.to_client.extend(
            server
                .into_iter()
                .flat_map(|server| std::iter::from_fn(|| server.poll_response())),
        );
    }
}

const SERVER: ServerId = ServerId(0);
