//! The rules of sessions (A75), computed from the plan and the servers alone. It looks at no tree,
//! because it must not share the errors of the balancer.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use crowfly_lb::{CallContext, Health, Pick, timing::SESSION_SWEEP_MIN};

use super::{
    BACKENDS, Choice, PlanSpec, SESSIONS, Spot, Step,
    driver::{Connection, Driver, Run, addresses, backend},
};

pub(crate) struct Oracle {
    driver: Driver,
    plan: Option<PlanSpec>,
    /// The addresses that each session sticks to.
    sessions: [Vec<SocketAddr>; SESSIONS],
    /// When a session last used each backend.
    last_used: [Option<Instant>; BACKENDS],
    /// When a call of a session last waited for each backend.
    last_awaited: [Option<Instant>; BACKENDS],
    /// When a session last used each backend, or may have waited for it.
    last_wanted: [Option<Instant>; BACKENDS],
    /// True if every leaf so far was `round_robin`, which lets go of what left its list.
    is_plain: bool,
    picks: u64,
}

/// The end of a call.
#[derive(PartialEq, Debug)]
enum Ended {
    Failed,
    On(usize),
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            driver: Driver::new(),
            plan: None,
            sessions: Default::default(),
            last_used: [None; BACKENDS],
            last_awaited: [None; BACKENDS],
            last_wanted: [None; BACKENDS],
            is_plain: true,
            picks: 0,
        }
    }

    pub(crate) fn act(&mut self, step: &Step) {
        match step {
            Step::Call(session) => self.call(*session),
            Step::Forget(session) => self.sessions[*session].clear(),
            Step::Plan(spec) => {
                self.is_plain &= spec.policy == Choice::RoundRobin;
                self.plan = Some(spec.clone());
                self.driver.plan(spec);
                // A backend that leaves the plan is forgotten.
                for (number, spot) in spec.backends.iter().enumerate() {
                    if spot.is_none() {
                        self.last_used[number] = None;
                        self.last_awaited[number] = None;
                    }
                }
            }
            Step::Kill(number) => self.driver.kill(*number),
            Step::Revive(number) => self.driver.alive[*number] = true,
            Step::Seconds(seconds) => self.driver.advance(*seconds),
        }
        self.check_released();
        // Half of the steps come while connections are being made.
        if self.picks.is_multiple_of(2) {
            self.driver.settle();
            self.check_released();
            self.check_kept();
        }
    }

    /// Makes a call of a session, and waits for its end.
    fn call(&mut self, session: usize) {
        if self.plan.is_none() {
            return;
        }
        let wanted = self.backends_of(session);
        for number in &wanted {
            self.last_wanted[*number] = Some(self.driver.now);
        }
        let must_stay = wanted.iter().any(|number| self.can_be_used(*number));
        match self.wait(session) {
            Ended::On(number) => {
                assert!(
                    wanted.contains(&number) || !must_stay,
                    "session {session} of {wanted:?} went to {number}"
                );
                let Some(Spot(_, health)) = self.spot(number) else {
                    return; // A list that is about to be replaced.
                };
                let sticks = wanted.contains(&number);
                // A leaf may still have it in a list that is about to be replaced.
                assert!(health != Health::Draining || sticks || !self.is_settled());
            }
            Ended::Failed => assert!(!must_stay, "session {session} of {wanted:?} failed"),
        }
    }

    fn wait(&mut self, session: usize) -> Ended {
        for _ in 0..100 {
            // By the uses before this pick: it may use a backend whose own connection is gone, over that of a list.
            self.check_released();
            self.picks += 1;
            let (picker, published) = (self.driver.picker.clone(), self.driver.published);
            let cookie = self.sessions[session].clone();
            let cx = CallContext::new(self.picks).with_hash(self.picks * 77);
            let cx = cx.with_session(&cookie, self.driver.now);
            match picker.expect("there is a plan").pick(&cx) {
                Pick::Ready(call) => {
                    let number = backend(call.address());
                    assert!(self.driver.alive[number], "{number} is dead");
                    self.sessions[session] = call.session_addresses().collect();
                    let mut all = self.sessions[session].iter();
                    assert!(all.all(|address| addresses(number).contains(address)));
                    if self.spot(number).is_some() {
                        self.last_used[number] = Some(self.driver.now);
                        self.last_wanted[number] = Some(self.driver.now);
                    }
                    return Ended::On(number);
                }
                Pick::Fail(_) => return Ended::Failed,
                Pick::Drop(dropped) => panic!("{dropped}"),
                Pick::Queue => self.note_waiting(session),
                Pick::Wake(demand) => {
                    self.note_waiting(session);
                    self.driver.demand(demand);
                }
            }
            // It looks again when there is another picker, and not before.
            while self.driver.published == published {
                assert!(
                    self.driver.connect_one(),
                    "session {session} waits for ever: {:?}",
                    self.driver.endpoints
                );
            }
        }
        panic!("session {session} waits although connections are made");
    }

    /// A call waits for the backend of its session, unless that fails. This is a use of it.
    fn note_waiting(&mut self, session: usize) {
        for number in self.backends_of(session) {
            if !self.own(number).any(|known| known.is_failing) {
                self.last_awaited[number] = Some(self.driver.now);
            }
        }
    }

    /// The backends that a session may stick to.
    fn backends_of(&self, session: usize) -> Vec<usize> {
        let numbers = self.sessions[session]
            .iter()
            .map(|address| backend(*address));
        let mut numbers: Vec<_> = numbers.filter(|number| self.is_allowed(*number)).collect();
        numbers.dedup();
        numbers
    }

    fn spot(&self, number: usize) -> Option<Spot> {
        self.plan.as_ref()?.backends[number]
    }

    fn is_allowed(&self, number: usize) -> bool {
        let allowed = self.plan.iter().flat_map(|plan| &plan.allowed);
        let spot = self.spot(number);
        spot.is_some_and(|Spot(_, health)| allowed.into_iter().any(|one| *one == health))
    }

    /// Returns whether a connection exists or can be made: the server lives, and the last attempt has
    /// not failed.
    fn can_be_used(&self, number: usize) -> bool {
        let is_failing = self.own(number).any(|known| known.is_failing);
        self.driver.alive[number] && !is_failing
    }

    /// The backend's own endpoint, if the balancer wants it.
    fn own(&self, number: usize) -> impl Iterator<Item = &Connection> {
        let endpoints = self.driver.endpoints.values();
        endpoints.filter(move |known| !known.is_list && known.is_of(number))
    }

    fn is_settled(&self) -> bool {
        let mut endpoints = self.driver.endpoints.values();
        endpoints.all(|known| known.run != Run::Asked)
    }

    fn timeout(&self) -> Duration {
        let plan = self.plan.as_ref();
        Duration::from_secs(plan.map_or(0, |plan| plan.idle_timeout))
    }

    /// A backend that sessions use, or wait for, is not released.
    fn check_released(&mut self) {
        for number in std::mem::take(&mut self.driver.released) {
            let Some(Spot(_, health)) = self.spot(number) else {
                continue;
            };
            let is_kept = health != Health::Draining || self.is_allowed(number);
            let used = self.last_used[number].max(self.last_awaited[number]);
            let is_recent = used.is_some_and(|at| at + self.timeout() > self.driver.now);
            assert!(!is_kept || !is_recent, "{number} was used a moment ago");
        }
    }

    /// A backend that sessions have not used for a while is not kept for them.
    fn check_kept(&self) {
        if !self.is_plain {
            return;
        }
        for number in 0..BACKENDS {
            let is_draining = matches!(self.spot(number), Some(Spot(_, Health::Draining)));
            let is_gone = self.plan.is_some() && self.spot(number).is_none();
            let is_connected = self.own(number).next().is_some();
            let wanted = self.last_wanted[number];
            let until = wanted.map(|at| at + self.timeout() + SESSION_SWEEP_MIN);
            let is_recent = until.is_some_and(|until| until > self.driver.now);
            assert!(!is_gone || !is_connected, "{number} has left the plan");
            assert!(
                !is_draining || !is_connected || is_recent,
                "{number} is unused"
            );
        }
    }
}
