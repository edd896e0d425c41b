//! A server that the test plays, and a client session that listens to it, so that what a resolver
//! gets is what it gets in life.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_testkit::{Script, delta, removed};
use crowfly_xds::{CacheEntry, DataErrors, Key, Protocol};
use envoy_types::pb::google::protobuf::Any;

pub(crate) struct Server(Script);

/// An event of a resource.
#[derive(Clone, Copy)]
enum Act<'a> {
    Unwatch,
    Watch,
    Remove,
    Send(&'a Any),
}

impl Server {
    pub(crate) fn new() -> Self {
        let mut script = Script::with(Protocol::Delta, DataErrors::default());
        // A client that wants nothing opens no stream.
        script.subscribe::<Listener>("nobody asks for this one");
        script.open();
        Self(script)
    }

    pub(crate) fn watch(&mut self, key: &Key) {
        self.act(key, Act::Watch);
    }

    pub(crate) fn unwatch(&mut self, key: &Key) {
        self.act(key, Act::Unwatch);
    }

    /// The server sends a watched resource or, if it is `None`, says that there is none. Returns what
    /// the client makes of it.
    pub(crate) fn say(&mut self, key: &Key, what: Option<&Any>) -> CacheEntry {
        self.act(key, what.map_or(Act::Remove, Act::Send));
        let entry = self.0.cache().entry(key).unwrap();
        assert!(entry.is_known(), "{key:?} is watched");
        entry.clone()
    }

    fn act(&mut self, key: &Key, act: Act<'_>) {
        match key.kind.type_url {
            Listener::TYPE_URL => self.act_on::<Listener>(&key.name, act),
            RouteConfig::TYPE_URL => self.act_on::<RouteConfig>(&key.name, act),
            Cluster::TYPE_URL => self.act_on::<Cluster>(&key.name, act),
            ClusterConfig::TYPE_URL => self.act_on::<ClusterConfig>(&key.name, act),
            Endpoints::TYPE_URL => self.act_on::<Endpoints>(&key.name, act),
            other => panic!("no such type: {other}"),
        }
        while self.0.take_request().is_some() {}
    }

    fn act_on<R: ResourceType>(&mut self, name: &str, act: Act<'_>) {
        let Self(script) = self;
        match act {
            Act::Unwatch => script.unsubscribe::<R>(name),
            Act::Watch => script.subscribe::<R>(name),
            Act::Remove => script.receive(removed::<R>("n", &[name])),
            Act::Send(any) => {
                script.receive(delta::<R>("n", [(name, "v", any.clone())]));
            }
        }
    }
}

/// The key of a resource off the wire.
pub(crate) fn key(any: &Any, name: &str) -> Key {
    match any.type_url.as_str() {
        Listener::TYPE_URL => Key::of::<Listener>(name),
        RouteConfig::TYPE_URL => Key::of::<RouteConfig>(name),
        Cluster::TYPE_URL => Key::of::<Cluster>(name),
        ClusterConfig::TYPE_URL => Key::of::<ClusterConfig>(name),
        Endpoints::TYPE_URL => Key::of::<Endpoints>(name),
        other => panic!("no such type: {other}"),
    }
}
