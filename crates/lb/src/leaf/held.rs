//! The endpoints that one list of a leaf holds.
//!
//! A list of thousands mostly differs from the one before it in a few endpoints. So an endpoint
//! that both lists have at the same place is *carried over*: it is held once for both lists. Its
//! record is not read here, because the next picker reads all records, and a second reading would double the cost.

use std::{num::NonZeroU64, sync::Arc};

use crate::{
    EndpointId, LocalityId,
    endpoint::{Owner, Pool, Record},
    plan::Endpoint,
};

/// The endpoints of a list, in the order of the plan.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) members: Vec<Member>,
    /// The plan, if it has one endpoint for each member. It has more if an address set comes twice.
    plan: Option<Arc<[Endpoint]>>,
}

/// An endpoint of the cluster's roster, with the locality and the weight that this list gives it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: EndpointId,
    /// `None` for the locality of the leaf. A plan makes a list of thousands, and most need no copy of it.
    locality: Option<LocalityId>,
    pub(super) weight: NonZeroU64,
}

impl Member {
    pub(super) fn new(id: EndpointId, endpoint: &Endpoint) -> Self {
        Self {
            id,
            locality: endpoint.locality.clone(),
            weight: endpoint.weight,
        }
    }

    /// Returns whether both are one endpoint in one locality.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.locality == other.locality
    }

    pub(super) fn locality<'a>(&'a self, owner: &'a Owner) -> &'a LocalityId {
        self.locality.as_ref().unwrap_or(&owner.locality)
    }
}

impl Held {
    /// Holds the endpoints of a plan, apart from those that `in_use` carries over. `newest` is the list
    /// that is likely to have most of them at the same places.
    pub(super) fn hold<T>(
        owner: &Owner,
        plan: &Arc<[Endpoint]>,
        newest: &Self,
        in_use: &Self,
        pool: &mut Pool<T>,
    ) -> Self {
        let members = find_all(owner, plan, newest, pool);
        for member in not_carried(&members, in_use) {
            pool.hold(member.id, (owner.leaf, member.locality(owner)));
        }
        let is_aligned = members.len() == plan.len();
        Self {
            members,
            plan: is_aligned.then(|| plan.clone()),
        }
    }

    /// Lets go of the endpoints, apart from those that are carried over from or to `other`. Returns the
    /// number of those that were let go.
    pub(super) fn let_go<T>(self, owner: &Owner, other: &Self, pool: &mut Pool<T>) -> usize {
        let mut gone = 0;
        for member in not_carried(&self.members, other) {
            gone += 1;
            pool.let_go(member.id, (owner.leaf, member.locality(owner)));
        }
        gone
    }

    /// The members that the list does not carry over from or to `other`.
    pub(super) fn not_carried<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Member> {
        not_carried(&self.members, other)
    }

    /// Holds the endpoints of a plan in place of these. Returns the number of those that were let go.
    pub(super) fn replace<T>(
        &mut self,
        owner: &Owner,
        plan: &Arc<[Endpoint]>,
        pool: &mut Pool<T>,
    ) -> usize {
        let mut added = Vec::new();
        let mut may_repeat = self.plan.is_none();
        for (index, endpoint) in plan.iter().enumerate() {
            if !self.has(index, endpoint) {
                let (id, is_new) = pool.find_or_add(owner.roster, endpoint);
                may_repeat |= !is_new;
                added.push((index, Member::new(id, endpoint)));
            }
        }
        if may_repeat {
            let next = Self::hold(owner, plan, self, self, pool);
            let before = std::mem::replace(self, next);
            return before.let_go(owner, self, pool);
        }
        // Most endpoints stay, and a list that is changed in place costs less than a new one.
        let mut gone = Self::default();
        for (index, member) in added {
            pool.hold(member.id, (owner.leaf, member.locality(owner)));
            match self.members.get_mut(index) {
                Some(place) => gone.members.push(std::mem::replace(place, member)),
                None => self.members.push(member),
            }
        }
        gone.members.extend(self.members.drain(plan.len()..));
        self.plan = Some(plan.clone());
        gone.let_go(owner, &Self::default(), pool)
    }

    /// Returns whether the list has the endpoint at this index, with the same weight and locality.
    fn has(&self, index: usize, endpoint: &Endpoint) -> bool {
        let member = self.members.get(index);
        let is_as_planned = member.is_some_and(|member| {
            member.weight == endpoint.weight && member.locality == endpoint.locality
        });
        is_as_planned && self.has_planned(index, endpoint)
    }

    pub(super) fn entries<'a, T>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (&'a Member, &'a Record<T>)> {
        self.members
            .iter()
            .filter_map(|member| Some((member, pool.get(member.id)?)))
    }

    /// Returns whether the plan of the list has this endpoint at this index, with the same health.
    fn has_planned(&self, index: usize, endpoint: &Endpoint) -> bool {
        let planned = self.plan.as_ref().and_then(|plan| plan.get(index));
        planned.is_some_and(|planned| {
            let (before, now) = (planned.addresses(), endpoint.addresses());
            planned.health == endpoint.health && (Arc::ptr_eq(before, now) || before == now)
        })
    }
}

/// The members that `other` does not have at the same place.
fn not_carried<'a>(members: &'a [Member], other: &'a Held) -> impl Iterator<Item = &'a Member> {
    let (both, rest) = members.split_at(members.len().min(other.members.len()));
    let differing = both.iter().zip(&other.members);
    let differing = differing.filter(|(left, right)| !left.is(right));
    differing.map(|(left, _)| left).chain(rest)
}

/// Finds the endpoints of a plan in the roster, or adds them. Two entries for one address set are one
/// endpoint.
fn find_all<T>(owner: &Owner, plan: &[Endpoint], newest: &Held, pool: &mut Pool<T>) -> Vec<Member> {
    let mut members = Vec::with_capacity(plan.len());
    let mut may_repeat = false;
    for (index, endpoint) in plan.iter().enumerate() {
        let id = match newest.members.get(index) {
            Some(member) if newest.has_planned(index, endpoint) => member.id,
            _ => {
                let (id, is_new) = pool.find_or_add(owner.roster, endpoint);
                may_repeat |= !is_new;
                id
            }
        };
        members.push(Member::new(id, endpoint));
    }
    if may_repeat {
        let mark = pool.next_mark();
        let mut planned = plan.iter();
        members.retain(|member| {
            let endpoint = planned.next();
            endpoint.is_some_and(|endpoint| pool.list(member.id, endpoint, mark))
        });
    }
    members
}
