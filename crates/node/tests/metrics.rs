//! The metrics of the agent for Prometheus. The maps are in memory, so the tests need no kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crowfly_node::agent::Agent;
use crowfly_node::file;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::maps::{Counters, Dump, MapError, Maps, Operation, Pair};
use crowfly_node::metrics;
use crowfly_node::model::Place;
use crowfly_node::services::Services;
use crowfly_source::Event;

/// N-70: the connections of a frontend never become fewer, although backends leave, their counters are
/// forgotten, and they come back.
#[test]
fn the_sum_of_a_frontend_does_not_go_back() {
    let mut shop = Shop::new(&["10.244.0.1", "10.244.0.2"]);
    shop.connections("10.244.0.1", 5, 4);
    shop.connections("10.244.0.2", 7, 7);
    assert_eq!(shop.rows(), ["10.244.0.1:8080 5 4", "10.244.0.2:8080 7 7"]);

    // The second one leaves. Its counters are there, and so is its name.
    shop.lead_to(&["10.244.0.1"]);
    assert_eq!(shop.rows(), ["10.244.0.1:8080 5 4", "10.244.0.2:8080 7 7"]);
    // It is idle, so that the second look forgets it.
    shop.prune();
    shop.prune();
    assert_eq!(shop.rows(), ["10.244.0.1:8080 5 4", "gone 7 7"]);

    // The first one leaves with an open connection, which keeps its counters.
    shop.lead_to(&["10.244.0.3"]);
    shop.prune();
    shop.prune();
    assert_eq!(shop.rows(), ["10.244.0.1:8080 5 4", "gone 7 7"]);
    // It comes back with another number, and its old connection ends. The kernel forgets that number.
    shop.lead_to(&["10.244.0.1"]);
    shop.connections("10.244.0.1", 1, 1);
    assert_eq!(shop.rows(), ["10.244.0.1:8080 6 5", "gone 7 7"]);
    shop.close_all();
    shop.prune();
    shop.prune();
    assert_eq!(shop.rows(), ["10.244.0.1:8080 6 6", "gone 7 7"]);

    shop.lead_to(&["10.244.0.3"]);
    shop.prune();
    shop.prune();
    assert_eq!(shop.rows(), ["gone 13 13"]);

    // A frontend that is gone takes its sum with it.
    shop.agent.handle(0, vec![Event::Init, Event::InitDone]);
    shop.prune();
    assert_eq!(shop.rows(), [""; 0]);
    shop.lead_to(&["10.244.0.1"]);
    assert_eq!(shop.rows(), [""; 0]);
}

/// N-70: a full map of counters is logged once, because programs lose counts without a word.
#[test]
fn a_full_map_of_counters_is_logged_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let mut shop = Shop::new(&["10.244.0.1", "10.244.0.2"]);
    shop.maps.0.borrow_mut().capacity = 2;
    let lines = || {
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        log.matches("the map stats is full").count()
    };
    shop.connections("10.244.0.1", 1, 0);
    shop.prune();
    assert_eq!(lines(), 0);
    shop.connections("10.244.0.2", 1, 0);
    shop.prune();
    shop.prune();
    assert_eq!(lines(), 1);
    shop.maps.0.borrow_mut().capacity = 3;
    shop.prune();
    shop.maps.0.borrow_mut().capacity = 2;
    shop.prune();
    assert_eq!(lines(), 2, "there was room in between");
}

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An agent with one service.
struct Shop {
    agent: Agent<SharedMaps>,
    maps: SharedMaps,
}

impl Shop {
    fn new(backends: &[&str]) -> Self {
        let maps = SharedMaps::default();
        let services = Services::new(vec!["file".into()], Place::default());
        let agent = Agent::new(services, maps.clone()).unwrap();
        let mut shop = Self { agent, maps };
        shop.lead_to(backends);
        shop
    }

    fn lead_to(&mut self, backends: &[&str]) {
        let endpoints = backends.iter().map(|backend| {
            format!("  - {{ addresses: [{backend}], ports: [{{ port: 8080 }}] }}\n")
        });
        let text = format!(
            "services:\n- name: web\n  cluster_ips: [10.96.0.1]\n  ports: [{{ port: 80 }}]\n  endpoints:\n{}",
            endpoints.collect::<String>()
        );
        let services = file::read("node.yaml".as_ref(), &text).unwrap();
        let services = services
            .into_iter()
            .map(|service| Event::Upsert(service.name.clone(), Arc::new(service)));
        let begin = [Event::Init].into_iter();
        let events = begin.chain(services).chain([Event::InitDone]).collect();
        self.agent.handle(0, events);
        for _ in 0..2 {
            self.agent.sweep();
        }
    }

    /// Sets the connections to a backend, as the kernel counts them.
    fn connections(&mut self, backend: &str, opened: u64, closed: u64) {
        let mut maps = self.maps.0.borrow_mut();
        let address: SocketAddr = format!("{backend}:8080").parse().unwrap();
        let mut backends = maps.backends.iter();
        let backend = *backends.find(|(_, known)| **known == address).unwrap().0;
        let service = maps.services.values().next().unwrap().service;
        let counters = Counters {
            opened,
            established: opened,
            failed: 0,
            closed,
        };
        maps.counters.insert(Pair { service, backend }, counters);
    }

    /// Ends all connections.
    fn close_all(&mut self) {
        for counters in self.maps.0.borrow_mut().counters.values_mut() {
            counters.closed = counters.opened;
        }
    }

    fn prune(&mut self) {
        self.agent.prune_counters().unwrap();
    }

    /// Each backend with its connections: opened and closed.
    fn rows(&self) -> Vec<String> {
        let scrape = metrics::read(&self.agent).unwrap();
        let rows = scrape.connections.iter().map(|row| {
            let Counters { opened, closed, .. } = row.counters;
            format!("{} {opened} {closed}", row.backend)
        });
        rows.collect()
    }
}

/// Maps whose counters a test can change while an agent has them.
#[derive(Clone, Debug, Default)]
struct SharedMaps(Rc<RefCell<MemoryMaps>>);

impl Maps for SharedMaps {
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        self.0.borrow_mut().apply(operation)
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.0.borrow().dump()
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        self.0.borrow().counters()
    }

    fn capacities(&self) -> Vec<(&'static str, u32)> {
        let room = u32::try_from(self.0.borrow().capacity).unwrap_or(u32::MAX);
        vec![("stats", room)]
    }
}
