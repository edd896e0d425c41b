//! A resolver that has all that it asked for, so that a bench measures single changes.

use std::collections::BTreeSet;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{
    ClusterConfigBuilder, EndpointsBuilder, Resource, cluster, cluster_config, endpoints, listener,
    routes,
};
use crowfly_testkit::{Script, delta};
use crowfly_xds::{CacheEntry, DataErrors, Key, Protocol, ResolveRoots, Resolver};
use envoy_types::pb::google::protobuf::Any;

pub(crate) struct World {
    script: Script,
    pub(crate) resolver: Resolver,
}

impl World {
    /// A route to each of so many clusters.
    pub(crate) fn routed(clusters: usize) -> Self {
        let to_each = (0..clusters).map(name);
        let hosted = routes("r").host("*");
        let to_each = to_each.fold(hosted, |routes, name| {
            routes.route(&format!("/{name}"), &name)
        });
        let mut world = Self::new();
        world.give(&listener("web").routes(to_each));
        world.leaves(clusters);
        world
    }

    /// One route, to an aggregate of so many clusters, whose list is a resource.
    pub(crate) fn listed(clusters: usize) -> Self {
        let mut world = Self::new();
        world.give(&listener("web").routes(routes("r").host("*").route("/", "top")));
        world.give(&cluster("top").aggregate_resource("list"));
        world.give(&ordered(clusters, false));
        world.leaves(clusters);
        world
    }

    fn new() -> Self {
        let roots = ResolveRoots {
            listener: "web".into(),
            authority: "web".into(),
            held: BTreeSet::new(),
        };
        let mut script = Script::with(Protocol::Delta, DataErrors::default());
        script.subscribe::<Listener>("web");
        script.open();
        let mut resolver = Resolver::new(roots, "bench");
        resolver.step();
        Self { script, resolver }
    }

    fn leaves(&mut self, clusters: usize) {
        let names: Vec<String> = (0..clusters).map(name).collect();
        for name in &names {
            self.hear(&cluster(name));
        }
        self.resolver.step();
        for i in 0..clusters {
            self.hear(&changed_endpoints(i, 1));
        }
        self.resolver.step();
    }

    /// A resource comes, and what it leads to is asked for.
    fn give(&mut self, resource: &impl Resource) {
        self.hear(resource);
        self.resolver.step();
    }

    fn hear(&mut self, resource: &impl Resource) {
        let (key, entry) = self.entry(resource);
        self.resolver.update(key, entry);
    }

    /// A resource as a client knows it once it has come.
    pub(crate) fn entry(&mut self, resource: &impl Resource) -> (Key, CacheEntry) {
        let any = resource.any();
        let name = resource.name();
        match any.type_url.as_str() {
            Listener::TYPE_URL => self.receive::<Listener>(&name, any),
            RouteConfig::TYPE_URL => self.receive::<RouteConfig>(&name, any),
            Cluster::TYPE_URL => self.receive::<Cluster>(&name, any),
            ClusterConfig::TYPE_URL => self.receive::<ClusterConfig>(&name, any),
            Endpoints::TYPE_URL => self.receive::<Endpoints>(&name, any),
            other => panic!("no such type: {other}"),
        }
    }

    fn receive<R: ResourceType>(&mut self, name: &str, any: Any) -> (Key, CacheEntry) {
        let key = Key::of::<R>(name);
        if self.script.cache().entry(&key).is_none() {
            self.script.subscribe::<R>(name);
        }
        self.script.receive(delta::<R>("n", [(name, "v", any)]));
        let entry = self.script.cache().entry(&key).unwrap().clone();
        assert!(entry.has_value(), "{name} is valid");
        (key, entry)
    }
}

/// The endpoints of a cluster, in one of two forms.
pub(crate) fn changed_endpoints(cluster: usize, turn: usize) -> EndpointsBuilder {
    let addresses = (0..10).map(|i| format!("10.0.{turn}.{i}:80"));
    let addresses: Vec<String> = addresses.collect();
    let addresses = addresses.iter().map(String::as_str);
    endpoints(&name(cluster)).locality("z", 1, addresses)
}

/// The list of so many clusters, with the first two the other way round or not.
pub(crate) fn ordered(clusters: usize, swapped: bool) -> ClusterConfigBuilder {
    let mut names: Vec<String> = (0..clusters).map(name).collect();
    if swapped {
        names.swap(0, 1);
    }
    cluster_config("list").clusters(names.iter().map(String::as_str))
}

fn name(cluster: usize) -> String {
    format!("cluster-{cluster:04}")
}
