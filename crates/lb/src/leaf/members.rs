//! The endpoints of a leaf: the list in use, and at most one that is to replace it.
//!
//! There are two lists, because a new one serves no calls until it is as good as the old one (A61).

use std::{net::SocketAddr, num::NonZeroU64, sync::Arc};

use super::round_robin::Cursor;
use crate::{
    Connectivity, EndpointId, EndpointView, LocalityId, Tree, TreeRole,
    endpoint::{AddressList, Failed, Owner, Pool, Record, State},
    plan::Endpoint,
};

/// The lists of a leaf.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(super) current: List,
    pub(super) pending: Option<List>,
    /// The endpoints of a `pick_first` leaf, whose list is one with the addresses of all of them.
    flattened: Vec<Member>,
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
    pub(super) members: Vec<Member>,
    /// Shared by every picker of this list: a change of state does not restart the turns.
    pub(super) cursor: Arc<Cursor>,
}

/// An endpoint of the cluster's roster, with the locality and the weight that this list gives it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: EndpointId,
    /// `None` for the locality of the leaf. A plan makes a list of thousands, and most need no copy of it.
    locality: Option<LocalityId>,
    weight: NonZeroU64,
}

impl Member {
    fn new(id: EndpointId, endpoint: &Endpoint) -> Self {
        Self {
            id,
            locality: endpoint.locality.clone(),
            weight: endpoint.weight,
        }
    }

    pub(super) fn locality<'a>(&'a self, owner: &'a Owner) -> &'a LocalityId {
        self.locality.as_ref().unwrap_or(&owner.locality)
    }

    /// Returns whether a list that takes up `endpoint` would get this very member.
    fn is<T>(&self, endpoint: &Endpoint, pool: &Pool<T>) -> bool {
        self.weight == endpoint.weight
            && self.locality == endpoint.locality
            && pool.is_at(self.id, endpoint.addresses())
    }
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
        let next = List {
            members: hold_all(owner, wanted, &newest.members, pool),
            cursor: Arc::new(Cursor::new(rng.u32(..))),
        };
        if let Some(superseded) = self.pending.replace(next) {
            self.let_go(owner, superseded.members, pool);
        }
    }

    /// Makes the list a single entry with the addresses of all wanted endpoints (`all`); `None` if
    /// there are none. An entry that exists gets the new addresses. Its driver keeps the connection
    /// if the connected address stays.
    pub(super) fn update_flattened<T>(
        &mut self,
        owner: &Owner,
        wanted: &[Endpoint],
        all: Option<&Endpoint>,
        pool: &mut Pool<T>,
    ) {
        self.visits += 1;
        self.hold_flattened(owner, wanted, pool);
        let Some(all) = all else {
            let old = std::mem::take(&mut self.current.members);
            old.iter().for_each(|list| pool.remove_flattened(list.id));
            return;
        };
        let id = match self.current.members.pop() {
            Some(list) => {
                pool.readdress(list.id, all.addresses());
                list.id
            }
            None => pool.add_flattened(owner, all),
        };
        self.current.members.push(Member::new(id, all));
    }

    /// Takes up the endpoints of a list of addresses, and lets go of those that it had before. There is
    /// no pending list here, so an endpoint that is where it was needs nothing.
    fn hold_flattened<T>(&mut self, owner: &Owner, wanted: &[Endpoint], pool: &mut Pool<T>) {
        let mark = pool.next_mark();
        let mut before = std::mem::take(&mut self.flattened).into_iter();
        let mut gone = Vec::new();
        for endpoint in wanted {
            let there = before.next();
            match there {
                Some(member) if member.is(endpoint, pool) && pool.mark(member.id, mark) => {
                    self.flattened.push(member);
                }
                other => {
                    gone.extend(other);
                    let id = pool.find_or_add(owner.roster, endpoint);
                    self.flattened.extend(hold(owner, endpoint, id, mark, pool));
                }
            }
        }
        gone.extend(before);
        self.let_go(owner, gone, pool);
    }

    /// The pending list, if there is one, takes the place of the one in use.
    pub(super) fn swap<T>(&mut self, owner: &Owner, pool: &mut Pool<T>) {
        if let Some(pending) = self.pending.take() {
            let old = std::mem::replace(&mut self.current, pending);
            self.let_go(owner, old.members, pool);
        }
    }

    /// Connects every endpoint of both lists that is IDLE.
    pub(super) fn connect_all<T>(&mut self, pool: &mut Pool<T>) {
        let pending = self.pending.iter().flat_map(|list| &list.members);
        for member in self.current.members.iter().chain(pending) {
            self.visits += 1;
            pool.connect(member.id);
        }
    }

    /// Notes how many endpoints of the list in use are READY, and how many fail.
    pub(super) fn looked(&mut self, ready: usize, failing: usize) {
        self.visits += self.current.members.len() as u64;
        (self.gained, self.ready) = (0, ready);
        (self.failed, self.failing) = (0, failing);
    }

    /// Counts one more READY endpoint. Returns whether the next picker can wait for more of them,
    /// because a picker costs a look at every endpoint. It never waits for the first READY
    /// endpoint.
    pub(super) fn gained_little(&mut self) -> bool {
        self.gained += 1;
        self.ready > 0 && self.gained * 4 < self.current.members.len()
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
                self.pending.is_none() && failing < self.current.members.len()
            }
        }
    }

    pub(super) fn close<T>(mut self, owner: &Owner, pool: &mut Pool<T>) {
        if self.flattened.is_empty() {
            self.swap(owner, pool);
            let last = std::mem::take(&mut self.current);
            self.let_go(owner, last.members, pool);
        } else {
            self.update_flattened(owner, &[], None, pool);
        }
    }

    pub(super) fn views<'a, T>(
        &'a self,
        owner: &'a Owner,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = EndpointView> + 'a {
        let entries = self.entries(owner, pool);
        entries.map(|(member, record, _)| self.view(owner, member, record, pool))
    }

    pub(super) fn trees<T>(&self, owner: &Owner, pool: &Pool<T>) -> Vec<Tree> {
        let entries = self.entries(owner, pool);
        entries
            .map(|(member, record, role)| {
                let view = self.view(owner, member, record, pool);
                endpoint_tree(&view, member.weight, record, role)
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
        let flattened = self.flattened.iter();
        for record in flattened.filter_map(|member| pool.get(member.id)) {
            view.picks += record.picks();
            view.in_flight += record.in_flight();
        }
        view
    }

    /// Every endpoint once, with its role while a pending list waits to replace the one in use.
    fn entries<'a, T>(
        &'a self,
        owner: &'a Owner,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (&'a Member, &'a Record<T>, Option<TreeRole>)> {
        let has_pending = self.pending.is_some();
        let used = self.current.entries(pool).map(move |(member, record)| {
            let leaves = has_pending && !record.is_in_both_lists_of(owner.leaf);
            (member, record, leaves.then_some(TreeRole::Leaving))
        });
        let pending = self.pending.iter().flat_map(|list| list.entries(pool));
        let added = pending
            .filter(|(_, record)| !record.is_in_both_lists_of(owner.leaf))
            .map(|(member, record)| (member, record, Some(TreeRole::Pending)));
        used.chain(added)
    }

    fn let_go<T>(&mut self, owner: &Owner, members: Vec<Member>, pool: &mut Pool<T>) {
        for member in members {
            self.visits += 1;
            pool.let_go(member.id, (owner.leaf, member.locality(owner)));
        }
    }
}

/// Takes up the endpoints that are wanted; `before` is likely to have most of them in the same places.
fn hold_all<T>(
    owner: &Owner,
    wanted: &[Endpoint],
    before: &[Member],
    pool: &mut Pool<T>,
) -> Vec<Member> {
    let mark = pool.next_mark();
    let mut members = Vec::with_capacity(wanted.len());
    for (index, endpoint) in wanted.iter().enumerate() {
        let place = (
            owner.leaf,
            endpoint.locality.as_ref().unwrap_or(&owner.locality),
        );
        // Most endpoints are where they were: no need to look for those.
        match before.get(index) {
            Some(member) if pool.hold_again(member.id, place, endpoint, mark) => {
                members.push(Member::new(member.id, endpoint));
            }
            _ => {
                let id = pool.find_or_add(owner.roster, endpoint);
                members.extend(hold(owner, endpoint, id, mark, pool));
            }
        }
    }
    members
}

/// Takes up an endpoint, unless the list with this mark has it: two entries for one address set are
/// one endpoint.
fn hold<T>(
    owner: &Owner,
    endpoint: &Endpoint,
    id: EndpointId,
    mark: u64,
    pool: &mut Pool<T>,
) -> Option<Member> {
    pool.mark(id, mark).then(|| {
        let member = Member::new(id, endpoint);
        pool.hold(id, (owner.leaf, member.locality(owner)), endpoint);
        member
    })
}

impl List {
    pub(super) fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (&'a Member, &'a Record<T>)> {
        self.members
            .iter()
            .filter_map(|member| Some((member, pool.get(member.id)?)))
    }

    pub(super) fn records<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = &'a Record<T>> {
        self.entries(pool).map(|(_, record)| record)
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

/// Why no endpoint of a leaf can take a call, by the failure that came last.
pub(super) fn describe(owner: &Owner, last_failure: Option<LastFailure<'_>>) -> String {
    let place = match &owner.locality {
        nowhere if *nowhere == LocalityId::default() => String::new(),
        locality => format!(" in {locality}"),
    };
    match last_failure {
        None => format!("no endpoints{place}"),
        Some((addresses, failed)) => format!(
            "no connection to any endpoint{place}; last error: {}: {}",
            AddressList(addresses),
            failed.reason,
        ),
    }
}

fn endpoint_tree<T>(
    view: &EndpointView,
    weight: NonZeroU64,
    record: &Record<T>,
    role: Option<TreeRole>,
) -> Tree {
    let failure = match &record.state {
        State::Failing(failed) => Some(failed.reason.clone()),
        State::Connecting | State::Idle(_) | State::Ready(_) => None,
    };
    let mut tree = Tree::endpoint(&view.addresses, weight)
        .with_state(view.state)
        .with_role(role)
        .with_note(failure);
    tree.endpoint = Some(view.id);
    tree.in_flight = Some(view.in_flight);
    tree.picks = Some(view.picks);
    tree
}
