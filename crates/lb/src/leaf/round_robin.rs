//! `round_robin`: every ready endpoint in turn.
//!
//! All endpoints are connected at once, before calls need them (A61). A changed list of endpoints
//! does not replace the one in use until it is as good. Otherwise calls would have to wait for
//! connections after a deploy that replaces every backend.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use super::{
    LeafChoice, Outcome,
    members::{LastFailure, Members, describe},
};
use crate::{
    Connectivity, Share,
    endpoint::{Owner, Pool, ReadyEndpoint, Seen},
};

/// Connects IDLE endpoints, lets the pending list take over if it may, and makes the outcome of the
/// list in use.
pub(super) fn refresh<T>(members: &mut Members, owner: &Owner, pool: &mut Pool<T>) -> Outcome<T> {
    let ready = refresh_ready(members, owner, pool);
    ready.map_or_else(
        |outcome| outcome,
        |list| Outcome {
            state: Connectivity::Ready,
            choice: LeafChoice::RoundRobin(Arc::new(list)),
        },
    )
}

/// Refreshes the lists for any policy that chooses among all READY endpoints. Returns those
/// endpoints, or the outcome of the leaf if there are none.
///
/// Without a pending list, one look finds IDLE and READY endpoints, because a look at thousands of records is most of
/// the work. With a pending list, IDLE endpoints are connected before the list is chosen, because the choice may take
/// the endpoints of the other list away.
pub(super) fn refresh_ready<T>(
    members: &mut Members,
    owner: &Owner,
    pool: &mut Pool<T>,
) -> Result<ReadyList<T>, Outcome<T>> {
    if members.pending.is_some() {
        members.connect_all(pool);
    }
    if let Some(pending) = &members.pending
        && pending.replaces(&members.current, pool)
    {
        members.swap(owner, pool);
    }
    // Most lists are READY as a whole, and one that grows would be copied again and again.
    let mut ready = Vec::with_capacity(members.current.held.members.len());
    let mut idle = Vec::new();
    let mut connecting = false;
    let mut failing = 0;
    let mut last_failure: Option<LastFailure<'_>> = None;
    for (member, record) in members.current.held.entries(pool) {
        if record.raw_connectivity() == Connectivity::Idle {
            idle.push(member.id);
        }
        match record.seen() {
            Seen::Ready(connection) => {
                ready.push(connection.in_locality(member.locality(owner)).clone());
            }
            Seen::Connecting | Seen::Idle(_) => connecting = true,
            Seen::Failing(failed) => {
                failing += 1;
                if last_failure.is_none_or(|(_, last)| last.at < failed.at) {
                    last_failure = Some((&record.addresses, failed));
                }
            }
        }
    }
    let otherwise = match last_failure {
        _ if !ready.is_empty() || connecting => Outcome::connecting(),
        last_failure => Outcome::failing(describe(owner, last_failure)),
    };
    members.looked(ready.len(), failing);
    idle.into_iter().for_each(|id| _ = pool.connect(id));
    ReadyList::new(ready, &mut members.current.turns).ok_or(otherwise)
}

/// The endpoints of a list that can take calls: at least one.
#[derive(Debug)]
pub(crate) struct ReadyList<T> {
    endpoints: Box<[Arc<ReadyEndpoint<T>>]>,
    cursor: Arc<Cursor>,
}

impl<T> ReadyList<T> {
    fn new(endpoints: Vec<Arc<ReadyEndpoint<T>>>, turns: &mut Turns) -> Option<Self> {
        if endpoints.is_empty() {
            return None;
        }
        Some(Self {
            endpoints: endpoints.into(),
            cursor: turns.cursor().clone(),
        })
    }

    /// The endpoint whose turn it is. O(1).
    pub(crate) fn next(&self) -> &Arc<ReadyEndpoint<T>> {
        let turn = self.cursor.0.fetch_add(1, Relaxed);
        &self.endpoints[(turn % self.endpoints.len() as u32) as usize]
    }

    /// The endpoint that a random number stands for.
    pub(super) fn at(&self, random: u64) -> &Arc<ReadyEndpoint<T>> {
        let index = (u128::from(random) * self.endpoints.len() as u128) >> 64;
        &self.endpoints[index as usize]
    }

    pub(super) fn share(&self, probability: f64) -> Share {
        Share {
            cluster: None,
            locality: self.endpoints[0].locality.clone(),
            probability,
            endpoints: self.endpoints.iter().map(|endpoint| endpoint.id).collect(),
        }
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cursor, &other.cursor)
            && self.endpoints.len() == other.endpoints.len()
            && self
                .endpoints
                .iter()
                .zip(&other.endpoints)
                .all(|(l, r)| Arc::ptr_eq(l, r))
    }
}

/// The turns of one list. Every picker of the list shares the cursor, so that a change of state does
/// not restart the turns.
///
/// The cursor comes with the first READY endpoint, because it takes up cache lines of its own and the
/// lists of failing clusters need none.
#[derive(Debug, Default)]
pub(super) struct Turns {
    start: u32,
    cursor: Option<Arc<Cursor>>,
}

impl Turns {
    /// Turns that start at random, because clients that start at the first endpoint on every update
    /// would all favour it during a deploy.
    pub(super) fn new(rng: &mut fastrand::Rng) -> Self {
        Self {
            start: rng.u32(..),
            cursor: None,
        }
    }

    fn cursor(&mut self) -> &Arc<Cursor> {
        let start = self.start;
        self.cursor
            .get_or_insert_with(|| Arc::new(Cursor(AtomicU32::new(start))))
    }
}

/// The endpoint whose turn it is. On a cache line of its own: every pick of the list writes it.
#[derive(Debug)]
#[repr(align(128))]
struct Cursor(AtomicU32);
