//! Comparisons of the maps with what they should be. They find and repair entries that another
//! program changed or deleted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::cell::Cell;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly_node::agent::Agent;
use crowfly_node::file;
use crowfly_node::maps::faulty::FaultyMaps;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::maps::{Counters, Dump, MapError, Maps, Operation, Pair};
use crowfly_node::model::{Place, Protocol};
use crowfly_node::reconcile::{Reconciler, Repairs};
use crowfly_node::select::{Frontend, Route, Target, Without};
use crowfly_node::serve::{self, Start, Told};
use crowfly_node::services::Services;
use crowfly_source::Event;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// N-83: entries of every map that were deleted or changed are written again, and nothing else is.
#[test]
fn missing_and_wrong_entries_are_written_again() {
    let mut maps = programmed(3);
    let whole = maps.maps().clone();
    maps.begin_comparison();
    assert_eq!(maps.compare(), Repairs::default(), "nothing was wrong");
    assert!(!maps.is_comparing());

    let broken = maps.maps_mut();
    broken.services.remove(&frontend(0));
    broken.slots.retain(|key, _| key.service.0 != 1);
    broken.members.clear();
    broken.services.get_mut(&frontend(1)).unwrap().slots = 7;
    for address in broken.backends.values_mut() {
        *address = "192.0.2.1:1".parse().unwrap();
    }
    assert_eq!(maps.compare(), Repairs::default(), "nobody asked");
    maps.begin_comparison();
    let repairs = maps.compare();
    // Both share the two backends, and each of the others has two members.
    assert_eq!(
        repairs.frontends,
        [(frontend(0), 7), (frontend(1), 3), (frontend(2), 2)]
    );
    assert_eq!(repairs.failed, []);
    let now = maps.maps();
    assert_eq!(now.services, whole.services);
    assert_eq!(now.slots, whole.slots);
    assert_eq!(now.backends, whole.backends);
    assert_eq!(now.members, whole.members);
}

/// N-83: a call compares some frontends, so that the agent is not kept from its work; all get their turn.
#[test]
fn a_comparison_of_many_frontends_takes_several_calls() {
    let mut maps = programmed(600);
    for number in [0, 599] {
        maps.maps_mut().services.remove(&frontend(number));
    }
    maps.begin_comparison();
    let mut calls = Vec::new();
    for number in 1..=3 {
        assert!(maps.is_comparing());
        // Neither this nor a change in between is a reason to begin anew.
        maps.begin_comparison();
        calls.push(maps.compare().frontends);
        maps.want(frontend(number), None);
        maps.change();
    }
    assert!(!maps.is_comparing());
    assert_eq!(
        calls,
        [vec![(frontend(0), 1)], vec![], vec![(frontend(599), 1)]]
    );
}

/// N-83: what cannot be repaired is said, and the next comparison tries again.
#[test]
fn a_repair_that_fails_is_tried_again() {
    let faults = Rc::new(Cell::new(0_u32));
    let left = Rc::clone(&faults);
    let mut maps = Reconciler::adopt(FaultyMaps {
        maps: programmed(2).into_maps(),
        fails: move |_: &Operation| left.replace(left.get().saturating_sub(1)) > 0,
        watch: |_: &Operation, _: &MemoryMaps| {},
    })
    .unwrap();
    maps.maps_mut().maps.services.clear();
    faults.set(1);
    for (repaired, failed) in [(frontend(1), 1), (frontend(0), 0)] {
        maps.begin_comparison();
        let repairs = maps.compare();
        assert_eq!(repairs.frontends, [(repaired, 1)]);
        assert_eq!(repairs.failed.len(), failed);
    }
}

/// N-83: an agent compares at the times that it is told, and never if it is told so.
#[tokio::test(start_paused = true)]
async fn an_agent_compares_when_it_is_time() {
    for period in [Some(Duration::from_secs(1800)), None] {
        let maps = SharedMaps::default();
        let table = Services::new(vec!["file".into()], Place::default());
        let mut agent = Agent::new(table, maps.clone()).unwrap();
        agent.compare_every(period);
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
        let text = "services:\n- name: web\n  cluster_ips: [10.96.0.1]\n  ports: [{ port: 80 }]\n  \
                    endpoints: [{ addresses: [10.244.0.1], ports: [{ port: 8080 }] }]\n";
        let services = file::read("node.yaml".as_ref(), text).unwrap().into_iter();
        let services = services.map(|it| Event::Upsert(it.name.clone(), Arc::new(it)));
        let events = [Event::Init].into_iter().chain(services);
        let events = events.chain([Event::InitDone]).collect();
        tell.send(Told::Services(0, events)).await.unwrap();
        assert_eq!(is_ready.await, Ok(1));

        let whole = maps.services();
        sleep(Duration::from_secs(1)).await;
        for _ in 0..3 {
            maps.0.lock().unwrap().services.clear();
            sleep(Duration::from_secs(1790)).await;
            assert!(maps.services().is_empty(), "not yet");
            sleep(Duration::from_secs(10)).await;
            match period {
                Some(_) => assert_eq!(maps.services(), whole),
                None => assert!(maps.services().is_empty()),
            }
        }
    }
}

/// Maps with so many frontends. Each has the same two backends, and affinity.
fn programmed(frontends: u16) -> Reconciler<MemoryMaps> {
    let mut maps = Reconciler::adopt(MemoryMaps::default()).unwrap();
    for number in 0..frontends {
        maps.want(frontend(number), Some(route(2)));
    }
    assert_eq!(maps.change().switched, usize::from(frontends));
    maps
}

fn frontend(number: u16) -> Frontend {
    let [high, low] = number.to_be_bytes();
    Frontend {
        address: [10, 96, high, low].into(),
        port: 80,
        protocol: Protocol::Tcp,
    }
}

fn route(backends: u8) -> Arc<Route> {
    let targets = (1..=backends).map(|number| Target {
        address: SocketAddr::from(([10, 244, 0, number], 8080)),
        weight: NonZeroU32::MIN,
    });
    Arc::new(Route {
        targets: targets.collect(),
        affinity: Some(Duration::from_secs(60)),
        without: Without::Refused,
    })
}

/// Maps that a test changes while an agent has them.
#[derive(Clone, Debug, Default)]
struct SharedMaps(Arc<Mutex<MemoryMaps>>);

impl SharedMaps {
    fn services(&self) -> Vec<Frontend> {
        let maps = self.0.lock().unwrap();
        maps.services.keys().copied().collect()
    }
}

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

    fn holds(&self, operation: &Operation) -> Result<bool, MapError> {
        self.0.lock().unwrap().holds(operation)
    }
}
