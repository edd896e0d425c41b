//! From resources to one whole configuration (gRFC A74).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::ResourceType;
use crowfly_model::grpc::route::RouteAction;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_testkit::builders::{Resource, cluster, endpoints, listener, routes};
use crowfly_testkit::{Script, response};
use crowfly_xds::{Key, Resolution, ResolveError, Resolved, Roots, XdsConfig, resolve};
use envoy_types::pb::google::protobuf::Any;

/// The walk asks for one more type at each step, gives nothing until the last piece is here, and
/// then gives it whole.
#[test]
fn configuration_is_given_once_the_last_piece_is_here() {
    let mut world = World::new();
    world.expect_waiting("listener web");
    world.give::<Listener>(&listener("web").rds("r"));
    world.expect_waiting("route configuration r");
    world.give::<RouteConfig>(&routes("r").host("web").route("/a", "c").route("/", "d"));
    world.expect_waiting("cluster c, cluster d");
    world.give::<Cluster>(&cluster("c").eds("c-eds"));
    world.expect_waiting("cluster d, endpoints c-eds");
    world.give::<Cluster>(&cluster("d"));
    world.give::<Endpoints>(&endpoints("c-eds").locality("z", 1, ["127.0.0.1:1"]));
    world.expect_waiting("endpoints d");
    world.give::<Endpoints>(&endpoints("d"));

    let config = world.expect_ready();

    assert_eq!(config.listener.name, "web");
    let routes: Vec<_> = config
        .virtual_host
        .routes
        .iter()
        .map(|r| &r.action)
        .collect();
    let [to_c, to_d] = ["c", "d"].map(|name| RouteAction::Cluster(name.to_owned()));
    assert_eq!(routes, [&to_c, &to_d]);
    assert_eq!(config.clusters.keys().collect::<Vec<_>>(), ["c", "d"]);
    let c = config.clusters["c"].as_ref().unwrap();
    assert_eq!(c.cluster.eds_name(), Some("c-eds"));
    assert_eq!(c.endpoints.as_ref().unwrap().priorities.len(), 1);
    assert_eq!(c.note, None);
}

/// The answer lists exactly the resources it depends on.
#[test]
fn watches_are_what_the_answer_depends_on() {
    let mut world = World::serving("c");
    let watched = |world: &World| world.resolve().watches.into_keys().collect::<Vec<_>>();
    let mut expected = vec![
        Key::of::<Listener>("web"),
        Key::of::<RouteConfig>("r"),
        Key::of::<Cluster>("c"),
        Key::of::<Endpoints>("c"),
    ];
    expected.sort();
    assert_eq!(watched(&world), expected);

    // The routes now lead elsewhere: `c` is not needed any more.
    world.give::<RouteConfig>(&routes("r").host("*").route("/", "d"));

    let watched = watched(&world);
    assert!(watched.contains(&Key::of::<Cluster>("d")));
    assert!(!watched.contains(&Key::of::<Cluster>("c")));
    assert!(!watched.contains(&Key::of::<Endpoints>("c")));
}

/// Routes in the listener itself need no route configuration.
#[test]
fn inline_routes_are_not_watched() {
    let mut world = World::new();
    let inline = routes("inline").host("*").route("/", "c");
    world.give::<Listener>(&listener("web").routes(inline));
    world.give::<Cluster>(&cluster("c"));
    world.give::<Endpoints>(&endpoints("c"));

    world.expect_ready();

    let watches = world.resolve().watches;
    assert!(
        watches
            .keys()
            .all(|key| key.type_url != RouteConfig::TYPE_URL)
    );
}

/// A listener for servers is an error that says so.
#[test]
fn socket_listener_is_an_error() {
    let mut world = World::new();
    world.give::<Listener>(&listener("web").socket());

    let error = world.expect_error();

    assert_eq!(error, ResolveError::SocketListener("web".into()));
}

/// A listener or a route configuration that is not to be had leaves no configuration.
#[test]
fn listener_and_routes_in_trouble_are_errors() {
    let mut world = World::new();
    world.give::<Listener>(&listener("web").rds("r").invalid());
    let error = world.expect_error().to_string();
    assert!(error.starts_with("listener web: invalid: "), "{error}");

    world.give::<Listener>(&listener("web").rds("r"));
    world.miss::<RouteConfig>("r");
    let error = world.expect_error().to_string();
    assert!(
        error.starts_with("route configuration r: does not exist"),
        "{error}"
    );
}

/// A virtual host must fit the authority, which need not be the listener's name.
#[test]
fn authority_without_a_virtual_host_is_an_error() {
    let mut world = World::serving("c");
    world.give::<RouteConfig>(&routes("r").host("other.example").route("/", "c"));

    let error = world.expect_error();
    assert_eq!(
        error.to_string(),
        "route configuration r: no virtual host matches `web`"
    );

    world.roots.authority = "other.example".into();
    world.expect_ready();
}

/// A cluster that is not to be had is that cluster's error; the others work.
#[test]
fn missing_cluster_is_its_own_error() {
    let mut world = World::serving("c");
    world.give::<RouteConfig>(&routes("r").host("*").route("/lost", "lost").route("/", "c"));
    world.miss::<Cluster>("lost");

    let config = world.expect_ready();

    let error = config.clusters["lost"].as_ref().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cluster lost: does not exist"),
        "{error}"
    );
    assert!(config.clusters["c"].is_ok());
}

/// Endpoints that are not to be had leave a cluster without any, and a note that says why.
#[test]
fn missing_endpoints_are_a_note() {
    let mut world = World::serving("c");
    world.give::<Cluster>(&cluster("c").eds("lost"));
    world.miss::<Endpoints>("lost");

    let config = world.expect_ready();

    let state = config.clusters["c"].as_ref().unwrap();
    assert_eq!(state.endpoints, None);
    let note = state.note.as_ref().unwrap().to_string();
    assert!(note.starts_with("endpoints lost: does not exist"), "{note}");
}

/// Trouble around resources that are in use changes nothing.
#[test]
fn ambient_errors_leave_the_configuration_as_it_is() {
    let mut world = World::serving("c");
    let before = world.expect_ready();
    world.give::<Cluster>(&cluster("c").invalid());

    assert_eq!(world.expect_ready(), before);
}

/// What a channel to `web` can see; resources come through a session, as they do in life.
struct World {
    script: Script,
    /// What the server has sent, since some types are sent whole.
    sent: BTreeMap<Key, Any>,
    roots: Roots,
}

impl World {
    fn new() -> Self {
        let mut script = Script::new();
        script.subscribe::<Listener>("web");
        script.open();
        Self {
            script,
            sent: BTreeMap::new(),
            roots: Roots {
                listener: "web".into(),
                authority: "web".into(),
            },
        }
    }

    /// Everything is there, and leads to one cluster.
    fn serving(cluster_name: &str) -> Self {
        let mut world = Self::new();
        world.give::<Listener>(&listener("web").rds("r"));
        world.give::<RouteConfig>(&routes("r").host("*").route("/", cluster_name));
        world.give::<Cluster>(&cluster(cluster_name));
        world.give::<Endpoints>(&endpoints(cluster_name));
        world
    }

    /// The server sends a resource.
    fn give<R: ResourceType>(&mut self, resource: &impl Resource) {
        let name = resource.name();
        self.script.subscribe::<R>(&name);
        self.sent.insert(Key::of::<R>(&name), resource.any());
        let sent = self.sent.iter();
        let of_type = sent.filter(|(key, _)| key.type_url == R::TYPE_URL);
        let resources: Vec<Any> = of_type.map(|(_, any)| any.clone()).collect();
        self.script.receive(response::<R>("v", "n", resources));
    }

    /// The server does not send a resource in time.
    fn miss<R: ResourceType>(&mut self, name: &str) {
        self.script.subscribe::<R>(name);
        self.script.advance(Duration::from_secs(15));
    }

    fn resolve(&self) -> Resolution {
        resolve(self.script.cache(), &self.roots)
    }

    fn expect_waiting(&self, missing: &str) {
        match self.resolve().resolved {
            Resolved::Waiting(actual) => assert_eq!(actual.to_string(), missing),
            other => panic!("expected to wait for {missing}, got {other:?}"),
        }
    }

    fn expect_ready(&self) -> Arc<XdsConfig> {
        match self.resolve().resolved {
            Resolved::Ready(config) => config,
            other => panic!("expected a configuration, got {other:?}"),
        }
    }

    fn expect_error(&self) -> ResolveError {
        match self.resolve().resolved {
            Resolved::Error(error) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }
}
