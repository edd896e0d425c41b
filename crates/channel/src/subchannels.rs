//! The subchannels of a channel, shared by everything that wants a connection to the same address.
//!
//! A subchannel is found by its address and its transport profile. The profile counts, because a connection with other
//! credentials or another authority must not carry the calls of a cluster. A subchannel is kept while an endpoint owns
//! it. Sessions own none, because the balancer keeps the endpoints that they use (gRFC A75).

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_lb::{EndpointId, EndpointState};
use crowfly_names::FewOrMany;
use futures_channel::mpsc;
use tracing::error;

use crate::health::{Checking, Health, HealthCheck};
use crate::subchannel::{Dialling, News, Report, Subchannel, SubchannelId};
use crate::transport::{Profile, Sender};

/// The address of a subchannel, and its transport profile. Subchannels that are equal in both are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubchannelKey {
    pub(crate) address: SocketAddr,
    pub(crate) profile: Arc<Profile>,
}

/// The subchannels of a channel, with the endpoints that own them.
#[derive(Debug)]
pub(crate) struct Subchannels {
    dialling: Arc<Dialling>,
    /// `None` if the program wants no health checks.
    health_check: Option<Box<HealthCheck>>,
    reports: mpsc::UnboundedSender<Report>,
    /// Boxed, because a table has room for more than there are.
    owned: FewOrMany<SubchannelKey, Box<OwnedSubchannel>>,
    /// Numbers subchannels and health checks.
    next_serial: u64,
}

#[derive(Debug)]
struct OwnedSubchannel {
    id: SubchannelId,
    subchannel: Subchannel,
    state: EndpointState<Sender>,
    /// The endpoints that keep it open, in sorted order.
    owners: Vec<EndpointId>,
    /// The check of the connection, while an owner asks for its health.
    check: Option<Box<Check>>,
    /// True if the log has said that the server has no health service.
    is_unimplemented_logged: bool,
}

/// A health check of one connection, with the owners that asked for it.
#[derive(Debug)]
struct Check {
    /// A number that tells the check apart from those of earlier connections.
    serial: u64,
    /// Cancels the check when it is dropped.
    _checking: Checking,
    health: Health,
    watchers: Vec<EndpointId>,
}

/// The meaning of a report for the owners of a subchannel.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The health of the subchannel has changed. The owners that asked for it have this state now.
    Health(Vec<EndpointId>, EndpointState<Sender>),
    /// The subchannel is gone, or the report is about a connection that is gone.
    Nothing,
    /// The state of the subchannel has changed, for all owners.
    State(Vec<EndpointId>, EndpointState<Sender>),
}

impl Subchannels {
    pub(crate) fn new(
        dialling: Dialling,
        health_check: Option<HealthCheck>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Self {
        Self {
            dialling: Arc::new(dialling),
            health_check: health_check.map(Box::new),
            reports,
            owned: FewOrMany::default(),
            next_serial: 0,
        }
    }

    /// Makes `owner` an owner of the subchannel, and has it connect if it is IDLE. The result is the state of the
    /// subchannel, which may be any state if it has other owners.
    pub(crate) fn dial(&mut self, key: SubchannelKey, owner: EndpointId) -> EndpointState<Sender> {
        let owned = self.find_or_start(key);
        if let Err(place) = owned.owners.binary_search(&owner) {
            owned.owners.insert(place, owner);
        }
        if matches!(owned.state, EndpointState::Idle) {
            owned.subchannel.connect();
            owned.state = EndpointState::Connecting;
        }
        owned.state.clone()
    }

    /// Ends an ownership. The subchannel ends with its last owner; its open calls finish.
    pub(crate) fn abandon(&mut self, key: &SubchannelKey, owner: EndpointId) {
        let Some(owned) = self.owned.get_mut(key) else {
            return;
        };
        if let Ok(place) = owned.owners.binary_search(&owner) {
            owned.owners.remove(place);
        }
        if let Some(check) = &mut owned.check {
            check.watchers.retain(|watcher| *watcher != owner);
        }
        owned.check.take_if(|check| check.watchers.is_empty());
        if owned.owners.is_empty() {
            self.owned.remove(key);
        }
    }

    /// Has the health of a subchannel checked for an owner, for as long as its connection lasts. The result is the
    /// state of the subchannel, changed by its health. Without health checks that is `ready`.
    pub(crate) fn check(
        &mut self,
        key: &SubchannelKey,
        owner: EndpointId,
        ready: EndpointState<Sender>,
    ) -> EndpointState<Sender> {
        let Some(settings) = &self.health_check else {
            return ready;
        };
        let EndpointState::Ready { transport, .. } = &ready else {
            return ready;
        };
        let Some(owned) = self.owned.get_mut(key) else {
            return ready;
        };
        let check = owned.check.get_or_insert_with(|| {
            let (serial, id, reports) = (self.next_serial, owned.id.clone(), self.reports.clone());
            self.next_serial += 1;
            let tell = move |health| {
                // Sending fails only when the whole channel is dropped.
                let _ = reports.unbounded_send((id.clone(), News::Health(serial, health)));
            };
            Box::new(Check {
                serial,
                _checking: Checking::start(settings, transport.clone(), tell),
                health: Health::Unknown,
                watchers: Vec::new(),
            })
        });
        if !check.watchers.contains(&owner) {
            check.watchers.push(owner);
        }
        check.health.seen_in(&ready)
    }

    /// Handles a subchannel's report, and returns its meaning for the owners.
    pub(crate) fn handle(&mut self, (id, news): Report) -> Heard {
        let known = self.owned.get_mut(&id.key);
        let Some(owned) = known.filter(|owned| owned.id == id) else {
            return Heard::Nothing;
        };
        match news {
            News::Health(serial, health) => owned.checked(serial, health),
            News::State(state) => {
                // A check belongs to the connection that it was made for.
                owned.check = None;
                owned.state = state.clone();
                Heard::State(owned.owners.clone(), state)
            }
        }
    }

    /// The state of a subchannel for an owner, who may have asked for its health. `None` if there is no such
    /// subchannel.
    pub(crate) fn state_for(
        &self,
        key: &SubchannelKey,
        owner: EndpointId,
    ) -> Option<EndpointState<Sender>> {
        let owned = self.owned.get(key)?;
        let check = owned.check.as_ref();
        let check = check.filter(|check| check.watchers.contains(&owner));
        Some(match check {
            Some(check) => check.health.seen_in(&owned.state),
            None => owned.state.clone(),
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.owned.len()
    }

    fn find_or_start(&mut self, key: SubchannelKey) -> &mut OwnedSubchannel {
        self.owned.get_or_insert_with(key.clone(), || {
            let id = SubchannelId {
                key,
                serial: self.next_serial,
            };
            self.next_serial += 1;
            let (dialling, reports) = (Arc::clone(&self.dialling), self.reports.clone());
            Box::new(OwnedSubchannel {
                subchannel: Subchannel::start(id.clone(), dialling, reports),
                id,
                state: EndpointState::Idle,
                owners: Vec::with_capacity(1),
                check: None,
                is_unimplemented_logged: false,
            })
        })
    }
}

impl OwnedSubchannel {
    fn checked(&mut self, serial: u64, health: Health) -> Heard {
        let check = self.check.as_mut();
        let Some(check) = check.filter(|check| check.serial == serial) else {
            return Heard::Nothing;
        };
        if check.health == health {
            return Heard::Nothing;
        }
        if health == Health::Unimplemented && !self.is_unimplemented_logged {
            self.is_unimplemented_logged = true;
            // gRFC A17 wants this at ERROR.
            error!(address = %self.id.key.address, "health check: the server has no Watch method of \
                   grpc.health.v1.Health: it counts as healthy");
        }
        check.health = health;
        let state = check.health.seen_in(&self.state);
        Heard::Health(check.watchers.clone(), state)
    }
}
