//! A client of several servers, all of which the test controls by hand.
//!
//! The test writes every response itself, so that the rules for several servers are checked without
//! our own server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::{Features, ResourceType};
use crowfly_xds::discovery::DiscoveryOutput;
use crowfly_xds::{
    Authorities, Cache, Changed, Discovery, Ending, Input, Key, Kind, Protocol, Readings,
    ResourceError, ServerId, SessionConfig,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::google::protobuf::Any;

use crate::{Asked, NODE_ID, Said};

/// A [`Script`](crate::Script) with several servers, for fallback (gRFC A71) and federation (gRFC
/// A47). Servers are known by their position, and all speak one protocol.
#[derive(Debug)]
pub struct Servers {
    protocol: Protocol,
    client: Discovery,
    now: Instant,
    holding: bool,
    links: Vec<Link>,
    changes: Vec<(Key, Changed)>,
}

#[derive(Debug, Default)]
struct Link {
    /// True if the client has asked for a stream and the test has neither opened nor refused it.
    asked: bool,
    open: bool,
    requests: VecDeque<Asked>,
}

impl Servers {
    /// A client of `count` servers, the first of which it prefers.
    pub fn new(protocol: Protocol, count: usize) -> Self {
        let default = (0..count).map(ServerId).collect();
        let authorities = Authorities {
            default,
            ..Authorities::default()
        };
        Self::with(protocol, count, authorities)
    }

    /// A client of `count` servers, of which each authority has its own list.
    pub fn with(protocol: Protocol, count: usize, authorities: Authorities) -> Self {
        let node = Node {
            id: NODE_ID.to_owned(),
            ..Node::default()
        };
        let configs = (0..count).map(|index| SessionConfig {
            protocol,
            ..SessionConfig::new(node.clone(), index as u64)
        });
        Self {
            protocol,
            client: Discovery::new(
                configs.collect(),
                authorities,
                Readings::grpc(Features::ALL),
            ),
            now: Instant::now(),
            holding: false,
            links: (0..count).map(|_| Link::default()).collect(),
            changes: Vec::new(),
        }
    }

    /// Makes the client watch a resource.
    pub fn subscribe<R: ResourceType>(&mut self, name: &str) -> Key {
        let key = self.client.watch(Kind::of::<R>(), name, self.now).unwrap();
        self.act();
        key
    }

    /// Makes the client watch all resources of a type.
    pub fn subscribe_all<R: ResourceType>(&mut self) {
        self.client.watch_all(Kind::of::<R>(), self.now).unwrap();
        self.act();
    }

    /// Makes the client stop watching a resource.
    pub fn unsubscribe(&mut self, key: &Key) {
        self.client.unwatch(key, self.now);
        self.act();
    }

    /// Opens the stream that the client has asked of a server.
    pub fn open(&mut self, server: usize) {
        let link = &mut self.links[server];
        assert!(link.asked, "server {server} is not asked");
        link.asked = false;
        link.open = true;
        self.handle(server, Input::Opened);
    }

    /// Ends the stream to a server, or the attempt to open one.
    pub fn fail(&mut self, server: usize, reason: &str) {
        let link = &mut self.links[server];
        assert!(link.asked || link.open, "server {server} is not asked");
        (link.asked, link.open) = (false, false);
        link.requests.clear();
        self.handle(server, Input::Closed(Ending::ordinary(reason)));
    }

    /// Sends resources of type `R` with their names, all of one version, which is the nonce as well.
    pub fn send<'a, R: ResourceType>(
        &mut self,
        server: usize,
        version: &str,
        resources: impl IntoIterator<Item = (&'a str, Any)>,
    ) {
        self.receive(server, Said::new::<R>(self.protocol, version, resources));
    }

    /// Sends a response of a server.
    pub fn receive(&mut self, server: usize, response: impl Into<Said>) {
        assert!(self.links[server].open, "server {server} has no stream");
        self.handle(server, response.into().into());
        self.handle(server, Input::Consumed);
    }

    /// Takes the next request to a server.
    pub fn request(&mut self, server: usize) -> Asked {
        let requests = &mut self.links[server].requests;
        requests.pop_front().expect("the client owes a request")
    }

    /// Asserts that the client has no more requests for a server.
    pub fn no_request(&self, server: usize) {
        let requests = &self.links[server].requests;
        assert!(requests.is_empty(), "unexpected: {requests:?}");
    }

    /// From now on no request counts as sent.
    pub fn hold_sends(&mut self) {
        self.holding = true;
    }

    /// True if the client wants a stream to this server, or has one.
    pub fn is_asked(&self, server: usize) -> bool {
        self.links[server].asked || self.links[server].open
    }

    /// True if there is a stream to this server.
    pub fn is_open(&self, server: usize) -> bool {
        self.links[server].open
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

    /// The changes that watchers were told since the last call, in order.
    pub fn changes(&mut self) -> Vec<(Key, Changed)> {
        std::mem::take(&mut self.changes)
    }

    /// The state of each resource in the client.
    pub fn cache(&self) -> &Cache {
        self.client.cache()
    }

    /// The value of a resource; it panics if there is none.
    pub fn value<R: ResourceType>(&self, name: &str) -> Arc<R::Parsed> {
        match self.cache().read::<R>(name) {
            Some(Ok(value)) => value,
            other => panic!("expected {} {name}, got {other:?}", R::NOUN),
        }
    }

    /// The error of a resource; it panics if there is none or the resource is in use.
    pub fn error<R: ResourceType>(&self, name: &str) -> ResourceError {
        match self.cache().read::<R>(name) {
            Some(Err(error)) => error,
            other => panic!("expected an error for {} {name}, got {other:?}", R::NOUN),
        }
    }

    fn handle(&mut self, server: usize, input: Input) {
        self.client.handle(ServerId(server), input, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(output) = self.client.poll_output(self.now) {
            match output {
                DiscoveryOutput::Changed { key, changed } => self.changes.push((key, changed)),
                DiscoveryOutput::Close(ServerId(server)) => self.links[server] = Link::default(),
                DiscoveryOutput::Failed(_)
                | DiscoveryOutput::Received { .. }
                | DiscoveryOutput::Unreachable(_) => {}
                DiscoveryOutput::Open(ServerId(server), protocol) => {
                    assert_eq!(protocol, self.protocol);
                    let link = &mut self.links[server];
                    assert!(!link.asked, "server {server} is asked twice");
                    link.asked = true;
                }
                DiscoveryOutput::Send(server, request) => {
                    self.links[server.0].requests.push_back((*request).into());
                    if !self.holding {
                        self.client.handle(server, Input::Sent, self.now);
                    }
                }
            }
        }
    }
}

/// The servers of each authority. The empty name means names of the old style.
pub fn authorities(lists: &[(&str, &[usize])]) -> Authorities {
    let ids = |list: &[usize]| list.iter().map(|index| ServerId(*index)).collect();
    let mut named: BTreeMap<String, Vec<ServerId>> = lists
        .iter()
        .map(|(name, list)| ((*name).to_owned(), ids(list)))
        .collect();
    Authorities {
        default: named.remove("").unwrap_or_default(),
        named,
    }
}
