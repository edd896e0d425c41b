//! `xds_wrr_locality` with `weighted_target` below it: a random locality, by weight.
//!
//! The two gRPC policies are one node here, because the first only turns the weights of EDS into
//! the configuration of the second.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Instant};

use super::{NodeContext, Position, agenda::NodeId};
use crate::{
    Connectivity, LocalityId, Tree, TreeRole,
    endpoint::Pool,
    leaf::{LeafId, Leaves},
    plan::{Endpoint, Locality},
    timing::RETENTION,
};

/// The localities of one priority.
#[derive(Debug)]
pub(crate) struct Localities {
    id: NodeId,
    plan: Arc<[Locality]>,
    pub(crate) children: Vec<LocalityChild>,
    /// The time at which the next locality that is kept must be removed.
    alarm: Option<Instant>,
}

/// A locality with its share.
#[derive(Debug)]
pub(crate) struct LocalityChild {
    id: LocalityId,
    pub(crate) share: Share,
    /// The state that the locality counts with. A locality that failed counts as failing until it
    /// is READY.
    pub(crate) state: Connectivity,
    pub(crate) position: Position,
}

/// The share of the calls that a locality gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// No calls, because the locality left the plan. It is kept until this time, because it may
    /// come back.
    KeptUntil(Instant),
    Weight(NonZeroU32),
}

impl Localities {
    pub(super) fn create<T>(plan: &Arc<[Locality]>, cx: &mut NodeContext<'_, T>) -> Self {
        let mut localities = Self {
            id: cx.agenda.add(cx.place.child),
            plan: Arc::default(),
            children: Vec::new(),
            alarm: None,
        };
        localities.update(plan, cx);
        localities
    }

    /// Localities that stay keep their state, in the order of the plan; those that left come last.
    pub(super) fn update<T>(&mut self, plan: &Arc<[Locality]>, cx: &mut NodeContext<'_, T>) {
        if Arc::ptr_eq(&self.plan, plan) {
            return;
        }
        self.plan = plan.clone();
        let known = self.children.drain(..);
        let mut known: HashMap<LocalityId, LocalityChild> =
            known.map(|child| (child.id.clone(), child)).collect();
        self.children.reserve_exact(plan.len());
        for locality in plan.iter() {
            let id = locality.id.clone();
            let child = known.remove(&locality.id);
            let child = cx.within(
                |place| place.locality = id,
                |cx| LocalityChild::follow(child, locality, cx),
            );
            self.children.push(child);
        }
        let mut left: Vec<_> = known.into_values().collect();
        left.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        for child in &mut left {
            if let Share::Weight(_) = child.share {
                child.share = Share::KeptUntil(cx.now + RETENTION);
            }
        }
        self.children.append(&mut left);
    }

    pub(super) fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        let now = cx.now;
        let is_over =
            |child: &mut LocalityChild| matches!(child.share, Share::KeptUntil(at) if at <= now);
        let over = self.children.extract_if(.., is_over);
        over.for_each(|child| child.position.remove(cx));
        let mut next = None;
        for child in &mut self.children {
            if let Share::KeptUntil(until) = child.share {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
            let id = child.id.clone();
            cx.within(|place| place.locality = id, |cx| child.settle(cx));
        }
        let agenda = &mut cx.agenda;
        agenda.set_alarm(self.id, None, &mut self.alarm, next);
    }

    pub(super) fn remove<T>(mut self, cx: &mut NodeContext<'_, T>) {
        let agenda = &mut cx.agenda;
        agenda.set_alarm(self.id, None, &mut self.alarm, None);
        agenda.remove(self.id);
        for child in self.children {
            child.position.remove(cx);
        }
    }

    pub(crate) fn state(&self) -> Connectivity {
        Connectivity::aggregate(self.weighted().map(|(_, child)| child.state))
    }

    /// The localities that calls can go to, with their weights.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (NonZeroU32, &LocalityChild)> {
        self.children.iter().filter_map(|child| match child.share {
            Share::KeptUntil(_) => None,
            Share::Weight(weight) => Some((weight, child)),
        })
    }

    pub(super) fn why<T>(&self, leaves: &Leaves<T>) -> Arc<str> {
        let children: Vec<_> = self.weighted().map(|(_, child)| child).collect();
        let fails = |child: &&&LocalityChild| {
            child.position.state(leaves) == Connectivity::TransientFailure
        };
        let told = children.iter().find(fails).or_else(|| children.first());
        let Some(told) = told else {
            return "no endpoints".into();
        };
        let why = told.position.current().why(leaves);
        match children.len() - 1 {
            0 => why,
            1 => format!("{why} (and 1 more locality)").into(),
            others => format!("{why} (and {others} more localities)").into(),
        }
    }

    pub(super) fn each_leaf(&self, visit: &mut impl FnMut(LeafId)) {
        for child in &self.children {
            child.position.each_leaf(visit);
        }
    }

    /// Calls `visit` with the endpoints of the plan that no leaf holds.
    pub(super) fn each_unheld<T>(&self, leaves: &Leaves<T>, visit: &mut dyn FnMut(&Endpoint)) {
        for (_, child) in self.weighted() {
            child.position.each_unheld(leaves, visit);
        }
    }

    pub(super) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let children = self.children.iter();
        let children = children.map(|child| child.tree(leaves, pool)).collect();
        Tree::localities()
            .with_state(self.state())
            .with_children(children)
    }
}

impl LocalityChild {
    /// The child that follows `locality`: the one there is, or a new one.
    fn follow<T>(known: Option<Self>, locality: &Locality, cx: &mut NodeContext<'_, T>) -> Self {
        let share = Share::Weight(locality.weight);
        match known {
            Some(mut child) => {
                child.share = share;
                child.position.update(&locality.child, cx);
                child
            }
            None => Self {
                id: locality.id.clone(),
                share,
                state: Connectivity::Connecting,
                position: Position::create(&locality.child, cx),
            },
        }
    }

    fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        self.position.settle(cx);
        // An IDLE locality connects at once, because no call could ask for it: calls go to READY
        // localities only. This includes one that counts as failing, which would otherwise count so
        // for ever.
        if self.position.state(cx.leaves) == Connectivity::Idle {
            self.position.current().exit_idle(cx);
        }
        self.state = self.state.sticky(self.position.state(cx.leaves));
    }

    fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let (weight, role) = match self.share {
            Share::KeptUntil(_) => (None, Some(TreeRole::Kept)),
            Share::Weight(weight) => (Some(weight.get()), None),
        };
        Tree::locality(&self.id)
            .with_weight(weight)
            .with_state(self.state)
            .with_role(role)
            .with_children(self.position.trees(leaves, pool))
    }
}
