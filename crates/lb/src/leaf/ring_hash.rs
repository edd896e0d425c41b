//! `ring_hash` (A42, A61, A76): calls with the same hash go to the same endpoint.
//!
//! Endpoints are IDLE until a call wants them. The ring depends on the plan only: a change of state
//! makes a new array of states, and shares the ring.

use std::{collections::HashMap, sync::Arc};

use super::{
    LeafChoice, Outcome,
    members::{Members, describe},
    ring::Ring,
    states::{Slot, States},
};
use crate::{
    Call, CallContext, Connectivity, Pick, Share,
    endpoint::{Owner, Pool, Wish},
    plan::Endpoint,
};

/// The endpoints with the weights of those that come twice added up.
pub(super) fn merge(endpoints: &[Endpoint]) -> Vec<Endpoint> {
    let mut merged: Vec<Endpoint> = Vec::with_capacity(endpoints.len());
    let mut known = HashMap::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let index = *known.entry(endpoint.identity()).or_insert(merged.len());
        match merged.get_mut(index) {
            Some(first) => first.weight = first.weight.saturating_add(endpoint.weight.get()),
            None => merged.push(endpoint.clone()),
        }
    }
    merged
}

/// Takes the new list at once, and compiles it. Endpoints are connected by calls; without calls
/// (a priority that failed gets none) one after the other, until one is READY.
pub(super) fn refresh<T>(
    ring: &Arc<Ring>,
    header: Option<&Arc<str>>,
    members: &mut Members,
    owner: &Owner,
    pool: &mut Pool<T>,
) -> Outcome<T> {
    members.swap(owner, pool);
    let mut states = States::of(&members.current, owner, pool);
    members.looked(states.count(Connectivity::Ready), 0);
    if states.count(Connectivity::TransientFailure) == states.slots.len() {
        let why = states.why.take();
        let why = why.unwrap_or_else(|| describe(owner, None).into());
        return Outcome::failing(why);
    }
    let mut state = aggregate(&states);
    if let Connectivity::Connecting | Connectivity::TransientFailure = state
        && states.count(Connectivity::Connecting) == 0
        && let Some(idle) = states.first_idle()
        && pool.connect(idle.endpoint())
    {
        states = States::of(&members.current, owner, pool);
        state = aggregate(&states);
    }
    let is_connecting = states.count(Connectivity::Connecting) > 0;
    let choice = RingHash {
        ring: ring.clone(),
        states,
        is_connecting,
        header: header.cloned(),
    };
    Outcome {
        state,
        choice: LeafChoice::RingHash(Arc::new(choice)),
    }
}

/// The rules of A42 for a list of which at least one endpoint is not failing. Two failures are
/// enough to let the next priority take over. Endpoints of a ring connect only when a call wants
/// them, so it would take long until all have failed.
fn aggregate<T>(states: &States<T>) -> Connectivity {
    let failing = states.count(Connectivity::TransientFailure);
    if states.count(Connectivity::Ready) > 0 {
        Connectivity::Ready
    } else if failing >= 2 {
        Connectivity::TransientFailure
    } else if failing == 1 || states.count(Connectivity::Connecting) > 0 {
        Connectivity::Connecting
    } else {
        Connectivity::Idle
    }
}

/// The ring with the states of its endpoints. At least one of them is not failing.
#[derive(Debug)]
pub(crate) struct RingHash<T> {
    ring: Arc<Ring>,
    pub(super) states: States<T>,
    is_connecting: bool,
    /// The header whose value is hashed, if the call does not bring a hash.
    header: Option<Arc<str>>,
}

impl<T> RingHash<T> {
    /// Not inlined, because picks of other policies would then save registers that only this one uses.
    #[inline(never)]
    pub(super) fn pick(&self, cx: &CallContext<'_>) -> Pick<T> {
        let hash = match &self.header {
            Some(header) => cx.hash_header(header),
            None => cx.hash(),
        };
        match hash {
            Some(hash) => self.pick_by(hash),
            None => self.pick_any(cx.random()),
        }
    }

    /// The first endpoint from the hash on that is not failing (A61). It need not be READY, because
    /// a call waits for the endpoint that its hash belongs to.
    fn pick_by(&self, hash: u64) -> Pick<T> {
        let mut slots = self.from(hash);
        let slot = slots.find(|slot| !matches!(slot, Slot::Failing));
        slot.map_or(Pick::Queue, Slot::pick)
    }

    /// A call that belongs nowhere goes to a READY endpoint, and makes at most one connect, and that
    /// only if none is connecting already (A76).
    fn pick_any(&self, hash: u64) -> Pick<T> {
        let mut wish = None;
        for slot in self.from(hash) {
            match slot {
                Slot::Ready(endpoint) => {
                    let wakes = wish.and_then(Wish::tell);
                    return Pick::Ready(Call::start(endpoint).waking(wakes));
                }
                Slot::Idle(idle) if wish.is_none() && !self.is_connecting => wish = Some(&**idle),
                Slot::Connecting | Slot::Failing | Slot::Idle(_) => {}
            }
        }
        wish.map_or(Pick::Queue, |wish| wish.wait())
    }

    /// The states of the ring's entries, from the hash on, once round.
    fn from(&self, hash: u64) -> impl Iterator<Item = &Slot<T>> {
        let entries = self.ring.from(hash);
        entries.filter_map(|index| self.states.slots.get(index))
    }

    /// The share of each READY endpoint, if the hashes of the calls are spread evenly.
    pub(super) fn shares(&self, probability: f64, into: &mut Vec<Share>) {
        let mut parts = vec![0.0; self.states.slots.len()];
        for (hash, arc) in self.ring.arcs() {
            let mut entries = self.ring.from(hash);
            let taker = entries.find(|&index| !matches!(self.states.slots[index], Slot::Failing));
            if let Some(taker) = taker {
                parts[taker] += arc;
            }
        }
        for (slot, part) in self.states.slots.iter().zip(parts) {
            if let Slot::Ready(endpoint) = slot {
                into.push(Share {
                    cluster: None,
                    locality: endpoint.locality.clone(),
                    probability: probability * part,
                    endpoints: vec![endpoint.id],
                });
            }
        }
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring)
            && self.header == other.header
            && self.states.same(&other.states)
    }
}
