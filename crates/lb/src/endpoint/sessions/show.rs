//! The states that sessions see.
//!
//! They are those of the endpoints' own connections, because an ejected endpoint keeps its sessions (gRFC A61).
//! Under `pick_first` the only connection is that of the leaf, and the endpoint that owns the connected address
//! borrows it.

use std::sync::Arc;

use super::{
    super::{
        EndpointId, Pool, RosterId,
        pool::counters_of,
        ready::{Connected, ReadyEndpoint},
        record::{Kind, Record, State},
    },
    Stirred,
};
use crate::override_host::AnchorState;

impl<T> Pool<T> {
    /// Shows sessions the state of an endpoint.
    pub(in crate::endpoint) fn show(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        if let Kind::Flattened { .. } = record.kind {
            return self.lend(id);
        }
        let Record {
            tie: Some(tie),
            state,
            ledger,
            addresses,
            introduced,
            roster,
            ..
        } = record
        else {
            return;
        };
        let state = match (&tie.lent, state) {
            (Some(lent), _) => AnchorState::Ready(lent.clone()),
            (None, State::Connecting) => AnchorState::Connecting,
            (None, State::Failing(_)) => AnchorState::Failing,
            (None, State::Idle(wish)) if *introduced => AnchorState::Idle(wish.clone()),
            (None, State::Idle(wish)) => AnchorState::Absent(wish.clone()),
            (None, State::Ready(connection)) => {
                if connection.find(&tie.locality).is_none() {
                    let known = connection.any().clone();
                    connection.add(ledger.open(Connected {
                        id,
                        locality: tie.locality.clone(),
                        addresses,
                        counters: counters_of(&self.rosters, *roster),
                        transport: (self.copy)(&known.transport),
                        address: known.address,
                    }));
                }
                AnchorState::Ready(connection.in_locality(&tie.locality).clone())
            }
        };
        let roster = *roster;
        if tie.anchor.set_state(state) {
            self.stir(roster, true);
        }
    }

    /// Lends the connections of all `pick_first` leaves of a roster, because the owner of a connected address may be
    /// tied to sessions only now.
    pub(super) fn lend_all(&mut self, roster: RosterId) {
        if self.flattened.is_empty() {
            return;
        }
        let records = self.records.entries();
        let lists = records.filter(|(_, record)| {
            record.roster == roster && matches!(record.kind, Kind::Flattened { .. })
        });
        let lists: Vec<_> = lists.map(|(key, _)| EndpointId(key)).collect();
        lists.into_iter().for_each(|list| self.lend(list));
    }

    /// Lends the connection of a `pick_first` leaf to the endpoint that owns the connected address.
    pub(in crate::endpoint) fn lend(&mut self, flattened: EndpointId) {
        let Some(record) = self.records.get_mut(flattened.0) else {
            return;
        };
        let Kind::Flattened { lent_to } = &mut record.kind else {
            return;
        };
        let roster = self.rosters.get(record.roster.0);
        if !roster.is_some_and(|roster| roster.sessions.are_open()) {
            return;
        }
        let ready = match &record.state {
            State::Ready(connection) => Some(connection.any().clone()),
            State::Connecting | State::Failing(_) | State::Idle(_) => None,
        };
        let owner = ready.as_ref().map(|ready| ready.id);
        let before = std::mem::replace(lent_to, owner);
        if let Some(before) = before.filter(|before| Some(*before) != owner) {
            self.set_lent(before, None);
        }
        if let Some(owner) = owner {
            self.set_lent(owner, ready);
        }
    }

    fn set_lent(&mut self, id: EndpointId, ready: Option<Arc<ReadyEndpoint<T>>>) {
        let record = self.records.get_mut(id.0);
        if let Some(tie) = record.and_then(|record| record.tie.as_mut()) {
            tie.lent = ready;
            self.show(id);
        }
    }

    /// A `pick_first` leaf gives up its connection. The endpoint that it was lent to may take it over.
    pub(in crate::endpoint) fn take_back(&mut self, flattened: EndpointId) {
        let Some(record) = self.records.get_mut(flattened.0) else {
            return;
        };
        let Kind::Flattened { lent_to } = &mut record.kind else {
            return;
        };
        let Some(owner) = lent_to.take() else {
            return;
        };
        let Some(record) = self.records.get_mut(owner.0) else {
            return;
        };
        let roster = record.roster;
        if let Some(tie) = &mut record.tie {
            tie.left = tie.lent.take().map(|lent| lent.address);
            self.show(owner);
        }
        if let Some(roster) = self.rosters.get_mut(roster.0) {
            roster.loosen(owner);
        }
    }

    /// Notes that sessions are concerned by a change.
    pub(super) fn stir(&mut self, id: RosterId, wakes: bool) {
        if let Some(roster) = self.rosters.get(id.0) {
            self.stirred.push(Stirred {
                tree: roster.tree.clone(),
                within: roster.within,
                wakes,
            });
        }
    }

    /// The changes that concern sessions, since this was last asked.
    pub(crate) fn take_stirred(&mut self) -> Vec<Stirred> {
        std::mem::take(&mut self.stirred)
    }
}
