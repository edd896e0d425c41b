//! `least_request` (A48): of a few random endpoints, the one with the fewest open calls.
//!
//! Connections and lists are those of `round_robin`; only the choice differs. Two picks at the same
//! moment may see the same counts: the counts are a hint, and a lock would cost more than it gives.

use std::sync::Arc;

use super::{LeafChoice, Outcome, members::Members, round_robin, round_robin::ReadyList};
use crate::{
    CallContext, Connectivity,
    endpoint::{Owner, Pool, ReadyEndpoint},
    plan::ChoiceCount,
};

/// Connects what is IDLE, swaps the lists if it is time, and compiles the one in use.
pub(super) fn refresh<T>(
    choices: ChoiceCount,
    members: &mut Members,
    owner: &Owner,
    pool: &mut Pool<T>,
) -> Outcome<T> {
    let ready = round_robin::refresh_ready(members, owner, pool);
    ready.map_or_else(
        |outcome| outcome,
        |list| Outcome {
            state: Connectivity::Ready,
            choice: LeafChoice::LeastRequest(Arc::new(LeastRequest { list, choices })),
        },
    )
}

/// The endpoints of a list that can take calls, and how many of them are compared.
#[derive(Debug)]
pub(crate) struct LeastRequest<T> {
    pub(super) list: ReadyList<T>,
    choices: ChoiceCount,
}

impl<T> LeastRequest<T> {
    /// The less busy one of some random endpoints; the first of them, if they are equally busy.
    pub(super) fn choose(&self, cx: &CallContext) -> &Arc<ReadyEndpoint<T>> {
        let mut best = self.list.at(cx.random());
        let mut fewest = best.in_flight();
        for _ in 1..self.choices.get() {
            let candidate = self.list.at(cx.random());
            let open = candidate.in_flight();
            if open < fewest {
                (best, fewest) = (candidate, open);
            }
        }
        best
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.choices == other.choices && self.list.same(&other.list)
    }
}
