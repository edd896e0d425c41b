//! The agent looks for sockets only when a backend is gone, and ends those of that backend.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::sync::{Arc, Mutex};

use crowfly_node::agent::Agent;
use crowfly_node::maps::MapError;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::metrics::Metrics;
use crowfly_node::model::{Place, Protocol};
use crowfly_node::services::Services;
use crowfly_node::sockets::{Found, Routed, Sockets};

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    sockets: Vec<Routed>,
    is_looking: bool,
    is_broken_off: bool,
    has_failed: bool,
    looks: usize,
    ended: Vec<u64>,
}

impl Sockets for Fake {
    fn look(&mut self) {
        let mut state = self.0.lock().unwrap();
        state.is_looking = true;
        state.looks += 1;
    }

    fn is_looking(&self) -> bool {
        self.0.lock().unwrap().is_looking
    }

    fn found(&mut self) -> Result<Option<Found>, MapError> {
        let mut state = self.0.lock().unwrap();
        if !std::mem::take(&mut state.is_looking) {
            return Ok(None);
        }
        let mut found = Found {
            is_whole: !std::mem::take(&mut state.is_broken_off),
            ..Found::default()
        };
        for socket in &state.sockets {
            found.sockets.entry(socket.pair).or_default().push(*socket);
        }
        Ok(Some(found))
    }

    fn end(&mut self, sockets: Vec<Routed>, _: &Metrics) {
        let mut state = self.0.lock().unwrap();
        state.ended = sockets.iter().map(|socket| socket.cookie).collect();
    }

    fn is_ending(&self) -> bool {
        self.0.lock().unwrap().has_failed
    }

    fn must_try_again(&mut self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap().has_failed)
    }
}

/// An agent of one service whose backends are told by [`World::tell`], and a socket to each of the first two.
struct World {
    agent: Agent<MemoryMaps>,
    fake: Fake,
}

impl World {
    fn new() -> Self {
        let services = Services::new(vec!["file".into()], Place::default());
        let mut agent = Agent::new(services, MemoryMaps::default()).unwrap();
        let fake = Fake::default();
        agent.watch_sockets(Box::new(fake.clone()));
        let mut world = Self { agent, fake };
        assert_eq!(
            world.tell("10.0.0.1 10.0.0.2"),
            (1, vec![]),
            "once at first"
        );
        let frontend = *world.agent.reconciler().frontends().next().unwrap();
        let pairs = world.agent.reconciler().pairs(&frontend);
        let sockets = (1..).zip(pairs).map(|(cookie, (pair, backend))| Routed {
            cookie,
            pair,
            backend,
            protocol: Protocol::Udp,
        });
        world.fake.0.lock().unwrap().sockets = sockets.collect();
        world
    }

    /// Tells backends, of which those with `!` are not ready. Returns the number of looks that follow, and
    /// the sockets that were ended.
    fn tell(&mut self, backends: &str) -> (usize, Vec<u64>) {
        let endpoints = backends.split_whitespace().map(|backend| {
            let (address, ready) = (backend.trim_end_matches('!'), !backend.ends_with('!'));
            format!("{{ addresses: [{address}], ports: [{{ port: 53, protocol: UDP }}], ready: {ready} }}")
        });
        let endpoints = endpoints.collect::<Vec<_>>().join(", ");
        let services = format!(
            "services:\n- name: dns\n  cluster_ips: [10.96.0.53]\n  ports: [{{ port: 53, protocol: UDP }}]\n  \
             endpoints: [{endpoints}]\n"
        );
        self.agent.handle(0, golden::listed(&services));
        self.sweep()
    }

    fn sweep(&mut self) -> (usize, Vec<u64>) {
        for _ in 0..10 {
            if self.agent.has_garbage() {
                self.agent.sweep();
                self.agent.end_sockets();
            }
        }
        let mut state = self.fake.0.lock().unwrap();
        let looks = std::mem::take(&mut state.looks);
        (looks, std::mem::take(&mut state.ended))
    }
}

/// N-79: backends that come, or are only not ready, cause no look at sockets. One that goes does,
/// also when it got no connections before.
#[test]
fn sockets_are_looked_at_only_when_a_backend_is_gone() {
    let mut world = World::new();
    assert_eq!(world.tell("10.0.0.1 10.0.0.2 10.0.0.3"), (0, vec![]));
    assert_eq!(world.tell("10.0.0.1! 10.0.0.2 10.0.0.3"), (0, vec![]));
    assert_eq!(world.tell("10.0.0.1 10.0.0.2 10.0.0.3"), (0, vec![]));
    assert_eq!(world.tell("10.0.0.1! 10.0.0.2 10.0.0.3"), (0, vec![]));
    assert_eq!(world.tell("10.0.0.2 10.0.0.3"), (1, vec![1]));
    assert_eq!(world.tell("10.0.0.3 10.0.0.4"), (1, vec![1, 2]));
    world.agent.handle(0, golden::listed("services: []\n"));
    assert_eq!(world.sweep(), (1, vec![1, 2]));
}

/// N-80: a backend that was not ready when the agent started is known to be leaving from the first look.
#[test]
fn a_backend_that_was_leaving_before_the_agent_started_is_not_forgotten() {
    let mut world = World::new();
    world.tell("10.0.0.1! 10.0.0.2");
    let services = Services::new(vec!["file".into()], Place::default());
    let maps = world.agent.reconciler().maps().clone();
    world.agent = Agent::new(services, maps).unwrap();
    world.agent.watch_sockets(Box::new(world.fake.clone()));
    assert_eq!(world.tell("10.0.0.1! 10.0.0.2"), (1, vec![]));
    assert_eq!(world.tell("10.0.0.2"), (1, vec![1]));
}

/// N-79: sockets are looked at again after a look that was broken off, and after an attempt that failed.
#[test]
fn a_look_that_was_broken_off_and_an_end_that_failed_are_tried_again() {
    let mut world = World::new();
    world.fake.0.lock().unwrap().is_broken_off = true;
    assert_eq!(world.tell("10.0.0.2"), (1, vec![1]));
    assert!(world.agent.has_failed());
    world.agent.retry();
    assert_eq!(world.sweep(), (1, vec![1]));
    assert!(!world.agent.has_failed());
    world.fake.0.lock().unwrap().has_failed = true;
    assert!(world.agent.has_failed());
    world.agent.retry();
    assert_eq!(world.sweep(), (1, vec![1]));
    assert!(!world.agent.has_failed());
}
