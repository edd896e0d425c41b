//! Explanations of resources that a server in memory serves. The clock is simulated, because a
//! resource counts as missing only after 15 seconds.

mod answers;
mod clusters;
mod drops;
mod forwarding;
mod routes;
mod unsupported;
mod way;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use crowfly_model::{
    ResourceType,
    grpc::{self, ClusterConfig, Endpoints, Listener, RouteConfig},
};
use crowfly_testkit::{
    NODE_ID, Pair,
    builders::{Resources, cluster, endpoints, listener, routes},
};
use crowfly_xds::{Key, Protocol, ResolveRoots, Resolved, Resolver};

use super::*;

const DOES_NOT_EXIST: Duration = Duration::from_secs(15);

/// A client with its resolver, and the server that it asks.
struct World {
    pair: Pair,
    resolver: Resolver,
    dns: Result<Vec<SocketAddr>, &'static str>,
    resolved: Option<Resolved>,
}

impl World {
    fn new(resources: &Resources) -> Self {
        let roots = ResolveRoots {
            listener: "payments".into(),
            authority: "payments".into(),
            held: BTreeSet::new(),
        };
        Self {
            pair: Pair::new(Protocol::StateOfTheWorld, resources.snapshot()),
            resolver: Resolver::new(roots, NODE_ID),
            dns: Err("no such host"),
            resolved: None,
        }
    }

    /// Drives client, server and DNS until none of them has anything left to send.
    fn settle(&mut self) {
        loop {
            let step = self.resolver.step();
            let is_done = step.watch.is_empty() && step.watch_names.is_empty();
            self.resolved = step.resolved.or_else(|| self.resolved.take());
            if is_done {
                return;
            }
            for key in &step.watch {
                self.subscribe(key);
            }
            for name in &step.watch_names {
                let answer = self.dns.clone().map_err(Into::into);
                self.resolver.answer(name, answer);
            }
            self.pair.drive(1000);
            self.update();
        }
    }

    fn advance(&mut self, time: Duration) {
        self.pair.advance(time);
        self.pair.drive(1000);
        self.update();
        self.settle();
    }

    fn serve(&mut self, resources: &Resources) {
        self.pair.set_snapshot(resources.snapshot());
        self.pair.drive(1000);
        self.update();
        self.settle();
    }

    fn explain(&self, call: &ExplainedCall) -> Explanation {
        let resolved = self.resolved.as_ref().unwrap();
        explain(call, self.resolver.view(), self.resolver.roots(), resolved)
    }

    fn subscribe(&mut self, key: &Key) {
        match key.kind.type_url {
            grpc::Cluster::TYPE_URL => self.pair.subscribe::<grpc::Cluster>(&key.name),
            ClusterConfig::TYPE_URL => self.pair.subscribe::<ClusterConfig>(&key.name),
            Endpoints::TYPE_URL => self.pair.subscribe::<Endpoints>(&key.name),
            Listener::TYPE_URL => self.pair.subscribe::<Listener>(&key.name),
            RouteConfig::TYPE_URL => self.pair.subscribe::<RouteConfig>(&key.name),
            other => panic!("{other}"),
        }
    }

    fn update(&mut self) {
        for (key, entry) in self.pair.cache().iter() {
            self.resolver.update(key.clone(), entry.clone());
        }
    }
}

fn explained(resources: &Resources, call: &ExplainedCall) -> Explanation {
    let mut world = World::new(resources);
    world.settle();
    world.advance(DOES_NOT_EXIST);
    world.explain(call)
}

fn every_call() -> ExplainedCall {
    ExplainedCall {
        target: "xds:///payments".to_owned(),
        ..ExplainedCall::default()
    }
}

fn call(path: &str) -> ExplainedCall {
    ExplainedCall {
        path: Some(path.to_owned()),
        ..every_call()
    }
}

/// A listener and routes that lead to cluster `top`.
fn to_top() -> Resources {
    Resources::new()
        .with(listener("payments").rds("table"))
        .with(routes("table").host("*").route("/", "top"))
}

fn leaf(resources: Resources, name: &str) -> Resources {
    let of = endpoints(name).locality("eu/a", 1, ["10.0.0.1:80"]);
    resources.with(cluster(name)).with(of)
}

#[track_caller]
fn assert_stops(explanation: &Explanation, at: &str, why: &str) {
    let stop = explanation.stop.as_ref().unwrap();
    assert_eq!((&*stop.at, &*stop.why), (at, why));
    assert!(!explanation.reachable);
    // A person finds the place in the tree, too.
    let text = explanation.to_string();
    let (tree, verdict) = text.rsplit_once("\n\n").unwrap();
    assert!(tree.contains('✗'), "{text}");
    assert!(
        verdict.starts_with(&format!("✗ stops at {at}: {why}")),
        "{text}"
    );
}

fn next(explanation: &Explanation) -> &str {
    explanation.stop.as_ref().unwrap().next.as_deref().unwrap()
}
