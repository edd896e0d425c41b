//! One child of a `priority` node: its state, its failover timer and its marks. It is apart from
//! the choice among children (A56), because the timers of a child concern no other child.

use std::{sync::Arc, time::Instant};

use super::super::{NodeContext, Position, agenda::ChildId};
use crate::{
    Connectivity, Tree, TreeRole, endpoint::Pool, leaf::Leaves, plan::PriorityChild,
    timing::FAILOVER_TIMEOUT,
};

/// The place has no child yet, or one that can take calls or has time left to connect.
pub(super) const HOPEFUL: u8 = 1;
/// The child is CONNECTING.
pub(super) const CONNECTING: u8 = 2;
/// There is a child, and it is needed.
pub(super) const NEEDED: u8 = 4;
/// There is a child, and it is kept in case it is needed.
pub(super) const KEPT: u8 = 8;

/// A child that was needed at least once.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) id: ChildId,
    pub(super) name: Arc<str>,
    /// The place of the child in the plan; `None` if it left the plan.
    pub(super) place: Option<usize>,
    pub(super) state: Connectivity,
    pub(super) position: Position,
    /// The end of the time that the child has to connect; `None` if the failover timer does not
    /// run.
    failover_at: Option<Instant>,
    /// True if the child was READY or IDLE more recently than it failed. Only such a child gets a
    /// new failover timer when it is CONNECTING again (A56).
    was_well: bool,
    /// The time at which the child is removed, because it is not needed now; `None` while it is
    /// needed.
    pub(super) kept_until: Option<Instant>,
    /// The time at which the child must be settled even if nothing happens.
    alarm: Option<Instant>,
}

impl Child {
    pub(super) fn create<T>(
        id: ChildId,
        place: usize,
        next: &PriorityChild,
        cx: &mut NodeContext<'_, T>,
    ) -> Self {
        let position = cx.within(
            |place| place.enter(id, next.ignore_reresolution),
            |cx| Position::create(&next.node, cx),
        );
        Self {
            id,
            name: next.name.clone(),
            place: Some(place),
            state: Connectivity::Connecting,
            position,
            failover_at: Some(cx.now + FAILOVER_TIMEOUT),
            was_well: false,
            kept_until: None,
            alarm: None,
        }
    }

    pub(super) fn update<T>(&mut self, next: &PriorityChild, cx: &mut NodeContext<'_, T>) {
        cx.within(
            |place| place.enter(self.id, next.ignore_reresolution),
            |cx| self.position.update(&next.node, cx),
        );
    }

    /// Takes over the state of what is below, and starts and stops the failover timer by it.
    pub(super) fn settle<T>(&mut self, next: Option<&PriorityChild>, cx: &mut NodeContext<'_, T>) {
        let ignore = next.is_some_and(|next| next.ignore_reresolution);
        cx.within(
            |place| place.enter(self.id, ignore),
            |cx| self.position.settle(cx),
        );
        let state = self.position.state(cx.leaves);
        let before = std::mem::replace(&mut self.state, state);
        match state {
            Connectivity::Ready | Connectivity::Idle => {
                self.was_well = true;
                self.failover_at = None;
            }
            Connectivity::TransientFailure => {
                self.was_well = false;
                self.failover_at = None;
            }
            // A child that stays CONNECTING gets no more time.
            Connectivity::Connecting if before != state && self.was_well => {
                self.failover_at = Some(cx.now + FAILOVER_TIMEOUT);
            }
            Connectivity::Connecting => {}
        }
        self.failover_at.take_if(|at| *at <= cx.now);
        self.set_alarm(cx);
    }

    pub(super) fn set_alarm<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        let times = [self.failover_at, self.kept_until];
        let at = times.into_iter().flatten().min();
        self.move_alarm(at, cx);
    }

    pub(super) fn move_alarm<T>(&mut self, at: Option<Instant>, cx: &mut NodeContext<'_, T>) {
        let ChildId { node, key } = self.id;
        let agenda = &mut cx.agenda;
        agenda.set_alarm(node, Some(key), &mut self.alarm, at);
    }

    /// Returns whether the child takes calls. An IDLE child counts, because it connects when a call
    /// comes.
    pub(super) fn is_well(&self) -> bool {
        matches!(self.state, Connectivity::Ready | Connectivity::Idle)
    }

    /// The marks of this child, by which the choice of A56 finds it.
    pub(super) fn marks(&self) -> u8 {
        let mut marks = match self.kept_until {
            Some(_) => KEPT,
            None => NEEDED,
        };
        if self.is_well() || self.failover_at.is_some() {
            marks |= HOPEFUL;
        }
        if self.state == Connectivity::Connecting {
            marks |= CONNECTING;
        }
        marks
    }

    pub(super) fn keep_until(&mut self, until: Instant) {
        self.kept_until.get_or_insert(until);
    }

    pub(super) fn tree<T>(&self, chosen: bool, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let role = match (chosen, self.kept_until) {
            (true, _) => Some(TreeRole::InUse),
            (false, Some(_)) => Some(TreeRole::Kept),
            (false, None) => None,
        };
        let mut tree = Tree::priority_child(&self.name)
            .with_state(self.state)
            .with_role(role)
            .with_children(self.position.trees(leaves, pool));
        tree.failover_timer_expired =
            self.state == Connectivity::Connecting && self.failover_at.is_none();
        tree
    }
}
