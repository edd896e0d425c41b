//! The states of all endpoints of a list.
//!
//! `ring_hash` and custom policies need them, because they may choose an endpoint that is not READY
//! and let the call wait for it.

use std::sync::Arc;

use super::members::{LastFailure, List, describe};
use crate::{
    Call, Connectivity, Pick,
    endpoint::{Owner, Pool, ReadyEndpoint, Seen, Wish},
};

/// One state per endpoint, in the order of the list.
#[derive(Debug)]
pub(crate) struct States<T> {
    pub(super) slots: Box<[Slot<T>]>,
    /// The number of endpoints in each state, in the order of [`Connectivity`].
    counts: [usize; 4],
    /// The reason why calls would fail, if any endpoint has failed.
    pub(super) why: Option<Arc<str>>,
}

/// The state of one endpoint, as a pick needs it.
#[derive(Debug)]
pub(super) enum Slot<T> {
    Connecting,
    Failing,
    Idle(Arc<Wish>),
    Ready(Arc<ReadyEndpoint<T>>),
}

impl<T> States<T> {
    pub(super) fn of(list: &List, owner: &Owner, pool: &Pool<T>) -> Self {
        let mut last_failure: Option<LastFailure<'_>> = None;
        let mut slots = Vec::with_capacity(list.held.members.len());
        slots.extend(
            list.held
                .entries(pool)
                .map(|(member, record)| match record.seen() {
                    Seen::Connecting => Slot::Connecting,
                    Seen::Failing(failed) => {
                        if last_failure.is_none_or(|(_, last)| last.at < failed.at) {
                            last_failure = Some((&record.addresses, failed));
                        }
                        Slot::Failing
                    }
                    Seen::Idle(wish) => Slot::Idle(wish.clone()),
                    Seen::Ready(ready) => {
                        Slot::Ready(ready.in_locality(member.locality(owner)).clone())
                    }
                }),
        );
        let mut counts = [0; 4];
        for slot in &slots {
            counts[slot.connectivity() as usize] += 1;
        }
        Self {
            slots: slots.into(),
            counts,
            why: last_failure.map(|last| describe(owner, Some(last)).into()),
        }
    }

    pub(super) fn count(&self, state: Connectivity) -> usize {
        self.counts[state as usize]
    }

    pub(super) fn first_idle(&self) -> Option<&Arc<Wish>> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Idle(wish) => Some(wish),
            Slot::Connecting | Slot::Failing | Slot::Ready(_) => None,
        })
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.why == other.why
            && self.slots.len() == other.slots.len()
            && self.slots.iter().zip(&other.slots).all(|(l, r)| l.same(r))
    }
}

impl<T> Slot<T> {
    pub(super) fn connectivity(&self) -> Connectivity {
        match self {
            Self::Connecting => Connectivity::Connecting,
            Self::Failing => Connectivity::TransientFailure,
            Self::Idle(_) => Connectivity::Idle,
            Self::Ready(_) => Connectivity::Ready,
        }
    }

    /// The outcome of a pick that must use this endpoint. A call waits for an endpoint that is failing.
    pub(super) fn pick(&self) -> Pick<T> {
        match self {
            Self::Connecting | Self::Failing => Pick::Queue,
            Self::Idle(wish) => wish.wait(),
            Self::Ready(endpoint) => Pick::Ready(Call::start(endpoint)),
        }
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Connecting, Self::Connecting) | (Self::Failing, Self::Failing) => true,
            (Self::Idle(left), Self::Idle(right)) => Arc::ptr_eq(left, right),
            (Self::Ready(left), Self::Ready(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}
