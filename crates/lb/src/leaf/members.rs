//! The endpoints of a leaf: the list in use, and at most one that is to replace it.
//!
//! There are two lists, because a new one serves no calls until it is as good as the old one (A61).

use std::{collections::HashSet, fmt, net::SocketAddr, sync::Arc};

use super::{
    held::{Held, Member},
    round_robin::Turns,
};
use crate::{
    Connectivity, EndpointView, LocalityId, Tree, TreeEjection, TreeRole,
    endpoint::{AddressList, Failed, Owner, Pool, Record},
    plan::Endpoint,
};

/// The lists of a leaf.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(super) current: List,
    pub(super) pending: Option<List>,
    /// The endpoints of a `pick_first` leaf, whose list is one with the addresses of all of them.
    flattened: Held,
    /// The number of endpoints that became READY since the last look at the list in use. `ready` is
    /// the number that were READY at that look.
    gained: usize,
    ready: usize,
    /// The number of endpoints that failed since the last look at the list in use. `failing` is the
    /// number that were failing at that look.
    failed: usize,
    failing: usize,
    /// The number of endpoints that were looked at so far, as a measure of the work.
    pub(super) visits: u64,
}

/// An ordered list of endpoints, as one plan had it.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) held: Held,
    pub(super) turns: Turns,
}

impl Members {
    /// Makes the list that a plan asks for; it is pending until [`swap`](Self::swap).
    pub(super) fn update<T>(
        &mut self,
        owner: &Owner,
        wanted: &Arc<[Endpoint]>,
        pool: &mut Pool<T>,
        rng: &mut fastrand::Rng,
    ) {
        self.visits += wanted.len() as u64;
        let in_use = &self.current.held;
        let newest = self.pending.as_ref().map_or(in_use, |list| &list.held);
        let next = List {
            held: Held::hold(owner, wanted, newest, in_use, pool),
            turns: Turns::new(rng),
        };
        if let Some(superseded) = self.pending.replace(next) {
            self.visits += superseded.held.let_go(owner, in_use, pool) as u64;
        }
    }

    /// Makes the list a single entry with the addresses of all wanted endpoints (`all`); `None` if
    /// there are none. An entry that exists gets the new addresses. Its driver keeps the connection
    /// if the connected address stays.
    pub(super) fn update_flattened<T>(
        &mut self,
        owner: &Owner,
        wanted: &Arc<[Endpoint]>,
        all: Option<&Endpoint>,
        pool: &mut Pool<T>,
    ) {
        self.visits += 1;
        self.visits += self.flattened.replace(owner, wanted, pool) as u64;
        let members = &mut self.current.held.members;
        let Some(all) = all else {
            let old = std::mem::take(members);
            old.iter().for_each(|list| pool.remove_flattened(list.id));
            return;
        };
        let id = match members.pop() {
            Some(list) => {
                pool.readdress(list.id, all.addresses());
                list.id
            }
            None => pool.add_flattened(owner, all),
        };
        members.push(Member::new(id, all));
    }

    /// The pending list, if there is one, takes the place of the one in use.
    pub(super) fn swap<T>(&mut self, owner: &Owner, pool: &mut Pool<T>) {
        if let Some(pending) = self.pending.take() {
            let old = std::mem::replace(&mut self.current, pending);
            self.visits += old.held.let_go(owner, &self.current.held, pool) as u64;
        }
    }

    /// Connects every endpoint of both lists that is IDLE.
    pub(super) fn connect_all<T>(&mut self, pool: &mut Pool<T>) {
        let in_use = &self.current.held;
        for member in &in_use.members {
            self.visits += 1;
            pool.connect(member.id);
        }
        let pending = self.pending.iter();
        for member in pending.flat_map(|list| list.held.not_carried(in_use)) {
            self.visits += 1;
            pool.connect(member.id);
        }
    }

    /// Notes how many endpoints of the list in use are READY, and how many fail.
    pub(super) fn looked(&mut self, ready: usize, failing: usize) {
        self.visits += self.current.held.members.len() as u64;
        (self.gained, self.ready) = (0, ready);
        (self.failed, self.failing) = (0, failing);
    }

    /// Counts one more READY endpoint. Returns whether the next picker can wait for more of them,
    /// because a picker costs a look at every endpoint. It never waits for the first READY
    /// endpoint.
    pub(super) fn gained_little(&mut self) -> bool {
        self.gained += 1;
        self.ready > 0 && self.gained * 4 < self.current.held.members.len()
    }

    /// Counts one more failing endpoint, which was in state `before`. Returns whether calls are
    /// picked as before. They are not if the endpoint was READY, if it is the last one to fail, or
    /// if a pending list may take over.
    pub(super) fn lost_little(&mut self, before: Connectivity) -> bool {
        match before {
            Connectivity::Ready => false,
            Connectivity::TransientFailure => true,
            Connectivity::Connecting | Connectivity::Idle => {
                self.failed += 1;
                let failing = self.failing + self.failed;
                self.pending.is_none() && failing < self.current.held.members.len()
            }
        }
    }

    pub(super) fn close<T>(mut self, owner: &Owner, pool: &mut Pool<T>) {
        if self.flattened.members.is_empty() {
            self.swap(owner, pool);
            self.current.held.let_go(owner, &Held::default(), pool);
        } else {
            self.update_flattened(owner, &Arc::from([]), None, pool);
        }
    }

    pub(super) fn views<'a, T>(
        &'a self,
        owner: &'a Owner,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = EndpointView> + 'a {
        let entries = self.entries(pool);
        entries.map(|(member, record, _)| self.view(owner, member, record, pool))
    }

    pub(super) fn trees<T>(&self, owner: &Owner, pool: &Pool<T>) -> Vec<Tree> {
        let entries = self.entries(pool);
        entries
            .map(|(member, record, role)| {
                let view = self.view(owner, member, record, pool);
                let mut tree = record.tree(&view, Some(member.weight), role);
                tree.ejection = pool.ejection(member.id).map(TreeEjection::from);
                tree
            })
            .collect()
    }

    /// The endpoint as this leaf has it. A list of all addresses has the calls of all endpoints.
    fn view<T>(
        &self,
        owner: &Owner,
        member: &Member,
        record: &Record<T>,
        pool: &Pool<T>,
    ) -> EndpointView {
        let mut view = record.view(member.id, member.locality(owner));
        let flattened = self.flattened.members.iter();
        for record in flattened.filter_map(|member| pool.get(member.id)) {
            view.picks += record.picks();
            view.in_flight += record.in_flight();
        }
        view
    }

    /// Every endpoint once, with its role while a pending list waits to replace the one in use.
    fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (&'a Member, &'a Record<T>, Option<TreeRole>)> {
        let ids = |list: &List| list.held.members.iter().map(|member| member.id).collect();
        let pending: Option<HashSet<_>> = self.pending.as_ref().map(ids);
        let in_use: HashSet<_> = ids(&self.current);
        let used = self
            .current
            .held
            .entries(pool)
            .map(move |(member, record)| {
                let stays = pending.as_ref().is_none_or(|ids| ids.contains(&member.id));
                (member, record, (!stays).then_some(TreeRole::Leaving))
            });
        let added = self.pending.iter().flat_map(|list| list.held.entries(pool));
        let added = added
            .filter(move |(member, _)| !in_use.contains(&member.id))
            .map(|(member, record)| (member, record, Some(TreeRole::Pending)));
        used.chain(added)
    }
}

impl List {
    pub(super) fn records<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = &'a Record<T>> {
        self.held.entries(pool).map(|(_, record)| record)
    }

    /// Returns whether this list may replace the one in use (A61). One of these must be true:
    ///
    /// - The list in use has no READY endpoint.
    /// - This list has a READY endpoint, and all of its endpoints have reported a state.
    /// - All endpoints of this list are failing.
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
}

/// The addresses of an endpoint that failed, and its failure.
pub(super) type LastFailure<'a> = (&'a [SocketAddr], &'a Failed);

/// The reason why no endpoint of a leaf can take a call, by the failure that came last.
pub(super) fn describe(owner: &Owner, last_failure: Option<LastFailure<'_>>) -> String {
    let place = InLocality(&owner.locality);
    match last_failure {
        None => format!("no endpoints{place}"),
        Some((addresses, failed)) => {
            let last = format_args!("{}: {}", AddressList(addresses), failed.reason);
            match failed.is_ejection {
                true => format!("every endpoint{place} fails or is ejected; last error: {last}"),
                false => format!("no connection to any endpoint{place}; last error: {last}"),
            }
        }
    }
}

/// Prints ` in us/a`, and nothing for an endpoint without a locality.
struct InLocality<'a>(&'a LocalityId);

impl fmt::Display for InLocality<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nowhere if *nowhere == LocalityId::default() => Ok(()),
            locality => write!(f, " in {locality}"),
        }
    }
}
