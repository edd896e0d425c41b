//! Policies of the user's own, as a leaf.
//!
//! A changed list is used at once, as with `ring_hash`: a policy that connects lazily would never
//! make a pending list good enough.

use std::{collections::HashSet, fmt, sync::Arc};

use super::{
    LeafChoice, Outcome,
    members::{Members, describe},
    states::{Slot, States},
};
use crate::{
    Call, CallContext, Connectivity, Pick, Share,
    custom::{ReadySet, ReadyView, Selection, Selector},
    endpoint::{Owner, Pool, ReadyEndpoint},
    plan::Endpoint,
};

/// The endpoints as the list has them: each address set once, as it came first.
pub(super) fn distinct(endpoints: &[Endpoint]) -> Vec<Endpoint> {
    let mut seen = HashSet::with_capacity(endpoints.len());
    let endpoints = endpoints.iter();
    endpoints
        .filter(|endpoint| seen.insert(endpoint.identity()))
        .cloned()
        .collect()
}

/// Connects the endpoints that the selector wants, and compiles the list.
pub(super) fn refresh<T>(
    selector: &Arc<dyn Selector>,
    members: &mut Members,
    owner: &Owner,
    pool: &mut Pool<T>,
) -> Outcome<T> {
    let before = States::of(&members.current, owner, pool);
    let slots = before.slots.iter();
    let connectivity: Vec<_> = slots.map(Slot::connectivity).collect();
    for (index, member) in members.current.held.members.iter().enumerate() {
        if connectivity.get(index) == Some(&Connectivity::Idle)
            && selector.wants(index, &connectivity)
        {
            pool.connect(member.id);
        }
    }
    let mut states = States::of(&members.current, owner, pool);
    let state = Connectivity::aggregate(states.slots.iter().map(Slot::connectivity));
    members.looked(states.count(Connectivity::Ready), 0);
    if state == Connectivity::TransientFailure {
        let why = states.why.take();
        return Outcome::failing(why.unwrap_or_else(|| describe(owner, None).into()));
    }
    let ready = states.slots.iter().enumerate();
    let ready = ready.filter_map(|(index, slot)| match slot {
        Slot::Ready(endpoint) => Some((index, endpoint.clone())),
        Slot::Connecting | Slot::Failing | Slot::Idle(_) => None,
    });
    let choice = Custom {
        selector: selector.clone(),
        ready: Ready(ready.collect()),
        states,
    };
    Outcome {
        state,
        choice: LeafChoice::Custom(Arc::new(choice)),
    }
}

/// A selector with the states of its endpoints.
#[derive(Debug)]
pub(crate) struct Custom<T> {
    selector: Arc<dyn Selector>,
    ready: Ready<T>,
    pub(super) states: States<T>,
}

impl<T> Custom<T> {
    /// Not inlined, because picks of other policies would then save registers that only this one uses.
    #[inline(never)]
    pub(super) fn pick(&self, cx: &CallContext<'_>) -> Pick<T> {
        let ready = ReadySet { view: &self.ready };
        match self.selector.pick(cx, ready) {
            Selection::Connect(index) => match self.states.slots.get(index) {
                Some(Slot::Idle(wish)) => wish.wait(),
                _ => Pick::Queue,
            },
            Selection::Queue => Pick::Queue,
            Selection::Send(chosen) => match self.ready.0.get(chosen.place) {
                Some((index, endpoint)) => {
                    Pick::Ready(Call::start(endpoint).observed(&self.selector, *index))
                }
                None => Pick::Queue,
            },
        }
    }

    /// Shows all READY endpoints as equal, because the balancer cannot know how the selector of a
    /// user chooses.
    pub(super) fn shares(&self, probability: f64, into: &mut Vec<Share>) {
        if let Some((_, first)) = self.ready.0.first() {
            into.push(Share {
                cluster: None,
                locality: first.locality.clone(),
                probability,
                endpoints: self.ready.0.iter().map(|(_, ready)| ready.id).collect(),
            });
        }
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.selector, &other.selector) && self.states.same(&other.states)
    }
}

/// The READY endpoints, each with its place in the list.
struct Ready<T>(Box<[(usize, Arc<ReadyEndpoint<T>>)]>);

impl<T> ReadyView for Ready<T> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn index(&self, place: usize) -> usize {
        self.0[place].0
    }

    fn in_flight(&self, place: usize) -> u64 {
        self.0[place].1.in_flight()
    }
}

impl<T> fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.0.iter().map(|(_, endpoint)| endpoint.id);
        f.debug_list().entries(ids).finish()
    }
}
