//! A client session against a server that the test controls by hand.
//!
//! The test writes every response itself, because a misreading of the protocol that our server
//! shares would otherwise go unnoticed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::{Features, ResourceType};
use crowfly_xds::discovery::DiscoveryOutput;
use crowfly_xds::{
    Authorities, Cache, Changed, DataErrors, Discovery, Ending, Input, Key, Kind, Protocol,
    Readings, Request, ResourceError, ServerId, SessionConfig,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf::Any;

use crate::{Asked, NODE_ID, Said};

/// A client of one server. The test takes the place of the server, the network and the clock.
///
/// The test sees every request as it would go over the wire and writes every response. A request
/// counts as sent at once, unless [`hold_sends`](Self::hold_sends) says otherwise.
#[derive(Debug)]
pub struct Script {
    client: Discovery,
    start: Instant,
    now: Instant,
    holding: bool,
    requests: VecDeque<Request>,
    opens: usize,
    closes: usize,
    protocol: Option<Protocol>,
    changes: Vec<(Key, Changed)>,
}

impl Script {
    /// A client that wants nothing yet and speaks state of the world.
    pub fn new() -> Self {
        Self::with(Protocol::StateOfTheWorld, DataErrors::default())
    }

    /// A client that wants nothing yet.
    pub fn with(protocol: Protocol, data_errors: DataErrors) -> Self {
        Self::reading(protocol, data_errors, Readings::grpc(Features::ALL))
    }

    /// A client with readings of its own.
    pub fn reading(protocol: Protocol, data_errors: DataErrors, readings: Readings) -> Self {
        let config = SessionConfig {
            protocol,
            data_errors,
            ..SessionConfig::new(node(), 7)
        };
        let authorities = Authorities {
            default: vec![SERVER],
            ..Authorities::default()
        };
        let now = Instant::now();
        Self {
            client: Discovery::new(vec![config], authorities, readings),
            start: now,
            now,
            holding: false,
            requests: VecDeque::new(),
            opens: 0,
            closes: 0,
            protocol: None,
            changes: Vec::new(),
        }
    }

    /// A client with an open stream that asks for these resources of type `R`. The first requests
    /// of the client have been taken.
    pub fn watching<R: ResourceType>(protocol: Protocol, names: &[&str]) -> Self {
        let mut script = Self::with(protocol, DataErrors::default());
        for name in names {
            script.subscribe::<R>(name);
        }
        script.open();
        script.requests.clear();
        script
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

    /// Opens the stream that the session has asked for.
    pub fn open(&mut self) {
        assert!(self.try_open(), "the session did not ask for a stream");
    }

    /// Opens a stream if the session has asked for one.
    pub fn try_open(&mut self) -> bool {
        let asked = self.take_open();
        if asked {
            self.handle(Input::Opened);
        }
        asked
    }

    /// True if the session has asked for a stream since the last call.
    pub fn take_open(&mut self) -> bool {
        assert!(self.opens <= 1, "the session asked for two streams at once");
        std::mem::take(&mut self.opens) == 1
    }

    /// Ends the stream, or the attempt to open one.
    pub fn close(&mut self, reason: &str) {
        self.opens = 0;
        self.end(Ending::ordinary(reason));
    }

    /// Ends the stream, or the attempt to open one, in a particular way.
    pub fn end(&mut self, ending: Ending) {
        self.opens = 0;
        self.handle(Input::Closed(ending));
    }

    /// True if the client has dropped its stream since the last call.
    pub fn take_close(&mut self) -> bool {
        std::mem::take(&mut self.closes) > 0
    }

    /// The protocol of the stream that was last asked for.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Sends a response to the session.
    pub fn receive(&mut self, response: impl Into<Said>) {
        self.handle(response.into().into());
        self.handle(Input::Consumed);
    }

    /// Sends resources of type `R` with their names, all of one version, in the protocol of the stream.
    pub fn tell<'a, R: ResourceType>(
        &mut self,
        version: &str,
        nonce: &str,
        resources: impl IntoIterator<Item = (&'a str, Any)>,
    ) {
        let protocol = self.protocol.expect("the client asked for a stream");
        self.receive(Said::with_nonce::<R>(protocol, version, nonce, resources));
    }

    /// Takes the next request of the client, in either protocol.
    pub fn asked(&mut self) -> Asked {
        let request = self.take_request();
        request.expect("the client owes a request").into()
    }

    /// Takes the next request of the session.
    pub fn request(&mut self) -> DiscoveryRequest {
        self.try_request().expect("the session owes a request")
    }

    /// Takes the next request of the session, if there is one.
    pub fn try_request(&mut self) -> Option<DiscoveryRequest> {
        self.requests.pop_front().map(|request| match request {
            Request::Sotw(request) => request,
            Request::Delta(request) => panic!("expected state of the world, got {request:?}"),
        })
    }

    /// Takes the next request of the client, of whichever protocol, if there is one.
    pub fn take_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Takes the next request of the client on a delta stream.
    pub fn delta_request(&mut self) -> DeltaDiscoveryRequest {
        match self.requests.pop_front() {
            Some(Request::Delta(request)) => request,
            other => panic!("expected a delta request, got {other:?}"),
        }
    }

    /// Asserts that the session has no more requests for the server.
    pub fn no_request(&self) {
        assert_eq!(self.requests.len(), 0, "unexpected: {:?}", self.requests);
    }

    /// From now on a request counts as sent only after [`confirm_send`](Self::confirm_send).
    pub fn hold_sends(&mut self) {
        self.holding = true;
    }

    /// The transport has taken the request that was on its way.
    pub fn confirm_send(&mut self) {
        self.handle(Input::Sent);
    }

    /// True if the client would read another response now.
    pub fn may_read(&self) -> bool {
        self.client.may_read(SERVER)
    }

    /// Lets time pass; every timeout comes at its own moment.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.client.next_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.client.handle_timeout(self.now);
            self.act();
        }
        self.now = end;
    }

    /// The time until the session's next timeout; `None` if there is none.
    pub fn time_to_timeout(&self) -> Option<Duration> {
        let due = self.client.next_timeout()?;
        Some(due.saturating_duration_since(self.now))
    }

    /// The time that has passed since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// The changes that watchers were told since the last call, in order.
    pub fn changes(&mut self) -> Vec<(Key, Changed)> {
        std::mem::take(&mut self.changes)
    }

    /// The state of each resource in the client.
    pub fn cache(&self) -> &Cache {
        self.client.cache()
    }

    /// The resource or its error; `None` while neither has arrived.
    pub fn read<R: ResourceType>(
        &self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.cache().read::<R>(name)
    }

    /// The value of a resource; it panics if there is none.
    pub fn value<R: ResourceType>(&self, name: &str) -> Arc<R::Parsed> {
        match self.read::<R>(name) {
            Some(Ok(value)) => value,
            other => panic!("expected {} {name}, got {other:?}", R::NOUN),
        }
    }

    /// The error of a resource; it panics if there is none or the resource is in use.
    pub fn error<R: ResourceType>(&self, name: &str) -> ResourceError {
        match self.read::<R>(name) {
            Some(Err(error)) => error,
            other => panic!("expected an error for {} {name}, got {other:?}", R::NOUN),
        }
    }

    /// The ambient error of a resource that is in use.
    pub fn ambient<R: ResourceType>(&self, name: &str) -> Option<ResourceError> {
        self.cache().entry(&Key::of::<R>(name))?.ambient().cloned()
    }

    fn handle(&mut self, input: Input) {
        self.client.handle(SERVER, input, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(output) = self.client.poll_output(self.now) {
            match output {
                DiscoveryOutput::Changed { key, changed } => self.changes.push((key, changed)),
                DiscoveryOutput::Close(_) => {
                    self.closes += 1;
                    self.opens = 0;
                }
                DiscoveryOutput::Failed(_)
                | DiscoveryOutput::Received { .. }
                | DiscoveryOutput::Unreachable(_) => {}
                DiscoveryOutput::Open(_, protocol) => {
                    self.opens += 1;
                    self.protocol = Some(protocol);
                }
                DiscoveryOutput::Send(_, request) => {
                    self.requests.push_back(*request);
                    if !self.holding {
                        self.client.handle(SERVER, Input::Sent, self.now);
                    }
                }
            }
        }
    }
}

const SERVER: ServerId = ServerId(0);

fn node() -> Node {
    Node {
        id: NODE_ID.to_owned(),
        ..Node::default()
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}
