//! The endpoints of a leaf: the list in use, and at most one that is to replace it.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use super::round_robin::Cursor;
use crate::{
    Connectivity, EndpointId, EndpointView, LocalityId, Tree, TreeRole,
    endpoint::{Failed, Owner, Pool, Record, State},
    plan::Endpoint,
};

/// The lists of a leaf.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(super) current: List,
    pub(super) pending: Option<List>,
    /// Every endpoint of both lists.
    by_identity: HashMap<Arc<[SocketAddr]>, EndpointId>,
    /// Endpoints that became READY since the list in use was looked at, and how many it had.
    gained: usize,
    ready: usize,
    /// Endpoints that failed since then, and how many had.
    failed: usize,
    failing: usize,
    /// How many endpoints were looked at so far.
    pub(super) visits: u64,
}

/// An ordered list of endpoints, as one plan had it.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) endpoints: Vec<EndpointId>,
    /// Shared by every picker of this list: a change of state does not restart the turns.
    pub(super) cursor: Arc<Cursor>,
}

impl Members {
    /// Makes the list that a plan asks for; it is pending until [`swap`](Self::swap).
    pub(super) fn update<T>(
        &mut self,
        owner: &Owner,
        wanted: &[Endpoint],
        pool: &mut Pool<T>,
        rng: &mut fastrand::Rng,
    ) {
        self.visits += wanted.len() as u64;
        let newest = self.pending.as_ref().unwrap_or(&self.current);
        let mark = pool.next_mark();
        let mut endpoints = Vec::with_capacity(wanted.len());
        for (index, endpoint) in wanted.iter().enumerate() {
            // Most endpoints are where they were: no need to look for those.
            let there = newest.endpoints.get(index).copied();
            let there = there.filter(|&id| pool.is_at(id, endpoint.addresses()));
            let id = there.unwrap_or_else(|| {
                let identity = endpoint.identity();
                let known = self.by_identity.entry(identity);
                *known.or_insert_with(|| pool.add(owner, endpoint))
            });
            // Two entries for one address set are one endpoint.
            if pool.mark(id, mark) {
                pool.hold(id, endpoint);
                endpoints.push(id);
            }
        }
        let next = List {
            endpoints,
            cursor: Arc::new(Cursor::new(rng.u32(..))),
        };
        if let Some(superseded) = self.pending.replace(next) {
            self.let_go(superseded, pool);
        }
    }

    /// Makes the list one endpoint, or none. The endpoint there is follows: its driver keeps the
    /// connection, if that leads to an address that stays.
    pub(super) fn update_only<T>(
        &mut self,
        owner: &Owner,
        wanted: Option<&Endpoint>,
        pool: &mut Pool<T>,
    ) {
        self.visits += 1;
        match (wanted, self.current.endpoints.first()) {
            (Some(endpoint), Some(&id)) => pool.readdress(id, endpoint),
            (Some(endpoint), None) => {
                let id = pool.add(owner, endpoint);
                pool.hold(id, endpoint);
                self.current.endpoints.push(id);
            }
            (None, _) => {
                let old = std::mem::take(&mut self.current);
                self.let_go(old, pool);
            }
        }
    }

    /// The pending list, if there is one, takes the place of the one in use.
    pub(super) fn swap<T>(&mut self, pool: &mut Pool<T>) {
        if let Some(pending) = self.pending.take() {
            let old = std::mem::replace(&mut self.current, pending);
            self.let_go(old, pool);
        }
    }

    /// Connects every endpoint of both lists that is IDLE.
    pub(super) fn connect_all<T>(&mut self, pool: &mut Pool<T>) {
        let pending = self.pending.iter().flat_map(|list| &list.endpoints);
        for &id in self.current.endpoints.iter().chain(pending) {
            self.visits += 1;
            pool.connect(id);
        }
    }

    /// Notes how many endpoints of the list in use are READY, and how many fail.
    pub(super) fn looked(&mut self, ready: usize, failing: usize) {
        self.visits += self.current.endpoints.len() as u64;
        (self.gained, self.ready) = (0, ready);
        (self.failed, self.failing) = (0, failing);
    }

    /// One more endpoint is READY; whether that is so little, next to the work of looking at all of
    /// them, that the next picker can wait for more of them. The first one is never little.
    pub(super) fn gained_little(&mut self) -> bool {
        self.gained += 1;
        self.ready > 0 && self.gained * 4 < self.current.endpoints.len()
    }

    /// An endpoint that was in this state fails; whether calls are picked as before. They are unless it
    /// was READY or is the last to fail; then only the text of a failure may be another.
    pub(super) fn lost_little(&mut self, before: Connectivity) -> bool {
        match before {
            Connectivity::Ready => false,
            Connectivity::TransientFailure => true,
            Connectivity::Connecting | Connectivity::Idle => {
                self.failed += 1;
                let failing = self.failing + self.failed;
                self.pending.is_none() && failing < self.current.endpoints.len()
            }
        }
    }

    pub(super) fn close<T>(self, pool: &mut Pool<T>) {
        self.current.let_go(pool);
        if let Some(pending) = self.pending {
            pending.let_go(pool);
        }
    }

    pub(super) fn views<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = EndpointView> + 'a {
        self.entries(pool).map(|(id, record, _)| record.view(id))
    }

    pub(super) fn trees<T>(&self, pool: &Pool<T>) -> Vec<Tree> {
        let entries = self.entries(pool);
        entries
            .map(|(id, record, role)| endpoint_tree(id, record, role))
            .collect()
    }

    /// Every endpoint once, with its role while a pending list waits to replace the one in use.
    fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (EndpointId, &'a Record<T>, Option<TreeRole>)> {
        let has_pending = self.pending.is_some();
        let used = self.current.entries(pool).map(move |(id, record)| {
            let leaves = has_pending && !record.is_in_both_lists();
            (id, record, leaves.then_some(TreeRole::Leaving))
        });
        let pending = self.pending.iter().flat_map(|list| list.entries(pool));
        let added = pending
            .filter(|(_, record)| !record.is_in_both_lists())
            .map(|(id, record)| (id, record, Some(TreeRole::Pending)));
        used.chain(added)
    }

    fn let_go<T>(&mut self, list: List, pool: &mut Pool<T>) {
        for id in list.endpoints {
            self.visits += 1;
            if let Some(gone) = pool.let_go(id) {
                self.by_identity.remove(&gone);
            }
        }
    }
}

impl List {
    pub(super) fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (EndpointId, &'a Record<T>)> {
        self.endpoints
            .iter()
            .filter_map(|&id| Some((id, pool.get(id)?)))
    }

    pub(super) fn records<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = &'a Record<T>> {
        self.entries(pool).map(|(_, record)| record)
    }

    /// Whether this list may replace the one in use (A61): when that has no READY endpoint, or this
    /// one has, and all of its endpoints have reported, or when all of them are failing.
    pub(super) fn replaces<T>(&self, current: &Self, pool: &Pool<T>) -> bool {
        if !current.records(pool).any(Record::is_ready) {
            return true;
        }
        let usable = self.records(pool).any(Record::is_ready)
            && self.records(pool).all(|record| record.reported);
        usable
            || self
                .records(pool)
                .all(|record| record.connectivity() == Connectivity::TransientFailure)
    }

    fn let_go<T>(self, pool: &mut Pool<T>) {
        for id in self.endpoints {
            pool.let_go(id);
        }
    }
}

/// Why no endpoint of a leaf can take a call, by the failure that came last.
pub(super) fn describe(owner: &Owner, last_failure: Option<(&Endpoint, &Failed)>) -> String {
    let place = match &owner.locality {
        nowhere if *nowhere == LocalityId::default() => String::new(),
        locality => format!(" in {locality}"),
    };
    match last_failure {
        None => format!("no endpoints{place}"),
        Some((endpoint, failed)) => format!(
            "no connection to any endpoint{place}; last error: {endpoint}: {}",
            failed.reason,
        ),
    }
}

fn endpoint_tree<T>(id: EndpointId, record: &Record<T>, role: Option<TreeRole>) -> Tree {
    let failure = match &record.state {
        State::Failing(failed) => Some(failed.reason.clone()),
        State::Connecting | State::Idle(_) | State::Ready(_) => None,
    };
    let view = record.view(id);
    let mut tree = Tree::endpoint(&record.endpoint)
        .with_state(view.state)
        .with_role(role)
        .with_note(failure);
    tree.endpoint = Some(id);
    tree.in_flight = Some(view.in_flight);
    tree.picks = Some(view.picks);
    tree
}
