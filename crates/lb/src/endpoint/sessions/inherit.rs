//! Sessions of an address that another endpoint has from now on (A61, A75).
//!
//! An endpoint is known by all of its addresses, so a backend that gains or loses one is another endpoint. But a session
//! is found by a single address, and A75 keeps the last use and the connection of each address.

use super::super::{EndpointId, Pool, record::State};

impl<T> Pool<T> {
    /// Gives an endpoint that the plan has anew the last use of its addresses. If the endpoint that had an address is
    /// connected to it, the new one may take the connection over.
    pub(super) fn inherit(&mut self, id: EndpointId) -> Option<()> {
        let record = self.get(id)?;
        let roster = record.roster;
        let index = &self.rosters.get(roster.0)?.index;
        let owners = record.addresses.iter().flat_map(|it| index.owners(it));
        let others = owners.filter(|owner| **owner != id);
        let others = others.filter_map(|other| self.get(*other));
        let used = others.filter_map(|other| Some((other.tie.as_ref()?.anchor.last_used(), other)));
        let (last_used, before) = used.max_by_key(|(last_used, _)| *last_used)?;
        let connected = match &before.state {
            State::Ready(connection) => Some(connection.any().address),
            State::Connecting | State::Failing(_) | State::Idle(_) => None,
        };
        let left = connected.filter(|address| record.addresses.contains(address));
        let tie = self.records.get_mut(id.0)?.tie.as_mut()?;
        tie.anchor.used(last_used);
        tie.left = left;
        // The next sweep decides whether the endpoint takes the connection over.
        self.rosters.get_mut(roster.0)?.loosen(id);
        Some(())
    }
}
