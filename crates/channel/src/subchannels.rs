//! The subchannels of a channel, shared by everything that wants a connection to the same address.
//!
//! A subchannel is found by its address and its transport profile. The profile counts, because a
//! connection with other credentials or another authority must not carry the calls of a cluster. A
//! subchannel lives for as long as it has an owner.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_lb::{EndpointId, EndpointState};
use futures_channel::mpsc;

use crate::subchannel::{Dialling, Report, Subchannel, SubchannelId};
use crate::transport::{Profile, Sender};

/// The address of a subchannel, and how to speak to it. Subchannels that are equal in both are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubchannelKey {
    pub(crate) address: SocketAddr,
    pub(crate) profile: Arc<Profile>,
}

/// Something that keeps a subchannel alive. Sessions that stick to an address will be another kind (gRFC
/// A75).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Endpoint(EndpointId),
}

/// The subchannels of a channel, with their owners.
#[derive(Debug)]
pub(crate) struct Subchannels {
    dialling: Arc<Dialling>,
    reports: mpsc::UnboundedSender<Report>,
    /// Boxed, because a table has room for more than there are.
    owned: HashMap<SubchannelKey, Box<OwnedSubchannel>>,
    next_serial: u64,
}

#[derive(Debug)]
struct OwnedSubchannel {
    id: SubchannelId,
    subchannel: Subchannel,
    state: EndpointState<Sender>,
    /// The owners, in sorted order.
    owners: Vec<Owner>,
}

impl Subchannels {
    pub(crate) fn new(dialling: Dialling, reports: mpsc::UnboundedSender<Report>) -> Self {
        Self {
            dialling: Arc::new(dialling),
            reports,
            owned: HashMap::new(),
            next_serial: 0,
        }
    }

    /// Makes `owner` an owner of the subchannel, and has it connect if it is IDLE. Its state is returned:
    /// if others own it, it may be anything.
    pub(crate) fn dial(&mut self, key: SubchannelKey, owner: Owner) -> EndpointState<Sender> {
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
    pub(crate) fn abandon(&mut self, key: &SubchannelKey, owner: Owner) {
        let Some(owned) = self.owned.get_mut(key) else {
            return;
        };
        if let Ok(place) = owned.owners.binary_search(&owner) {
            owned.owners.remove(place);
        }
        if owned.owners.is_empty() {
            self.owned.remove(key);
        }
    }

    /// Takes a subchannel's report, and returns the owners that have to hear of it: none, if the
    /// subchannel is gone.
    pub(crate) fn handle(&mut self, (id, state): &Report) -> Vec<Owner> {
        let known = self.owned.get_mut(&id.key);
        let Some(owned) = known.filter(|owned| owned.id == *id) else {
            return Vec::new();
        };
        owned.state = state.clone();
        owned.owners.clone()
    }

    /// The state of a subchannel; `None` if there is no such subchannel.
    pub(crate) fn state(&self, key: &SubchannelKey) -> Option<&EndpointState<Sender>> {
        self.owned.get(key).map(|owned| &owned.state)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.owned.len()
    }

    fn find_or_start(&mut self, key: SubchannelKey) -> &mut OwnedSubchannel {
        self.owned.entry(key).or_insert_with_key(|key| {
            let id = SubchannelId {
                key: key.clone(),
                serial: self.next_serial,
            };
            self.next_serial += 1;
            let (dialling, reports) = (Arc::clone(&self.dialling), self.reports.clone());
            Box::new(OwnedSubchannel {
                subchannel: Subchannel::start(id.clone(), dialling, reports),
                id,
                state: EndpointState::Idle,
                owners: Vec::new(),
            })
        })
    }
}
