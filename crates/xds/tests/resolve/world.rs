//! A resolver of the channel to `web`, and the server and the DNS that the test plays.
//!
//! The server answers whoever asks, and only then: what the test gives before it is watched is sent
//! when it is. Resources go through a client session, as they do in life.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::cluster::DnsName;
use crowfly_testkit::NODE_ID;
use crowfly_testkit::builders::{Resource, cluster, endpoints, listener, routes};
use crowfly_xds::{
    ClusterError, ClusterState, Key, ResolveError, ResolveRoots, Resolved, Resolver, XdsConfig,
    resolve,
};
use envoy_types::pb::google::protobuf::Any;

use crate::server::{Server, key};

pub(crate) struct World {
    server: Server,
    pub(crate) resolver: Resolver,
    /// The server's content of a resource; `None` if the server would say that it does not exist.
    said: BTreeMap<Key, Option<Any>>,
    answers: BTreeMap<DnsName, Result<Vec<SocketAddr>, Arc<str>>>,
    last: Option<Resolved>,
    in_use: Option<Arc<XdsConfig>>,
    published: usize,
    moves: Moves,
}

/// The watches that began and those that ended, as text.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) watched: BTreeSet<String>,
    pub(crate) unwatched: BTreeSet<String>,
}

impl World {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self::with("web", &[])
    }

    /// Nothing is known yet; calls are for this authority, and some hold these clusters.
    pub(crate) fn with(authority: &str, held: &[&str]) -> Self {
        let roots = ResolveRoots {
            listener: "web".into(),
            authority: authority.into(),
            held: held.iter().map(|name| Arc::from(*name)).collect(),
        };
        let mut world = Self {
            server: Server::new(),
            resolver: Resolver::new(roots, NODE_ID),
            said: BTreeMap::new(),
            answers: BTreeMap::new(),
            last: None,
            in_use: None,
            published: 0,
            moves: Moves::default(),
        };
        world.settle();
        world
    }

    /// The listener and its routes, in resources of their own: one to each of these clusters.
    pub(crate) fn routed(clusters: &[&str]) -> Self {
        let mut world = Self::new();
        world.give(&listener("web").rds("r"));
        world.route(clusters);
        world
    }

    /// Everything is there: these clusters, each with its endpoints.
    pub(crate) fn serving(clusters: &[&str]) -> Self {
        let mut world = Self::routed(clusters);
        for name in clusters {
            world.leaf(name);
        }
        world.ready();
        world
    }

    /// The routes lead to these clusters.
    pub(crate) fn route(&mut self, clusters: &[&str]) {
        let paths = clusters.iter().map(|name| (format!("/{name}"), name));
        let hosted = routes("r").host("*");
        let routes = paths.fold(hosted, |routes, (path, name)| routes.route(&path, name));
        self.give(&routes);
    }

    /// There is a cluster with endpoints of the same name.
    pub(crate) fn leaf(&mut self, name: &str) {
        self.give(&cluster(name));
        self.give(&endpoints(name).locality("z", 1, ["127.0.0.1:1"]));
    }

    /// There is an aggregate of these.
    pub(crate) fn aggregate(&mut self, name: &str, clusters: &[&str]) {
        self.give(&cluster(name).aggregate(clusters.iter().copied()));
    }

    /// The server has a resource, and sends it if it is watched.
    pub(crate) fn give(&mut self, resource: &impl Resource) {
        let any = resource.any();
        let key = key(&any, &resource.name());
        self.say(&key, Some(any));
    }

    /// The server says that a resource does not exist, or not any more.
    pub(crate) fn miss<R: ResourceType>(&mut self, name: &str) {
        self.say(&Key::of::<R>(name), None);
    }

    /// A lookup ends with these addresses.
    pub(crate) fn answer(&mut self, host: &str, port: u16, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        self.answered(host, port, Ok(addresses.collect()));
    }

    /// A lookup fails.
    pub(crate) fn fail_lookup(&mut self, host: &str, port: u16, why: &str) {
        self.answered(host, port, Err(why.into()));
    }

    /// News that was under way when its watch ended.
    pub(crate) fn late(&mut self, resource: &impl Resource) {
        let any = resource.any();
        let key = key(&any, &resource.name());
        let mut server = Server::new();
        server.watch(&key);
        let entry = server.say(&key, Some(&any));
        assert!(entry.has_value(), "it is valid");
        self.resolver.update(key, entry);
        self.settle();
    }

    pub(crate) fn hold(&mut self, cluster: &str) {
        self.resolver.hold(&cluster.into());
        self.settle();
    }

    pub(crate) fn release(&mut self, cluster: &str) {
        self.resolver.release(cluster);
        self.settle();
    }

    /// The last answer is a configuration.
    pub(crate) fn ready(&self) -> Arc<XdsConfig> {
        match self.last.as_ref().unwrap() {
            Resolved::Ready(config) => Arc::clone(config),
            other => panic!("expected a configuration, got {other:?}"),
        }
    }

    /// The last answer is that these are missing.
    pub(crate) fn waits_for(&self, missing: &str) {
        match self.last.as_ref().unwrap() {
            Resolved::Waiting {
                missing: actual, ..
            } => assert_eq!(actual.to_string(), missing),
            other => panic!("expected to wait for {missing}, got {other:?}"),
        }
    }

    /// The configuration that serves while the next one is not whole.
    pub(crate) fn in_use(&self) -> Arc<XdsConfig> {
        let in_use = self.last_in_use();
        in_use.expect("a configuration is in use")
    }

    /// The last answer is that something is missing; the configuration that serves meanwhile.
    pub(crate) fn last_in_use(&self) -> Option<Arc<XdsConfig>> {
        match self.last.as_ref().unwrap() {
            Resolved::Waiting { in_use, .. } => in_use.clone(),
            other => panic!("expected to wait, got {other:?}"),
        }
    }

    /// The last answer is an error of the whole channel.
    pub(crate) fn error(&self) -> ResolveError {
        match self.last.as_ref().unwrap() {
            Resolved::Error(error) => error.clone(),
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// A cluster of the configuration.
    pub(crate) fn cluster(&self, name: &str) -> Arc<ClusterState> {
        let config = self.ready();
        Arc::clone(config.clusters[name].as_ref().unwrap())
    }

    /// The error of a cluster of the configuration.
    pub(crate) fn cluster_error(&self, name: &str) -> Arc<ClusterError> {
        let config = self.ready();
        Arc::clone(config.clusters[name].as_ref().unwrap_err())
    }

    /// The leaves of an aggregate of the configuration, with spaces between.
    pub(crate) fn leaves(&self, name: &str) -> String {
        self.cluster(name).leaves().join(" ")
    }

    /// The present watches, as text.
    pub(crate) fn watched(&self) -> BTreeSet<String> {
        let watches = self.resolver.watches();
        let resources = watches.resources.iter();
        let resources = resources.map(|key| format!("{} {}", key.kind.noun, key.name));
        let names = watches.names.iter();
        resources
            .chain(names.map(|name| format!("DNS name {name}")))
            .collect()
    }

    /// The watches that began and ended since the last call.
    pub(crate) fn moves(&mut self) -> Moves {
        std::mem::take(&mut self.moves)
    }

    /// The number of configurations that were given since the last call.
    pub(crate) fn published(&mut self) -> usize {
        std::mem::take(&mut self.published)
    }

    fn say(&mut self, key: &Key, what: Option<Any>) {
        self.said.insert(key.clone(), what);
        if self.resolver.watches().resources.contains(key) {
            self.send(key);
            self.settle();
        }
    }

    fn answered(&mut self, host: &str, port: u16, outcome: Result<Vec<SocketAddr>, Arc<str>>) {
        let host = host.to_owned();
        let name = DnsName { host, port };
        self.resolver.answer(&name, outcome.clone());
        self.answers.insert(name, outcome);
        self.settle();
    }

    /// The server says what it has to say of a resource that is watched, and the resolver hears it.
    fn send(&mut self, key: &Key) {
        let Some(what) = self.said.get(key) else {
            return;
        };
        let entry = self.server.say(key, what.as_ref());
        self.resolver.update(key.clone(), entry);
    }

    /// Steps until there is nothing more to ask for.
    fn settle(&mut self) {
        loop {
            let step = self.resolver.step();
            for key in &step.unwatch {
                self.server.unwatch(key);
                let text = format!("{} {}", key.kind.noun, key.name);
                self.moves.unwatched.insert(text);
            }
            for key in &step.watch {
                self.server.watch(key);
                let text = format!("{} {}", key.kind.noun, key.name);
                self.moves.watched.insert(text);
            }
            for name in &step.unwatch_names {
                self.moves.unwatched.insert(format!("DNS name {name}"));
            }
            for name in &step.watch_names {
                self.moves.watched.insert(format!("DNS name {name}"));
            }
            if let Some(resolved) = step.resolved {
                self.published += usize::from(matches!(resolved, Resolved::Ready(_)));
                self.last = Some(resolved);
            }
            self.check();
            for key in &step.watch {
                self.send(key);
            }
            for name in &step.watch_names {
                if let Some(outcome) = self.answers.get(name) {
                    self.resolver.answer(name, outcome.clone());
                }
            }
            if step.watch.is_empty() && step.watch_names.is_empty() {
                return;
            }
        }
    }

    /// The step gave what comes out from scratch.
    fn check(&mut self) {
        let in_use = self.in_use.take();
        let scratch = resolve(self.resolver.view(), self.resolver.roots(), in_use.as_ref());
        self.in_use = match &scratch.resolved {
            Resolved::Error(_) => None,
            Resolved::Ready(config) => Some(Arc::clone(config)),
            Resolved::Waiting { in_use, .. } => in_use.clone(),
        };
        assert_eq!(self.resolver.watches(), scratch.watches);
        assert_eq!(self.last.as_ref(), Some(&scratch.resolved));
    }
}
