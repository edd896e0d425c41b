//! The endpoints that one leaf cluster knows.
//!
//! An endpoint belongs to its cluster, not to a leaf; leaves hold its id. So an endpoint that moves
//! between priorities or localities keeps its connection and its counters (A75). Under `pick_first` the
//! connection belongs to the leaf instead. An endpoint is in the roster for as long as any of these has it:
//! - a leaf, which wants it to be connected;
//! - the cluster's plan, where no leaf holds it: its priority is not needed, or a hash ring has no
//!   room for it;
//! - the cluster's list of draining endpoints, which no leaf gets (A55).
//!
//! Once a session sticks to an endpoint of the cluster, all endpoints of the plan are in the
//! roster. A session may stick to any of them (see `sessions`). The roster also holds the state of
//! outlier detection (A50, see `outlier`).

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    Ejection, EndpointId, Pool, RosterView, Wish,
    index::AddressIndex,
    outlier::Outliers,
    ready::LeafCounters,
    record::{Kind, Record, State},
    sessions::RosterSessions,
};
use crate::{ClusterName, Command, Health, node::ChildId, plan::Endpoint, slots::Key};

/// Names a roster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RosterId(pub(super) Key);

/// The endpoints of one leaf cluster.
#[derive(Debug)]
pub(super) struct Roster<T> {
    /// The cluster whose tree the leaf cluster is in.
    pub(super) tree: ClusterName,
    /// The nearest child of a `priority` node that the leaf cluster is in.
    pub(super) within: Option<ChildId>,
    pub(super) cluster: ClusterName,
    /// The calls of the cluster are counted here.
    pub(super) counters: Option<LeafCounters>,
    pub(super) index: AddressIndex,
    draining: Vec<EndpointId>,
    /// Endpoints that no leaf holds.
    pub(super) unheld: BTreeSet<EndpointId>,
    /// Endpoints that a leaf or the plan has let go of. They may have to be kept, released or removed.
    pub(super) loose: Vec<EndpointId>,
    /// False if some of the endpoints that are loose, or that no leaf holds, may have to be released or
    /// removed. The next [`sweep`](Pool::sweep) decides that.
    pub(super) is_swept: bool,
    /// The state of outlier detection (A50); `None` while it is off.
    pub(super) outliers: Option<Box<Outliers>>,
    /// The sessions that stick to endpoints of the cluster.
    pub(super) sessions: RosterSessions<T>,
}

impl<T> Roster<T> {
    fn ejection(&self, id: EndpointId) -> Option<&Ejection> {
        self.outliers.as_ref()?.ejection(id)
    }

    /// No leaf wants the connection of the endpoint any more, or the plan no longer has it.
    pub(super) fn loosen(&mut self, id: EndpointId) {
        self.loose.push(id);
        self.is_swept = false;
    }
}

impl<T> Pool<T> {
    /// Begins the roster of a leaf cluster.
    pub(crate) fn open_roster(
        &mut self,
        tree: &ClusterName,
        within: Option<ChildId>,
        cluster: &ClusterName,
        counters: Option<LeafCounters>,
    ) -> RosterId {
        let key = self.rosters.insert_with(|key| Roster {
            sessions: RosterSessions::new(RosterId(key)),
            tree: tree.clone(),
            within,
            cluster: cluster.clone(),
            counters,
            index: AddressIndex::default(),
            draining: Vec::new(),
            unheld: BTreeSet::new(),
            loose: Vec::new(),
            is_swept: true,
            outliers: None,
        });
        RosterId(key)
    }

    /// Ends a roster whose leaves are gone.
    pub(crate) fn close_roster(&mut self, id: RosterId) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        roster.sessions.close();
        for id in std::mem::take(&mut roster.unheld) {
            self.remove(id);
        }
        self.rosters.remove(id.0);
    }

    /// The endpoint with this set of addresses, and true if it is new. A new one is IDLE, and its finder
    /// has to hold it.
    pub(crate) fn find_or_add(&mut self, id: RosterId, endpoint: &Endpoint) -> (EndpointId, bool) {
        let identity = endpoint.identity();
        if let Some(known) = self.find(id, &identity) {
            return (known, false);
        }
        let kind = Kind::Endpoint {
            identity: identity.clone(),
            health: endpoint.health,
            is_draining: false,
        };
        let added = self.add(Record::new(id, kind, endpoint.addresses().clone()));
        if let Some(roster) = self.rosters.get_mut(id.0) {
            roster.index.insert(&identity, added);
            if let Some(outliers) = &mut roster.outliers {
                outliers.add(added);
            }
        }
        (added, true)
    }

    /// Takes the cluster's list of draining endpoints.
    pub(crate) fn list_draining(&mut self, id: RosterId, endpoints: &[Endpoint]) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        roster.is_swept &= roster.unheld.is_empty();
        for before in std::mem::take(&mut roster.draining) {
            if let Some(record) = self.records.get_mut(before.0) {
                record.set_draining(false);
            }
        }
        let mut draining = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let (found, _) = self.find_or_add(id, endpoint);
            let record = self.records.get_mut(found.0);
            if let Some(record) = record.filter(|record| !record.is_draining())
                && let Some(roster) = self.rosters.get_mut(id.0)
            {
                record.set_draining(true);
                draining.push(found);
                if record.places.is_empty() {
                    roster.unheld.insert(found);
                }
            }
        }
        if let Some(roster) = self.rosters.get_mut(id.0) {
            roster.draining = draining;
        }
    }

    /// No leaf holds the endpoint any more, or one does again.
    pub(super) fn set_held(&mut self, id: RosterId, endpoint: EndpointId, is_held: bool) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        if is_held {
            roster.unheld.remove(&endpoint);
        } else {
            roster.unheld.insert(endpoint);
            roster.loosen(endpoint);
        }
    }

    /// Has the driver release the endpoints whose connection no leaf wants, and forgets those that neither a
    /// leaf nor the cluster's plan has. `each_listed` visits the endpoints of the plan that no leaf holds.
    ///
    /// It comes after a batch of changes, because within one an endpoint may leave its leaf before
    /// it gets to the next.
    pub(crate) fn sweep(
        &mut self,
        id: RosterId,
        now: Instant,
        each_listed: impl FnOnce(&mut dyn FnMut(&Endpoint)),
    ) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        if std::mem::replace(&mut roster.is_swept, true) {
            return;
        }
        if roster.sessions.are_open() {
            // The sessions know which endpoints the plan has.
            return self.sweep_loose(id, now);
        }
        let mark = self.next_mark();
        each_listed(&mut |endpoint| {
            self.visits += 1;
            if let Some(listed) = self.find(id, &endpoint.identity()) {
                self.mark(listed, mark);
            }
        });
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        let mut kept = BTreeSet::new();
        for endpoint in std::mem::take(&mut roster.unheld) {
            self.visits += 1;
            let record = self.records.get(endpoint.0);
            if record.is_some_and(|record| record.is_draining() || record.mark == mark) {
                self.release(endpoint);
                kept.insert(endpoint);
            } else {
                self.remove(endpoint);
            }
        }
        if let Some(roster) = self.rosters.get_mut(id.0) {
            roster.unheld = kept;
            let loose = std::mem::take(&mut roster.loose);
            self.release_unwanted(&loose);
        }
    }

    /// Releases the endpoints that only `pick_first` leaves hold, because these have a connection for all of
    /// their endpoints.
    fn release_unwanted(&mut self, loose: &[EndpointId]) {
        for &endpoint in loose {
            self.visits += 1;
            if !self.is_wanted(endpoint) {
                self.release(endpoint);
            }
        }
    }

    /// The endpoints that the leaf clusters of a tree know.
    pub(crate) fn roster_views(&self, tree: &str) -> Vec<RosterView> {
        let records = self.records.entries().filter_map(|(key, record)| {
            let health = match record.kind {
                Kind::Endpoint { is_draining, .. } if is_draining => Health::Draining,
                Kind::Endpoint { health, .. } => health,
                Kind::Flattened { .. } => return None,
            };
            let roster = self.rosters.get(record.roster.0)?;
            let places = record.places.iter();
            let settled = record.settled();
            (roster.tree.as_str() == tree).then(|| RosterView {
                id: EndpointId(key),
                cluster: roster.cluster.clone(),
                addresses: record.addresses.clone(),
                health,
                localities: places.map(|place| place.locality.clone()).collect(),
                state: record.raw_connectivity(),
                ejection: roster.ejection(EndpointId(key)).cloned(),
                picks: record.picks(),
                in_flight: record.in_flight(),
                succeeded: settled.succeeded,
                failed: settled.failed,
            })
        });
        records.collect()
    }

    /// The ejection of an endpoint, while it is ejected.
    pub(crate) fn ejection(&self, id: EndpointId) -> Option<&Ejection> {
        let record = self.get(id)?;
        self.rosters.get(record.roster.0)?.ejection(id)
    }

    pub(super) fn find(&self, id: RosterId, identity: &[SocketAddr]) -> Option<EndpointId> {
        let roster = self.rosters.get(id.0)?;
        roster.index.find(identity, |id| {
            let record = self.records.get(id.0);
            let known = record.map(|record| &record.kind);
            matches!(known, Some(Kind::Endpoint { identity: known, .. }) if **known == *identity)
        })
    }

    /// The driver may end the connection of an endpoint; the endpoint is IDLE then.
    pub(super) fn release(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        // A demand of a call for this endpoint is ignored from now on. A new wish makes the next
        // call send a new demand.
        let unheard = matches!(&record.state, State::Idle(wish) if wish.is_told());
        if record.introduced || unheard {
            record.state = State::Idle(Arc::new(Wish::new(id)));
        }
        // The driver has never heard of the others.
        if std::mem::take(&mut record.introduced) {
            record.released = true;
            record.reported = false;
            self.after_pickers.push_back(Command::Release(id));
        }
        self.show(id);
    }

    /// Removes the endpoint, and has the driver release its connection.
    pub(super) fn remove(&mut self, id: EndpointId) {
        self.release(id);
        self.untie(id);
        let Some(record) = self.records.remove(id.0) else {
            return;
        };
        if let Kind::Endpoint { identity, .. } = &record.kind
            && let Some(roster) = self.rosters.get_mut(record.roster.0)
        {
            roster.index.remove(identity, id);
            if let Some(outliers) = &mut roster.outliers {
                outliers.remove(id);
            }
        }
    }
}
