//! Endpoints on top of subchannels that a script speaks for, as a channel has them on top of
//! connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use crowfly_lb::{Connectivity, EndpointId, EndpointState, Race, RaceAction, RaceEvent};

use crate::{model::Name, script::Reported};

/// A change that the balancer must hear of.
pub(crate) type Change = (EndpointId, EndpointState<Name>);

/// An endpoint as the world sees it: its subchannels, its next timeout, and the state that the
/// balancer was told.
pub(crate) type Remotely<'a> = (
    &'a BTreeMap<SocketAddr, Reported>,
    Option<Instant>,
    Option<Connectivity>,
);

/// The endpoints that a balancer has asked for and not released.
#[derive(Default)]
pub(crate) struct World {
    endpoints: BTreeMap<EndpointId, Remote>,
    changes: Vec<Change>,
}

#[derive(Default)]
struct Remote {
    race: Race<Name>,
    subchannels: BTreeMap<SocketAddr, Reported>,
    /// The state that the balancer was told last.
    told: Option<Connectivity>,
}

impl World {
    pub(crate) fn connect(&mut self, id: EndpointId, addresses: Arc<[SocketAddr]>, now: Instant) {
        self.endpoints.entry(id).or_default();
        self.step(id, RaceEvent::Connect(addresses), now);
    }

    pub(crate) fn has(&self, id: EndpointId) -> bool {
        self.endpoints.contains_key(&id)
    }

    pub(crate) fn release(&mut self, id: EndpointId) {
        let released = self.endpoints.remove(&id);
        let released = released.expect("released twice, or never connected");
        let held: BTreeSet<_> = released.race.held().collect();
        assert!(held.into_iter().eq(released.subchannels.into_keys()));
    }

    pub(crate) fn report(
        &mut self,
        (address, id): (SocketAddr, EndpointId),
        reported: Reported,
        now: Instant,
    ) {
        let endpoint = self.endpoints.get_mut(&id).expect("an endpoint");
        endpoint.subchannels.insert(address, reported);
        let state = state(reported, address);
        self.step(id, RaceEvent::Subchannel { address, state }, now);
    }

    pub(crate) fn time_passes(&mut self, now: Instant) {
        for id in self.endpoints.keys().copied().collect::<Vec<_>>() {
            self.step(id, RaceEvent::Timeout, now);
        }
    }

    /// The changes since the last call.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The subchannels that can be in a state next, in the order of their addresses.
    pub(crate) fn that_may_become(&self, next: Reported) -> Vec<(SocketAddr, EndpointId)> {
        let mut found = Vec::new();
        for (id, endpoint) in &self.endpoints {
            let subchannels = endpoint.subchannels.iter();
            let fit = subchannels.filter(|(_, state)| state.may_become(next));
            found.extend(fit.map(|(address, _)| (*address, *id)));
        }
        found.sort_unstable();
        found
    }

    /// The endpoints with their subchannels, when the next one is dialled, and what was told.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (EndpointId, Remotely<'_>)> {
        let endpoints = self.endpoints.iter();
        endpoints.map(|(id, remote)| {
            let timer = remote.race.next_timeout();
            (*id, (&remote.subchannels, timer, remote.told))
        })
    }

    fn step(&mut self, id: EndpointId, event: RaceEvent<Name>, now: Instant) {
        let endpoint = self.endpoints.get_mut(&id).expect("an endpoint");
        endpoint.race.handle(event, now);
        while let Some(action) = endpoint.race.poll_action() {
            match action {
                RaceAction::Abandon(address) => {
                    let held = endpoint.subchannels.remove(&address);
                    assert!(held.is_some(), "{address} is abandoned, and was not held");
                }
                RaceAction::Dial(address) => {
                    let held = endpoint.subchannels.entry(address);
                    let reported = held.or_insert(Reported::Idle);
                    if *reported == Reported::Idle {
                        *reported = Reported::Connecting;
                    }
                    let state = state(*reported, address);
                    let event = RaceEvent::Subchannel { address, state };
                    endpoint.race.handle(event, now);
                }
                RaceAction::State(state) => {
                    endpoint.told = Some(match state {
                        EndpointState::Idle => Connectivity::Idle,
                        EndpointState::Connecting => Connectivity::Connecting,
                        EndpointState::Ready { .. } => Connectivity::Ready,
                        EndpointState::TransientFailure(_) => Connectivity::TransientFailure,
                    });
                    self.changes.push((id, state));
                }
            }
        }
    }
}

pub(crate) fn state(reported: Reported, address: SocketAddr) -> EndpointState<Name> {
    match (reported, address) {
        (Reported::Idle, _) => EndpointState::Idle,
        (Reported::Connecting, _) => EndpointState::Connecting,
        (Reported::Ready, SocketAddr::V6(v6)) => EndpointState::Ready {
            transport: *v6.ip(),
            address,
        },
        (Reported::Ready, SocketAddr::V4(_)) => panic!("an IPv6 address"),
        (Reported::Failing, _) => EndpointState::TransientFailure("refused".into()),
    }
}
