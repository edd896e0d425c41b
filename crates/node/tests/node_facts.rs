//! The place of the node is awaited before frontends of a former agent are changed, because it
//! decides which endpoints are local.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly_node::agent::Agent;
use crowfly_node::file;
use crowfly_node::kubernetes::{KubernetesOptions, KubernetesSource};
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::maps::{Counters, Dump, MapError, Maps, Operation, Pair};
use crowfly_node::model::Place;
use crowfly_node::serve::{self, Start, Told};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;
use crowfly_source::kubernetes::{ApiServerOptions, WatchOptions};
use crowfly_testkit::{Fault, KubeApi};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// N-76: a service is local by the addresses of the node's pods alone, and its endpoints are told before them. Its route
/// stays as the former agent left it until the pods are known and its endpoints were told anew.
#[tokio::test(start_paused = true)]
async fn a_local_route_stays_until_the_node_is_heard() {
    let mut world = World::start(true);
    world.tell(Told::Services(0, listing("elsewhere"))).await;
    assert_eq!(world.slots(), 1);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.slots(), 1);
    world.tell(Told::NodeHeard).await;
    assert_eq!(world.slots(), 1);
    world.tell(Told::Services(0, listing("n1"))).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.slots(), 1);
    world.tell(Told::Services(0, listing("elsewhere"))).await;
    assert_eq!(world.slots(), 0, "nothing is held any more");
}

/// N-76: if no source says where the node is, frontends wait for the patience of the start, and no
/// longer. A new frontend never waits.
#[tokio::test(start_paused = true)]
async fn the_wait_for_the_node_has_an_end() {
    let mut world = World::start(true);
    let mut both = listing("elsewhere");
    both.splice(1..1, services("new", "10.96.0.2", "n1"));
    world.tell(Told::Services(0, both)).await;
    assert_eq!(world.slots(), 2);
    sleep(Start::PATIENCE).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.slots(), 1);

    // An agent that asks nobody for its node does not wait.
    let mut world = World::start(false);
    world.tell(Told::Services(0, listing("elsewhere"))).await;
    assert_eq!(world.slots(), 0);
}

/// N-76: the API server's answer about the node is told once, after the place. It may be that there is no such Node, but
/// not a failure.
#[tokio::test]
async fn an_answer_about_the_node_is_told() {
    for has_node in [false, true] {
        let api = KubeApi::start().await;
        if has_node {
            api.apply(&json!({
                "kind": "Node",
                "metadata": { "name": "n1", "labels": { "topology.kubernetes.io/zone": "a" } },
            }));
        }
        api.fail("nodes", Fault::Status(500, None));
        let source = KubernetesSource::new(KubernetesOptions {
            server: ApiServerOptions {
                address: Some(api.url()),
                ..ApiServerOptions::default()
            },
            node_name: Some("n1".to_owned()),
            watch: WatchOptions {
                shortest_pause: Duration::from_millis(20),
                ..WatchOptions::default()
            },
            ..KubernetesOptions::default()
        });
        let source = source.unwrap();
        assert!(source.follows_node());
        let (tell, mut told) = mpsc::channel(16);
        let task = tokio::spawn(source.run(0, tell));
        let mut places = 0;
        let heard = async {
            loop {
                match told.recv().await.unwrap() {
                    Told::Place(_) => places += 1,
                    Told::NodeHeard => return,
                    _ => {}
                }
            }
        };
        timeout(Duration::from_secs(20), heard).await.unwrap();
        assert_eq!(places, usize::from(has_node));
        let requests = api.requests();
        let asked = requests.iter().filter(|it| it.contains("/nodes"));
        assert!(asked.count() > 1, "the first answer was a failure");
        task.abort();
    }
}

/// An agent with the maps of a former one, in which 10.96.0.1:80 has a local backend.
struct World {
    tell: mpsc::Sender<Told>,
    maps: SharedMaps,
    _folder: tempfile::TempDir,
    _ready: oneshot::Receiver<usize>,
}

impl World {
    fn start(awaits_node: bool) -> Self {
        let maps = SharedMaps::default();
        let table = || {
            let place = Place {
                node: Some("n1".into()),
                zone: None,
            };
            Services::new(vec!["xds".into()], place)
        };
        let mut former = Agent::new(table(), maps.clone()).unwrap();
        former.handle(0, listing("n1"));
        let mut agent = Agent::new(table(), maps.clone()).unwrap();
        if awaits_node {
            agent.wait_for_node();
        }
        let folder = tempfile::tempdir().unwrap();
        let questions = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (tell, told) = mpsc::channel(1);
        let (ready, is_ready) = oneshot::channel();
        let patience = Start::PATIENCE;
        tokio::spawn(serve::run(
            agent,
            told,
            questions,
            Start { patience, ready },
        ));
        Self {
            tell,
            maps,
            _folder: folder,
            _ready: is_ready,
        }
    }

    /// Tells the agent something, and waits until it has obeyed and swept.
    async fn tell(&mut self, told: Told) {
        self.tell.send(told).await.unwrap();
        sleep(Duration::from_millis(300)).await;
    }

    fn slots(&self) -> u32 {
        let maps = self.maps.0.lock().unwrap();
        maps.services.values().map(|entry| entry.slots).sum()
    }
}

/// One service, with an endpoint on a node.
fn listing(node: &str) -> Vec<ServiceEvent> {
    let mut events = vec![Event::Init];
    events.extend(services("web", "10.96.0.1", node));
    events.push(Event::InitDone);
    events
}

fn services(name: &str, address: &str, node: &str) -> Vec<ServiceEvent> {
    let text = format!(
        "services:\n- name: {name}\n  cluster_ips: [{address}]\n  ports: [{{ port: 80 }}]\n  \
         internal_traffic_policy: Local\n  \
         endpoints: [{{ addresses: [10.244.0.1], ports: [{{ port: 8080 }}], node: {node} }}]\n"
    );
    let services = file::read("node.yaml".as_ref(), &text).unwrap();
    let services = services.into_iter();
    services
        .map(|service| Event::Upsert(service.name.clone(), Arc::new(service)))
        .collect()
}

/// Maps that a test reads while an agent has them.
#[derive(Clone, Debug, Default)]
struct SharedMaps(Arc<Mutex<MemoryMaps>>);

impl Maps for SharedMaps {
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        self.0.lock().unwrap().apply(operation)
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.0.lock().unwrap().dump()
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        self.0.lock().unwrap().counters()
    }
}
