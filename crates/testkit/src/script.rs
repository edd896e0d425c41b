//! A client session against a server that the test plays by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::ResourceType;
use crowfly_xds::{
    Cache, Changed, Input, Key, Kind, Output, ResourceError, Session, SessionConfig, Want,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use crate::NODE_ID;

/// A client session whose server, network and clock are the test.
///
/// The test sees every request as it would go over the wire and writes every response. A request
/// counts as sent at once, unless [`hold_sends`](Self::hold_sends) says otherwise.
#[derive(Debug)]
pub struct Script {
    session: Session,
    cache: Cache,
    start: Instant,
    now: Instant,
    holding: bool,
    requests: VecDeque<DiscoveryRequest>,
    opens: usize,
    changes: Vec<(Key, Changed)>,
}

impl Script {
    /// A session that wants nothing yet.
    pub fn new() -> Self {
        let node = Node {
            id: NODE_ID.to_owned(),
            ..Node::default()
        };
        let now = Instant::now();
        Self {
            session: Session::new(SessionConfig::new(node, 7)),
            cache: Cache::default(),
            start: now,
            now,
            holding: false,
            requests: VecDeque::new(),
            opens: 0,
            changes: Vec::new(),
        }
    }

    /// A session with an open stream that watches these resources of type `R`, whose first request
    /// has been taken.
    pub fn watching<R: ResourceType>(names: &[&str]) -> Self {
        let mut script = Self::new();
        for name in names {
            script.subscribe::<R>(name);
        }
        script.open();
        script.request();
        script
    }

    /// Somebody wants a resource.
    pub fn subscribe<R: ResourceType>(&mut self, name: &str) {
        self.handle(Input::Subscribe {
            kind: Kind::of::<R>(),
            want: Want::Named(name.into()),
        });
    }

    /// Nobody wants a resource any more.
    pub fn unsubscribe<R: ResourceType>(&mut self, name: &str) {
        self.handle(Input::Unsubscribe {
            kind: Kind::of::<R>(),
            want: Want::Named(name.into()),
        });
    }

    /// Somebody wants all resources of a type.
    pub fn subscribe_all<R: ResourceType>(&mut self) {
        let (kind, want) = (Kind::of::<R>(), Want::All);
        self.handle(Input::Subscribe { kind, want });
    }

    /// Nobody wants all resources of a type any more.
    pub fn unsubscribe_all<R: ResourceType>(&mut self) {
        let (kind, want) = (Kind::of::<R>(), Want::All);
        self.handle(Input::Unsubscribe { kind, want });
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

    /// Whether the session has asked for a stream since this was last called.
    pub fn take_open(&mut self) -> bool {
        assert!(self.opens <= 1, "the session asked for two streams at once");
        std::mem::take(&mut self.opens) == 1
    }

    /// Ends the stream, or the attempt to open one.
    pub fn close(&mut self, reason: &str) {
        self.opens = 0;
        self.handle(Input::Closed(reason.into()));
    }

    /// Sends a response to the session.
    pub fn receive(&mut self, response: DiscoveryResponse) {
        self.handle(Input::Response(response));
    }

    /// Takes the next request of the session.
    pub fn request(&mut self) -> DiscoveryRequest {
        self.try_request().expect("the session owes a request")
    }

    /// Takes the next request of the session, if there is one.
    pub fn try_request(&mut self) -> Option<DiscoveryRequest> {
        self.requests.pop_front()
    }

    /// Asserts that the session has nothing more to say to the server.
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

    /// Lets time pass; every timeout comes at its own moment.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.session.next_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.session.handle_timeout(&mut self.cache, self.now);
            self.act();
        }
        self.now = end;
    }

    /// How long until the session's next timeout.
    pub fn time_to_timeout(&self) -> Option<Duration> {
        let due = self.session.next_timeout()?;
        Some(due.saturating_duration_since(self.now))
    }

    /// How much time has passed since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// What watchers were to be told since this was last called, in order.
    pub fn changes(&mut self) -> Vec<(Key, Changed)> {
        std::mem::take(&mut self.changes)
    }

    /// What the client knows.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The resource, or why there is none; `None` while neither is known.
    pub fn read<R: ResourceType>(
        &self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.cache.read::<R>(name)
    }

    /// The resource, which there is.
    pub fn value<R: ResourceType>(&self, name: &str) -> Arc<R::Parsed> {
        match self.read::<R>(name) {
            Some(Ok(value)) => value,
            other => panic!("expected {} {name}, got {other:?}", R::NOUN),
        }
    }

    /// The error of a resource that is not to be had.
    pub fn error<R: ResourceType>(&self, name: &str) -> ResourceError {
        match self.read::<R>(name) {
            Some(Err(error)) => error,
            other => panic!("expected an error for {} {name}, got {other:?}", R::NOUN),
        }
    }

    /// The error around a resource that is in use.
    pub fn ambient<R: ResourceType>(&self, name: &str) -> Option<ResourceError> {
        self.cache.entry(&Key::of::<R>(name))?.ambient().cloned()
    }

    fn handle(&mut self, input: Input) {
        self.session.handle(input, &mut self.cache, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(output) = self.session.poll_output(&mut self.cache) {
            match output {
                Output::Changed { key, changed } => self.changes.push((key, changed)),
                Output::Open => self.opens += 1,
                Output::Send(request) => {
                    self.requests.push_back(*request);
                    if !self.holding {
                        self.session.handle(Input::Sent, &mut self.cache, self.now);
                    }
                }
            }
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}
