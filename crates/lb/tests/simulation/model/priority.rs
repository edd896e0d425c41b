//! The model of `priority` (A56). It follows the algorithm of the gRFC sentence by sentence, so
//! that it can be compared with the text.

use std::{collections::BTreeMap, sync::Arc};

use crowfly_lb::{
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    Priority,
};

use super::{KEPT, Made, Position, Time};

const FAILOVER: Time = 10_000;

#[derive(Default)]
pub(crate) struct Priorities {
    plan: Option<Arc<Priority>>,
    made: Made,
    children: BTreeMap<Arc<str>, Child>,
    chosen: Option<Arc<str>>,
}

struct Child {
    position: Position,
    state: Connectivity,
    failover: Option<Time>,
    /// True if the child was READY or IDLE more recently than it failed.
    well: bool,
    kept: Option<Time>,
}

impl Priorities {
    /// A115: a child that left the plan goes at once, or is kept for as long as the plan says.
    pub(super) fn update(&mut self, plan: &Arc<Priority>, made: &Made, now: Time) {
        let keep = plan.keep_removed.as_millis() as Time;
        self.children.retain(|name, child| {
            match plan.children.iter().find(|next| next.name == *name) {
                Some(next) => child.position.update(&next.node, made, now),
                None => _ = child.kept.get_or_insert(now + keep),
            }
            keep > 0 || plan.children.iter().any(|next| next.name == *name)
        });
        self.plan = Some(plan.clone());
        self.made = made.clone();
    }

    pub(super) fn settle(&mut self, now: Time) {
        self.children
            .retain(|_, child| child.kept.is_none_or(|until| until > now));
        for name in self.in_order() {
            let child = self.children.get_mut(&name);
            child.expect("it is there").settle(now);
        }
        self.choose(now);
    }

    /// Those of the plan, the most preferred first, and then those that left it: where they have
    /// endpoints in common, it matters which of them connects one first.
    fn in_order(&self) -> Vec<Arc<str>> {
        let plan = self.plan.iter().flat_map(|plan| &plan.children);
        let plan: Vec<_> = plan.map(|next| next.name.clone()).collect();
        let others = self.children.keys().filter(|name| !plan.contains(name));
        let there = plan.iter().filter(|name| self.children.contains_key(*name));
        there.chain(others).cloned().collect()
    }

    /// "Algorithm for Choosing a Priority", sentence by sentence.
    fn choose(&mut self, now: Time) {
        let plan = self.plan.clone().expect("it has a plan");
        self.chosen = None;
        for (place, next) in plan.children.iter().enumerate() {
            let child = self.children.entry(next.name.clone());
            let child = child.or_insert_with(|| {
                let position = Position::create(&next.node, &self.made, now);
                Child::new(position, now)
            });
            child.kept = None;
            if let Ready | Idle = child.state {
                self.chosen = Some(next.name.clone());
                for lower in &plan.children[place + 1..] {
                    if let Some(lower) = self.children.get_mut(&lower.name) {
                        lower.kept.get_or_insert(now + KEPT);
                    }
                }
                return;
            }
            if child.failover.is_some() {
                self.chosen = Some(next.name.clone());
                return;
            }
        }
        let mut names = plan.children.iter().map(|next| &next.name);
        let connecting = names.find(|name| self.children[*name].state == Connecting);
        let last = plan.children.last().map(|next| &next.name);
        self.chosen = connecting.or(last).cloned();
    }

    pub(super) fn state(&self) -> Connectivity {
        let chosen = self.chosen.as_ref().map(|name| self.children[name].state);
        chosen.unwrap_or(TransientFailure)
    }

    pub(super) fn chosen(&self) -> Option<&Position> {
        self.child(self.chosen.as_ref()?)
    }

    pub(super) fn chosen_mut(&mut self) -> Option<&mut Position> {
        let child = self.children.get_mut(self.chosen.as_ref()?);
        child.map(|child| &mut child.position)
    }

    pub(super) fn child(&self, name: &str) -> Option<&Position> {
        self.children.get(name).map(|child| &child.position)
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = &Position> {
        self.children.values().map(|child| &child.position)
    }

    pub(super) fn timers(&self, into: &mut Vec<Time>) {
        for child in self.children.values() {
            into.extend(child.failover);
            into.extend(child.kept);
        }
    }
}

impl Child {
    fn new(position: Position, now: Time) -> Self {
        let mut child = Self {
            position,
            state: Connecting,
            failover: Some(now + FAILOVER),
            well: false,
            kept: None,
        };
        child.settle(now);
        child
    }

    fn settle(&mut self, now: Time) {
        self.position.settle(now);
        let before = std::mem::replace(&mut self.state, self.position.state());
        if self.state != Connecting {
            self.failover = None;
            self.well = self.state != TransientFailure;
        } else if before != Connecting && self.well {
            self.failover = Some(now + FAILOVER);
        }
        self.failover = self.failover.filter(|at| *at > now);
    }
}
