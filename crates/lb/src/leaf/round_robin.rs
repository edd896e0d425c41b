//! `round_robin`: every ready endpoint in turn.
//!
//! Endpoints are connected eagerly, one at a time and all at once (A61). A changed list of
//! endpoints does not replace the one in use until it is as good: otherwise a deploy that replaces
//! every backend would leave the calls with connections that are still being made.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use super::LeafId;
use crate::{
    ClusterName, Connectivity, EndpointId, EndpointView, LocalityId, Tree,
    endpoint::{Failed, Pool, ReadyEndpoint, Record, State},
    plan::Endpoint,
    tree::ROUND_ROBIN,
};

/// One `round_robin` node: the list in use, and at most one that is to replace it.
#[derive(Debug)]
pub(crate) struct RoundRobin<T> {
    cluster: ClusterName,
    locality: LocalityId,
    /// The list that the last plan asked for.
    wanted: Arc<[Endpoint]>,
    current: List,
    pending: Option<List>,
    outcome: Outcome<T>,
}

impl<T> RoundRobin<T> {
    pub(crate) fn new(cluster: ClusterName, locality: LocalityId) -> Self {
        Self {
            cluster,
            locality,
            wanted: Arc::from([]),
            current: List::default(),
            pending: None,
            outcome: Outcome::Connecting,
        }
    }

    pub(crate) fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub(crate) fn outcome(&self) -> &Outcome<T> {
        &self.outcome
    }

    /// Takes the list of the next plan. Returns whether it differs from the last one.
    ///
    /// An endpoint that stays keeps its id, its connection and its counters.
    pub(crate) fn update(
        &mut self,
        id: LeafId,
        wanted: &Arc<[Endpoint]>,
        pool: &mut Pool<T>,
        rng: &mut fastrand::Rng,
    ) -> bool {
        if Arc::ptr_eq(&self.wanted, wanted) || self.wanted == *wanted {
            return false;
        }
        self.wanted = wanted.clone();
        let mut known = self.known(pool);
        let mut endpoints = Vec::with_capacity(wanted.len());
        for endpoint in wanted.iter() {
            let entry = known.entry(endpoint.identity());
            let found = entry.or_insert_with(|| Known {
                id: pool.add(id, &self.locality, endpoint),
                listed: false,
            });
            // Two entries for one address set are one endpoint.
            if !std::mem::replace(&mut found.listed, true) {
                pool.hold(found.id, endpoint);
                endpoints.push(found.id);
            }
        }
        let next = List {
            endpoints,
            cursor: Arc::new(Cursor::new(rng.u32(..))),
        };
        if let Some(superseded) = self.pending.replace(next) {
            superseded.let_go(pool);
        }
        true
    }

    /// Looks at the states again: swaps the lists if it is time, and compiles the one in use.
    /// Returns whether the outcome changed.
    pub(crate) fn refresh(&mut self, pool: &mut Pool<T>) -> bool {
        if let Some(pending) = self
            .pending
            .take_if(|pending| pending.replaces(&self.current, pool))
        {
            std::mem::replace(&mut self.current, pending).let_go(pool);
        }
        let outcome = self.compile(pool);
        let changed = !outcome.same(&self.outcome);
        if changed {
            self.outcome = outcome;
        }
        changed
    }

    /// The node goes: lets go of its endpoints.
    pub(crate) fn close(self, pool: &mut Pool<T>) {
        self.current.let_go(pool);
        if let Some(pending) = self.pending {
            pending.let_go(pool);
        }
    }

    /// Every endpoint of both lists, once.
    pub(crate) fn views<'a>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = EndpointView> + 'a {
        self.entries(pool).map(|(id, record, _)| record.view(id))
    }

    pub(crate) fn tree(&self, pool: &Pool<T>) -> Tree {
        let entries = self.entries(pool);
        let leaves = entries
            .map(|(_, record, role)| endpoint_tree(record, role))
            .collect();
        Tree::new(ROUND_ROBIN, leaves).with_state(self.outcome.connectivity())
    }

    /// What a pick would do with the list in use. Reads states, and decides nothing.
    pub(crate) fn compile(&self, pool: &Pool<T>) -> Outcome<T> {
        let mut ready = Vec::new();
        let mut connecting = false;
        let mut last_failure: Option<(&Endpoint, &Failed)> = None;
        for record in self.current.records(pool) {
            match &record.state {
                State::Ready(endpoint) => ready.push(endpoint.clone()),
                State::Connecting => connecting = true,
                State::Failing(failed) => {
                    if last_failure.is_none_or(|(_, last)| last.at < failed.at) {
                        last_failure = Some((&record.endpoint, failed));
                    }
                }
            }
        }
        if let Some(list) = ReadyList::new(ready, &self.current.cursor) {
            return Outcome::Ready(Arc::new(list));
        }
        if connecting {
            return Outcome::Connecting;
        }
        Outcome::Failing(self.describe(last_failure).into())
    }

    fn describe(&self, last_failure: Option<(&Endpoint, &Failed)>) -> String {
        let locality = &self.locality;
        match last_failure {
            None => format!("no endpoints in {locality}"),
            Some((endpoint, failed)) => format!(
                "no connection to any endpoint in {locality}; last error: {endpoint}: {}",
                failed.reason,
            ),
        }
    }

    /// Every endpoint once, with what is to become of it.
    fn entries<'a>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (EndpointId, &'a Record<T>, Role)> {
        let has_pending = self.pending.is_some();
        let used = self.current.entries(pool).map(move |(id, record)| {
            let leaves = has_pending && !record.is_in_both_lists();
            (id, record, if leaves { Role::Leaving } else { Role::Used })
        });
        let pending = self.pending.iter().flat_map(|list| list.entries(pool));
        let added = pending
            .filter(|(_, record)| !record.is_in_both_lists())
            .map(|(id, record)| (id, record, Role::Pending));
        used.chain(added)
    }

    /// The endpoints of both lists by identity.
    fn known(&self, pool: &Pool<T>) -> HashMap<Arc<[SocketAddr]>, Known> {
        self.entries(pool)
            .map(|(id, record, _)| (record.identity.clone(), Known { id, listed: false }))
            .collect()
    }
}

/// What a leaf has to offer.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Ready(Arc<ReadyList<T>>),
    Connecting,
    Failing(Arc<str>),
}

impl<T> Outcome<T> {
    pub(crate) fn connectivity(&self) -> Connectivity {
        match self {
            Self::Ready(_) => Connectivity::Ready,
            Self::Connecting => Connectivity::Connecting,
            Self::Failing(_) => Connectivity::TransientFailure,
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(left), Self::Ready(right)) => left.same(right),
            (Self::Connecting, Self::Connecting) => true,
            (Self::Failing(left), Self::Failing(right)) => left == right,
            _ => false,
        }
    }
}

/// The endpoints of a list that can take calls: at least one.
#[derive(Debug)]
pub(crate) struct ReadyList<T> {
    endpoints: Box<[Arc<ReadyEndpoint<T>>]>,
    cursor: Arc<Cursor>,
}

impl<T> ReadyList<T> {
    fn new(endpoints: Vec<Arc<ReadyEndpoint<T>>>, cursor: &Arc<Cursor>) -> Option<Self> {
        if endpoints.is_empty() {
            return None;
        }
        Some(Self {
            endpoints: endpoints.into(),
            cursor: cursor.clone(),
        })
    }

    /// The endpoint whose turn it is. O(1).
    pub(crate) fn next(&self) -> &Arc<ReadyEndpoint<T>> {
        let turn = self.cursor.0.fetch_add(1, Relaxed);
        &self.endpoints[(turn % self.endpoints.len() as u32) as usize]
    }

    pub(crate) fn locality(&self) -> &LocalityId {
        &self.endpoints[0].locality
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.endpoints.iter().map(|endpoint| endpoint.id)
    }

    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cursor, &other.cursor)
            && self.endpoints.len() == other.endpoints.len()
            && self
                .endpoints
                .iter()
                .zip(&other.endpoints)
                .all(|(l, r)| Arc::ptr_eq(l, r))
    }
}

/// An ordered list of endpoints, as one plan had it.
#[derive(Debug, Default)]
struct List {
    endpoints: Vec<EndpointId>,
    /// Shared by every picker of this list: a change of state does not restart the turns.
    cursor: Arc<Cursor>,
}

impl List {
    fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (EndpointId, &'a Record<T>)> {
        self.endpoints
            .iter()
            .filter_map(|&id| Some((id, pool.get(id)?)))
    }

    fn records<'a, T>(&'a self, pool: &'a Pool<T>) -> impl Iterator<Item = &'a Record<T>> {
        self.entries(pool).map(|(_, record)| record)
    }

    /// Whether this list may replace the one in use (A61): when that has no READY endpoint, or this
    /// one has, and all of its endpoints have reported, or when all of them are failing.
    fn replaces<T>(&self, current: &Self, pool: &Pool<T>) -> bool {
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

/// Whose turn it is. On a cache line of its own: every pick of the list writes it.
///
/// It starts at random: clients that restarted at the first endpoint on every update would all
/// favour the first endpoints during a deploy.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cursor(AtomicU32);

impl Cursor {
    fn new(start: u32) -> Self {
        Self(AtomicU32::new(start))
    }
}

/// An endpoint that a leaf has, while its next list is made.
struct Known {
    id: EndpointId,
    listed: bool,
}

/// What is to become of an endpoint when the pending list replaces the one in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Used,
    Leaving,
    Pending,
}

fn endpoint_tree<T>(record: &Record<T>, role: Role) -> Tree {
    let failure = match &record.state {
        State::Failing(failed) => Some(failed.reason.clone()),
        State::Connecting | State::Ready(_) => None,
    };
    let note = match role {
        Role::Used => failure,
        Role::Leaving => Some("leaving".into()),
        Role::Pending => failure.or_else(|| Some("pending".into())),
    };
    Tree::new(record.endpoint.to_string(), vec![])
        .with_state(record.connectivity())
        .with_note(note)
}
