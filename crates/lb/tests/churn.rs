//! Random scripts of plans and states, checked against a model that is simple enough to be right.
//!
//! The model keeps only what the rules speak of and works everything out anew after each batch, so
//! it also shows that what the balancer compiles piece by piece equals a compilation from scratch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::collections::{BTreeMap, BTreeSet};

use crowfly_lb::{Call, Connectivity, EndpointId, EndpointState, Event};
use proptest::{collection::vec, prelude::*, sample::subsequence};
use sim::{CLUSTER, Picked, Port, Sim, plan};

const ZONES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// S7-01, S7-02, S10-01: whatever the script, calls go to READY endpoints only and by the
    /// shares of the model; each endpoint is released exactly once, when no list has it any more.
    #[test]
    fn any_script_keeps_the_rules(seed: u64, script in vec(vec(action(), 1..4), 1..40)) {
        let mut churn = Churn::new(seed);
        for batch in script {
            for action in batch {
                churn.act(action);
            }
            churn.flush();
            churn.check();
        }
        churn.end();
    }
}

/// One thing that happens. Endpoints are named by a number, modulo those that there are.
#[derive(Clone, Debug)]
enum Action {
    Plan(Vec<(&'static str, u32, Vec<Port>)>),
    Report(usize, Reported),
    /// A report about an endpoint that was released.
    Late(usize, Reported),
    Hold,
    Finish,
}

#[derive(Clone, Copy, Debug)]
enum Reported {
    Idle,
    Connecting,
    Ready,
    Failing,
}

fn action() -> impl Strategy<Value = Action> {
    let ports = subsequence(vec![1, 2, 3, 4], 0..=4);
    let locality = (1..5_u32, ports.prop_shuffle());
    let localities = (
        subsequence(ZONES.to_vec(), 0..=3).prop_shuffle(),
        vec(locality, 3),
    );
    let plan = localities.prop_map(|(zones, rest)| {
        let localities = zones.into_iter().zip(rest);
        Action::Plan(
            localities
                .map(|(zone, (weight, ports))| (zone, weight, ports))
                .collect(),
        )
    });
    prop_oneof![
        2 => plan,
        9 => (any::<usize>(), reported()).prop_map(|(n, reported)| Action::Report(n, reported)),
        1 => (any::<usize>(), reported()).prop_map(|(n, reported)| Action::Late(n, reported)),
        1 => Just(Action::Hold),
        1 => Just(Action::Finish),
    ]
}

fn reported() -> impl Strategy<Value = Reported> {
    prop_oneof![
        1 => Just(Reported::Idle),
        2 => Just(Reported::Connecting),
        4 => Just(Reported::Ready),
        3 => Just(Reported::Failing),
    ]
}

/// The balancer and the model, side by side.
struct Churn {
    sim: Sim,
    model: Model,
    calls: Vec<Call<Port>>,
}

impl Churn {
    fn new(seed: u64) -> Self {
        Self {
            sim: Sim::with_seed(seed),
            model: Model::default(),
            calls: Vec::new(),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Plan(localities) => {
                let view: Vec<_> = localities
                    .iter()
                    .map(|(z, w, p)| (*z, *w, &p[..]))
                    .collect();
                self.sim.handle(Event::Plan(plan(&view).into()));
                self.model.next = Some(localities);
            }
            Action::Report(n, reported) => {
                let views = self.sim.balancer.endpoints(CLUSTER);
                if let Some(view) = views.get(n.checked_rem(views.len()).unwrap_or(0)) {
                    let key = (view.locality.zone().to_owned(), view.addresses[0].port());
                    self.model.states.get_mut(&key).unwrap().report(reported);
                    self.report(view.id, key.1, reported);
                }
            }
            Action::Late(n, reported) => {
                let released: Vec<_> = self.sim.released.iter().copied().collect();
                if let Some(&id) = released.get(n.checked_rem(released.len()).unwrap_or(0)) {
                    self.report(id, 0, reported);
                }
            }
            Action::Hold => {
                if self.sim.picker.is_some()
                    && let Picked::Ready(call) = self.sim.pick()
                {
                    self.calls.push(call);
                }
            }
            Action::Finish => drop(self.calls.pop()),
        }
    }

    fn report(&mut self, id: EndpointId, port: Port, reported: Reported) {
        let state = match reported {
            Reported::Idle => EndpointState::Idle,
            Reported::Connecting => EndpointState::Connecting,
            Reported::Ready => EndpointState::Ready(port),
            Reported::Failing => EndpointState::TransientFailure("refused".into()),
        };
        self.sim.handle(Event::Endpoint { id, state });
    }

    fn flush(&mut self) {
        self.sim.flush();
        self.model.flush();
    }

    fn check(&mut self) {
        let views = self.sim.balancer.endpoints(CLUSTER);
        let shown: BTreeMap<_, _> = views
            .iter()
            .map(|view| {
                (
                    (view.locality.zone().to_owned(), view.addresses[0].port()),
                    view.state,
                )
            })
            .collect();
        let expected: BTreeMap<_, _> = self
            .model
            .states
            .iter()
            .map(|(key, state)| (key.clone(), state.view))
            .collect();
        assert_eq!(
            shown, expected,
            "endpoints that are held, with their states"
        );
        let ids: BTreeSet<_> = views.iter().map(|view| view.id).collect();
        assert_eq!(
            ids,
            self.sim.live.keys().copied().collect(),
            "connected but not released"
        );

        let Some(picker) = self.sim.picker.clone() else {
            return;
        };
        let shares: Vec<_> = picker.shares();
        let shown: Vec<_> = shares
            .iter()
            .map(|share| {
                let ports = share.endpoints.iter().map(|id| self.sim.live[id]).collect();
                (share.locality.zone().to_owned(), share.probability, ports)
            })
            .collect();
        assert_eq!(shown, self.model.shares());

        let open: u64 = views.iter().map(|view| view.in_flight).sum();
        let held = self
            .calls
            .iter()
            .filter(|call| self.sim.live.contains_key(&call.endpoint()));
        assert_eq!(open, held.count() as u64);
        for _ in 0..10 {
            self.check_pick(&shown);
        }
    }

    fn check_pick(&mut self, shares: &[(String, f64, Vec<Port>)]) {
        match self.sim.pick() {
            Picked::Ready(call) => {
                let key = (
                    call.locality().zone().to_owned(),
                    call.addresses()[0].port(),
                );
                assert_eq!(self.model.states[&key].view, Connectivity::Ready);
                assert!(self.sim.live.contains_key(&call.endpoint()));
            }
            Picked::Drop(_) | Picked::Wake(_) => panic!("nothing here drops calls or is idle"),
            Picked::Queue => {
                assert!(shares.is_empty());
                assert!(self.model.may_queue());
            }
            Picked::Fail(_) => {
                assert!(shares.is_empty());
                assert_eq!(self.model.state(), Connectivity::TransientFailure);
            }
        }
    }

    /// Nothing is left when the cluster goes.
    fn end(mut self) {
        self.sim.handle(Event::RemoveCluster(CLUSTER.into()));
        self.sim.flush();
        assert_eq!(self.sim.live, BTreeMap::new());
    }
}

type Key = (String, Port);

/// The rules, worked out from scratch.
#[derive(Default)]
struct Model {
    next: Option<Vec<(&'static str, u32, Vec<Port>)>>,
    localities: Vec<ModelLocality>,
    states: BTreeMap<Key, ModelState>,
}

struct ModelLocality {
    zone: String,
    weight: u32,
    current: Vec<Port>,
    pending: Option<Vec<Port>>,
    counts_as: Connectivity,
}

struct ModelState {
    reported: bool,
    view: Connectivity,
}

impl ModelState {
    fn report(&mut self, reported: Reported) {
        self.reported = true;
        self.view = match (self.view, reported) {
            (_, Reported::Ready) => Connectivity::Ready,
            (_, Reported::Failing) | (Connectivity::TransientFailure, _) => {
                Connectivity::TransientFailure
            }
            (_, Reported::Idle | Reported::Connecting) => Connectivity::Connecting,
        };
    }
}

impl Model {
    fn flush(&mut self) {
        if let Some(plan) = self.next.take() {
            let mut before = std::mem::take(&mut self.localities);
            for (zone, weight, ports) in plan {
                let kept = before.iter().position(|locality| locality.zone == zone);
                let mut locality = kept.map_or_else(
                    || ModelLocality {
                        zone: zone.to_owned(),
                        weight,
                        current: vec![],
                        pending: None,
                        counts_as: Connectivity::Connecting,
                    },
                    |index| before.remove(index),
                );
                locality.weight = weight;
                if *locality.pending.as_ref().unwrap_or(&locality.current) != ports {
                    locality.pending = Some(ports.clone());
                }
                self.localities.push(locality);
            }
        }
        self.create_states();
        for index in 0..self.localities.len() {
            self.swap_list(index);
        }
        self.drop_states();
        for index in 0..self.localities.len() {
            let state = self.best(
                &self.localities[index].zone,
                &self.localities[index].current,
            );
            let counts_as = &mut self.localities[index].counts_as;
            if *counts_as != Connectivity::TransientFailure || state == Connectivity::Ready {
                *counts_as = state;
            }
        }
    }

    fn create_states(&mut self) {
        for key in self.held() {
            let fresh = ModelState {
                reported: false,
                view: Connectivity::Connecting,
            };
            self.states.entry(key).or_insert(fresh);
        }
    }

    fn drop_states(&mut self) {
        let held = self.held();
        self.states.retain(|key, _| held.contains(key));
    }

    fn held(&self) -> BTreeSet<Key> {
        let of = |locality: &ModelLocality| {
            let ports = locality
                .current
                .iter()
                .chain(locality.pending.iter().flatten());
            ports
                .map(|&port| (locality.zone.clone(), port))
                .collect::<Vec<_>>()
        };
        self.localities.iter().flat_map(of).collect()
    }

    fn swap_list(&mut self, index: usize) {
        let ModelLocality {
            zone,
            current,
            pending,
            ..
        } = &self.localities[index];
        let Some(pending) = pending else { return };
        let reported = |&port: &Port| self.states[&(zone.clone(), port)].reported;
        let failing = |&port: &Port| self.view(zone, port) == Connectivity::TransientFailure;
        let swap = self.best(zone, current) != Connectivity::Ready
            || self.best(zone, pending) == Connectivity::Ready && pending.iter().all(reported)
            || pending.iter().all(failing);
        if swap {
            let locality = &mut self.localities[index];
            locality.current = locality.pending.take().unwrap();
        }
    }

    fn view(&self, zone: &str, port: Port) -> Connectivity {
        self.states[&(zone.to_owned(), port)].view
    }

    fn best(&self, zone: &str, ports: &[Port]) -> Connectivity {
        best(ports.iter().map(|&port| self.view(zone, port)))
    }

    fn state(&self) -> Connectivity {
        best(self.localities.iter().map(|locality| locality.counts_as))
    }

    /// Calls wait if the cluster is connecting, or on a locality that has failed but has a new
    /// endpoint.
    fn may_queue(&self) -> bool {
        let connecting = |locality: &ModelLocality| {
            self.best(&locality.zone, &locality.current) == Connectivity::Connecting
        };
        self.state() == Connectivity::Connecting || self.localities.iter().any(connecting)
    }

    fn shares(&self) -> Vec<(String, f64, Vec<Port>)> {
        let ready = |locality: &&ModelLocality| locality.counts_as == Connectivity::Ready;
        let total: u32 = self
            .localities
            .iter()
            .filter(ready)
            .map(|locality| locality.weight)
            .sum();
        let share = |locality: &ModelLocality| {
            let ports = locality.current.iter().copied();
            let ready = ports.filter(|&p| self.view(&locality.zone, p) == Connectivity::Ready);
            let probability = f64::from(locality.weight) / f64::from(total);
            (locality.zone.clone(), probability, ready.collect())
        };
        self.localities.iter().filter(ready).map(share).collect()
    }
}

fn best(states: impl Iterator<Item = Connectivity>) -> Connectivity {
    let states: Vec<_> = states.collect();
    for state in [Connectivity::Ready, Connectivity::Connecting] {
        if states.contains(&state) {
            return state;
        }
    }
    Connectivity::TransientFailure
}
