//! The endpoints of a leaf, by its policy.

use std::collections::BTreeMap;

use crowfly_lb::{
    self as lb,
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    Policy,
};

use super::{Endpoint, Name, Outcome, Shares, best, name_of, ring::Ring};

pub(crate) struct Leaf {
    pub(super) policy: Policy,
    /// Those of both lists.
    pub(super) endpoints: BTreeMap<Name, Endpoint>,
    current: Vec<Name>,
    pending: Option<Vec<Name>>,
    /// Where `ring_hash` has the endpoints of its list.
    ring: Ring,
    /// It was left without endpoints.
    emptied: bool,
}

impl Leaf {
    pub(super) fn new(plan: &lb::Leaf) -> Self {
        Self {
            policy: plan.policy.clone(),
            endpoints: BTreeMap::new(),
            current: vec![],
            pending: None,
            ring: Ring::default(),
            emptied: false,
        }
    }

    pub(super) fn update(&mut self, plan: &lb::Leaf) {
        self.policy = plan.policy.clone();
        self.emptied = plan.endpoints.is_empty();
        match &self.policy {
            // One list of addresses (A61), whose subchannels stay if their addresses do.
            Policy::PickFirst { .. } => {
                let mut flat = Vec::new();
                for address in plan.endpoints.iter().flat_map(|e| e.addresses().iter()) {
                    if !flat.contains(address) {
                        flat.push(*address);
                    }
                }
                self.current = plan.endpoints.iter().take(1).map(name_of).collect();
                if let Some(only) = self.current.first() {
                    let known = self.endpoints.entry(*only);
                    let endpoint = known.or_insert_with(|| Endpoint::new(flat.clone()));
                    endpoint.readdress(flat);
                }
            }
            // "It will update that set in place" (A61). What the ring has no room for is not there.
            Policy::RingHash { size, .. } => {
                self.ring = Ring::new(&plan.endpoints, *size);
                self.current = self.add(&plan.endpoints);
                self.current.retain(|name| self.ring.has(*name));
            }
            Policy::Custom(_) => self.current = self.add(&plan.endpoints),
            _ => self.pending = Some(self.add(&plan.endpoints)),
        }
        self.forget();
    }

    /// Connects what the policy wants to be connected.
    pub(super) fn settle(&mut self) {
        match self.policy {
            Policy::PickFirst { .. } => {
                let new = self.endpoints.values_mut().filter(|e| !e.is_known());
                new.for_each(|endpoint| endpoint.ask());
            }
            Policy::RingHash { .. } => self.keep_trying(),
            _ => {
                let all = self.endpoints.values_mut();
                all.for_each(|endpoint| endpoint.ask());
                self.swap();
            }
        }
    }

    /// Which one is left open: the first that is IDLE.
    pub(super) fn exit_idle(&mut self) {
        if self.state() == Idle {
            self.ask_first_idle();
            self.settle();
        }
    }

    /// Whether there was a reason to look names up again, since this was last asked.
    pub(super) fn has_lost(&mut self) -> bool {
        let mut lost = std::mem::take(&mut self.emptied);
        for endpoint in self.endpoints.values_mut() {
            lost |= std::mem::take(&mut endpoint.lost);
        }
        lost
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
        for name in &ready {
            into.insert(*name, of / ready.len() as f64);
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
            (Policy::PickFirst { .. }, _) => into.push(self.outcome_at(self.current[0])),
            (Policy::Custom(_), _) => {
                let last = self.ready().last();
                into.push(last.map_or(Outcome::Wait, Outcome::Send));
            }
            _ if self.ready().next().is_none() => into.push(Outcome::Wait),
            _ => into.extend(self.ready().map(Outcome::Send)),
        }
    }

    /// A76: a call without a hash goes to what is READY, and else makes at most one endpoint connect,
    /// if none is.
    fn any_outcomes(&self, into: &mut Vec<Outcome>) {
        if self.ready().next().is_some() {
            into.extend(self.ready().map(Outcome::Send));
        } else if self.states().any(|state| state == Connecting) {
            into.push(Outcome::Wait);
        } else {
            let names = self.current.iter().copied();
            let idle = names.filter(|name| self.is(*name) == Idle);
            into.extend(idle.map(|name| self.outcome_at(name)));
        }
    }

    /// What becomes of a call that must have this endpoint.
    fn outcome_at(&self, name: Name) -> Outcome {
        match self.is(name) {
            Ready => Outcome::Send(name),
            Idle if !self.endpoints[&name].is_told() => Outcome::Wake(name),
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
        let names = self.current.iter();
        let idle = names.copied().find(|name| self.is(*name) == Idle);
        let endpoint = idle.and_then(|name| self.endpoints.get_mut(&name));
        endpoint.expect("one is IDLE").ask();
    }

    /// A61: the next list replaces the one in use when it is as good.
    fn swap(&mut self) {
        let Some(pending) = &self.pending else { return };
        let mut states = pending.iter().map(|name| self.is(*name));
        if self.ready().next().is_none()
            || states.clone().any(|state| state == Ready)
            || states.all(|state| state == TransientFailure)
        {
            self.current = pending.clone();
            self.pending = None;
            self.forget();
        }
    }

    /// Two endpoints with the same addresses are one, which is the first of them.
    fn add(&mut self, endpoints: &[lb::Endpoint]) -> Vec<Name> {
        let mut names = Vec::new();
        for endpoint in endpoints {
            let (name, addresses) = (name_of(endpoint), endpoint.addresses().to_vec());
            if !names.contains(&name) {
                let known = self.endpoints.entry(name);
                let known = known.or_insert_with(|| Endpoint::new(vec![]));
                known.addresses = addresses;
                names.push(name);
            }
        }
        names
    }

    fn forget(&mut self) {
        let (current, pending) = (&self.current, self.pending.as_deref().unwrap_or_default());
        self.endpoints
            .retain(|name, _| current.contains(name) || pending.contains(name));
    }

    fn is(&self, name: Name) -> Connectivity {
        self.endpoints[&name].state()
    }

    fn states(&self) -> impl Iterator<Item = Connectivity> {
        self.current.iter().map(|name| self.is(*name))
    }

    fn ready(&self) -> impl Iterator<Item = Name> {
        let names = self.current.iter().copied();
        names.filter(|name| self.is(*name) == Ready)
    }
}
