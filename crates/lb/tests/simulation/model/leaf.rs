//! The model's endpoints of one leaf, by its policy. All policies are here, because they share the
//! endpoints and the list in use.

use std::{cell::Cell, cell::RefCell, collections::BTreeSet, rc::Rc};

use crowfly_lb::{
    self as lb,
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    LocalityId, Policy,
};

use super::{
    Endpoint, Made, Name, Outcome, Shared, Shares, best, list_name, name_at, name_of, ring::Ring,
    roster::Roster,
};

pub(crate) struct Leaf {
    pub(super) policy: Policy,
    /// True if its addresses come from a name.
    pub(super) named: bool,
    roster: Roster,
    current: Vec<Place>,
    pending: Option<Vec<Place>>,
    /// The addresses of all endpoints, with the name that the first of them gives it (`pick_first`).
    list: Option<(Name, Shared)>,
    /// Where `ring_hash` has the endpoints of its list.
    ring: Ring,
    /// It was left without endpoints.
    pub(super) emptied: Cell<bool>,
}

/// An endpoint, and where it is, if the leaf is not inside of a locality.
type Place = (Name, Option<LocalityId>);

impl Leaf {
    pub(super) fn new(plan: &lb::Leaf, made: &Made) -> Self {
        Self {
            policy: plan.policy.clone(),
            named: made.named,
            roster: made.roster.clone(),
            current: vec![],
            pending: None,
            list: None,
            ring: Ring::default(),
            emptied: Cell::new(false),
        }
    }

    pub(super) fn update(&mut self, plan: &lb::Leaf) {
        self.policy = plan.policy.clone();
        self.emptied.set(plan.endpoints.is_empty());
        match &self.policy {
            // One list of addresses (A61), whose subchannels stay if their addresses do.
            Policy::PickFirst { .. } => {
                self.current = self.add(&plan.endpoints);
                let mut flat = Vec::new();
                for address in plan.endpoints.iter().flat_map(|e| e.addresses().iter()) {
                    if !flat.contains(address) {
                        flat.push(*address);
                    }
                }
                let Some(first) = flat.first().copied() else {
                    self.list = None;
                    return;
                };
                let new = || Rc::new(RefCell::new(Endpoint::new(flat.clone())));
                let (_, list) = self.list.get_or_insert_with(|| (list_name(first), new()));
                list.borrow_mut().readdress(flat);
            }
            // "It will update that set in place" (A61). What the ring has no room for is not there.
            Policy::RingHash { size, .. } => {
                self.ring = Ring::new(&plan.endpoints, *size);
                let placed = plan.endpoints.iter().filter(|e| self.ring.has(name_of(e)));
                self.current = self.add(&placed.cloned().collect::<Vec<_>>());
            }
            Policy::Custom(_) => self.current = self.add(&plan.endpoints),
            _ => self.pending = Some(self.add(&plan.endpoints)),
        }
    }

    /// Connects what the policy wants to be connected.
    pub(super) fn settle(&mut self) {
        match self.policy {
            Policy::PickFirst { .. } => {
                if let Some((_, list)) = &self.list
                    && !list.borrow().is_known()
                {
                    list.borrow_mut().ask();
                }
            }
            Policy::RingHash { .. } => self.keep_trying(),
            _ => {
                for name in self.names() {
                    self.roster.get(name).borrow_mut().ask();
                }
                self.swap();
            }
        }
    }

    /// Connects the first endpoint that is IDLE, because the rules leave the choice open.
    pub(super) fn exit_idle(&mut self) {
        if self.state() == Idle {
            self.ask_first_idle();
            self.settle();
        }
    }

    /// The endpoints of both lists.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        let places = self.current.iter().chain(self.pending.iter().flatten());
        places.map(|(name, _)| *name).collect()
    }

    /// The localities that it has an endpoint in, in either list.
    pub(super) fn localities_of(&self, name: Name) -> impl Iterator<Item = Option<LocalityId>> {
        let places = self.current.iter().chain(self.pending.iter().flatten());
        let places = places.filter(move |place| place.0 == name);
        places.map(|(_, locality)| locality.clone())
    }

    /// The list of all addresses, with its name.
    pub(super) fn list(&self) -> Option<(Name, Shared)> {
        self.list.clone()
    }

    pub(super) fn state(&self) -> Connectivity {
        match self.policy {
            Policy::RingHash { .. } => self.ring_state(),
            _ => best(self.states()),
        }
    }

    pub(super) fn shares(&self, of: f64, into: &mut Shares) {
        if let Policy::RingHash { .. } = self.policy {
            for (arc, taker) in self.ring.arcs(|name| self.is(name) != TransientFailure) {
                if self.is(taker) == Ready {
                    *into.entry(taker).or_default() += of * arc;
                }
            }
            return;
        }
        let ready: Vec<_> = self.ready().collect();
        for (name, _) in &ready {
            *into.entry(*name).or_default() += of / ready.len() as f64;
        }
    }

    pub(super) fn outcomes(&self, hash: Option<u64>, into: &mut Vec<Outcome>) {
        if self.states().all(|state| state == TransientFailure) {
            return into.push(Outcome::Fail);
        }
        match (&self.policy, hash) {
            (Policy::RingHash { .. }, Some(hash)) => {
                let mut names = self.ring.from(hash);
                let first = names.find(|name| self.is(*name) != TransientFailure);
                into.push(self.outcome_at(first.expect("not all are failing")));
            }
            (Policy::RingHash { .. }, None) => self.any_outcomes(into),
            (Policy::PickFirst { .. }, _) => into.push(self.outcome_of_list()),
            (Policy::Custom(_), _) => {
                let last = self.ready().last();
                into.push(last.map_or(Outcome::Wait, send));
            }
            _ if self.ready().next().is_none() => into.push(Outcome::Wait),
            _ => into.extend(self.ready().map(send)),
        }
    }

    /// A76: a call without a hash goes to what is READY, and else makes at most one endpoint connect,
    /// if none is.
    fn any_outcomes(&self, into: &mut Vec<Outcome>) {
        if self.ready().next().is_some() {
            into.extend(self.ready().map(send));
        } else if self.states().any(|state| state == Connecting) {
            into.push(Outcome::Wait);
        } else {
            let names = self.current.iter().map(|(name, _)| *name);
            let idle = names.filter(|name| self.is(*name) == Idle);
            into.extend(idle.map(|name| self.outcome_at(name)));
        }
    }

    /// The outcome of a call that must have this endpoint.
    fn outcome_at(&self, name: Name) -> Outcome {
        match self.is(name) {
            Ready => {
                let mut places = self.current.iter();
                let place = places.find(|place| place.0 == name);
                send(place.expect("an endpoint of the ring").clone())
            }
            Idle if !self.roster.get(name).borrow().is_told() => Outcome::Wake(name),
            Connecting | Idle => Outcome::Wait,
            TransientFailure => Outcome::Fail,
        }
    }

    /// The outcome of a call of `pick_first`.
    fn outcome_of_list(&self) -> Outcome {
        let (name, list) = self.list.as_ref().expect("it is not failing");
        let list = list.borrow();
        match list.state() {
            Ready => send(self.ready().next().expect("it is READY")),
            Idle if !list.is_told() => Outcome::Wake(*name),
            Connecting | Idle => Outcome::Wait,
            TransientFailure => Outcome::Fail,
        }
    }

    /// A61: "if the aggregated connectivity state is TRANSIENT_FAILURE or CONNECTING and there are no
    /// endpoints in CONNECTING state", one that is IDLE is connected.
    fn keep_trying(&mut self) {
        if let TransientFailure | Connecting = self.ring_state()
            && self.states().all(|state| state != Connecting)
            && self.states().any(|state| state == Idle)
        {
            self.ask_first_idle();
        }
    }

    /// The six rules of A42.
    fn ring_state(&self) -> Connectivity {
        let count = |wanted| self.states().filter(|state| *state == wanted).count();
        let failing = count(TransientFailure);
        let rules = [
            (count(Ready) > 0, Ready),
            (failing >= 2, TransientFailure),
            (count(Connecting) > 0, Connecting),
            (failing == 1 && self.current.len() > 1, Connecting),
            (count(Idle) > 0, Idle),
        ];
        let rule = rules.into_iter().find(|rule| rule.0);
        rule.map_or(TransientFailure, |rule| rule.1)
    }

    fn ask_first_idle(&mut self) {
        if let Some((_, list)) = &self.list {
            return list.borrow_mut().ask();
        }
        let names = self.current.iter().map(|(name, _)| *name);
        let idle = names.into_iter().find(|name| self.is(*name) == Idle);
        let endpoint = idle.map(|name| self.roster.get(name));
        endpoint.expect("one is IDLE").borrow_mut().ask();
    }

    /// A61: the next list replaces the one in use when it is as good.
    fn swap(&mut self) {
        let Some(pending) = &self.pending else { return };
        let mut states = pending.iter().map(|(name, _)| self.is(*name));
        if self.ready().next().is_none()
            || states.clone().any(|state| state == Ready)
            || states.all(|state| state == TransientFailure)
        {
            self.current = pending.clone();
            self.pending = None;
        }
    }

    /// Two endpoints with the same addresses are one, which is the first of them.
    fn add(&self, endpoints: &[lb::Endpoint]) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        for endpoint in endpoints {
            let name = name_of(endpoint);
            if places.iter().all(|place| place.0 != name) {
                let known = self.roster.get(name);
                known.borrow_mut().addresses = endpoint.addresses().to_vec();
                places.push((name, endpoint.locality.clone()));
            }
        }
        places
    }

    fn is(&self, name: Name) -> Connectivity {
        self.roster.get(name).borrow().state()
    }

    /// The states that count: those of the endpoints, or that of the list of all addresses.
    fn states(&self) -> impl Iterator<Item = Connectivity> {
        let list = self.list.iter().map(|(_, list)| list.borrow().state());
        let endpoints = self.current.iter().filter(|_| self.list.is_none());
        list.chain(endpoints.map(|(name, _)| self.is(*name)))
    }

    /// The endpoints that calls can go to: those that are READY, or the one with the address that
    /// the list is connected to.
    fn ready(&self) -> impl Iterator<Item = Place> {
        let list = self.list.as_ref();
        let selected = list.map(|(_, list)| list.borrow().selected().map(name_at));
        let places = self.current.iter().cloned();
        places.filter(move |place| match selected {
            Some(selected) => selected == Some(place.0),
            None => self.is(place.0) == Ready,
        })
    }
}

fn send((name, locality): Place) -> Outcome {
    Outcome::Send(name, locality)
}
