//! `priority` (A56): the first child that can take calls, the next ones only when it cannot.

use std::{sync::Arc, time::Instant};

use super::{Garden, Position};
use crate::{
    Connectivity, Tree,
    endpoint::Pool,
    leaf::{LeafId, Leaves},
    plan::{Priority, PriorityChild},
    timing::{FAILOVER_TIMEOUT, RETENTION},
    tree::PRIORITY,
};

/// A `priority` node: the children that were needed so far.
#[derive(Debug)]
pub(crate) struct Priorities {
    plan: Arc<Priority>,
    children: Vec<Child>,
    /// Where in the plan the child is that takes the calls.
    chosen: Option<usize>,
}

/// A child that was needed at least once.
#[derive(Debug)]
struct Child {
    name: Arc<str>,
    state: Connectivity,
    position: Position,
    /// While this lies ahead, the child is given the time to connect.
    failover_at: Option<Instant>,
    /// Whether it was READY or IDLE more recently than it failed.
    was_well: bool,
    /// It is not needed, and kept until then in case it is.
    kept_until: Option<Instant>,
}

impl Priorities {
    /// Children come with the first settling, as they are needed.
    pub(super) fn plant(plan: &Arc<Priority>) -> Self {
        Self {
            plan: plan.clone(),
            // Most trees need one.
            children: Vec::with_capacity(1),
            chosen: None,
        }
    }

    /// A child that is not in the plan any more is kept for as long as the plan says; it takes no
    /// calls.
    pub(super) fn update<T>(&mut self, plan: &Arc<Priority>, garden: &mut Garden<'_, T>) {
        if Arc::ptr_eq(&self.plan, plan) {
            return;
        }
        self.plan = plan.clone();
        self.chosen = None;
        let planned = |child: &Child| plan.children.iter().find(|next| next.name == child.name);
        if plan.keep_removed.is_zero() {
            let removed = self
                .children
                .extract_if(.., |child| planned(child).is_none());
            removed.for_each(|child| child.position.fell(garden));
        }
        for child in &mut self.children {
            match planned(child) {
                Some(next) => child.update(next, garden),
                None => child.keep_until(garden.now + plan.keep_removed),
            }
        }
    }

    pub(super) fn settle<T>(&mut self, garden: &mut Garden<'_, T>) {
        let now = garden.now;
        let is_over = |child: &mut Child| child.kept_until.is_some_and(|until| until <= now);
        let over = self.children.extract_if(.., is_over);
        over.for_each(|child| child.position.fell(garden));
        for child in &mut self.children {
            let next = self.plan.children.iter().find(|c| c.name == child.name);
            child.settle(next, garden);
        }
        self.choose(garden);
        for child in &self.children {
            let times = [child.failover_at, child.kept_until];
            for at in times.into_iter().flatten() {
                garden.wake_at(at);
            }
        }
    }

    pub(super) fn state(&self) -> Connectivity {
        let chosen = self.chosen_child();
        chosen.map_or(Connectivity::TransientFailure, |child| child.state)
    }

    /// The child that takes the calls; `None` if the plan has none.
    pub(crate) fn chosen(&self) -> Option<&Position> {
        self.chosen_child().map(|child| &child.position)
    }

    /// What is wrong with every child, since the calls would have gone to any of them.
    pub(crate) fn why<T>(&self, leaves: &Leaves<T>) -> Arc<str> {
        let children = self.plan.children.iter();
        let children = children.filter_map(|next| self.child(&next.name));
        let mut whys: Vec<Arc<str>> = children
            .map(|child| child.position.current().why(leaves))
            .collect();
        whys.dedup();
        match whys.as_slice() {
            [] => "priority policy has empty priority list".into(),
            [only] => only.clone(),
            whys => whys.join("; ").into(),
        }
    }

    pub(super) fn exit_idle<T>(&self, garden: &mut Garden<'_, T>) {
        if let Some(chosen) = self.chosen() {
            chosen.current().exit_idle(garden);
        }
    }

    pub(super) fn each_leaf(&self, visit: &mut impl FnMut(LeafId)) {
        for child in &self.children {
            child.position.each_leaf(visit);
        }
    }

    pub(super) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let mut trees = Vec::new();
        for (index, next) in self.plan.children.iter().enumerate() {
            trees.push(match self.child(&next.name) {
                Some(child) => child.tree(self.chosen == Some(index), leaves, pool),
                None => Tree::new(&*next.name, vec![]).with_note(Some("not needed yet".into())),
            });
        }
        let planned = |child: &Child| self.plan.children.iter().any(|c| c.name == child.name);
        let removed = self.children.iter().filter(|child| !planned(child));
        trees.extend(removed.map(|child| child.tree(false, leaves, pool)));
        Tree::new(PRIORITY, trees).with_state(self.state())
    }

    /// The algorithm of A56: it creates children until one of them will do. Run again on the same
    /// states it chooses the same.
    fn choose<T>(&mut self, garden: &mut Garden<'_, T>) {
        let plan = self.plan.clone();
        self.chosen = None;
        for (index, next) in plan.children.iter().enumerate() {
            let child = self.need(next, garden);
            if let Connectivity::Ready | Connectivity::Idle = child.state {
                self.chosen = Some(index);
                return self.deactivate_below(index, garden.now);
            }
            if child.failover_at.is_some() {
                self.chosen = Some(index);
                return;
            }
        }
        let connecting = |next: &PriorityChild| {
            let state = self.child(&next.name).map(|child| child.state);
            state == Some(Connectivity::Connecting)
        };
        let first_connecting = plan.children.iter().position(connecting);
        self.chosen = first_connecting.or_else(|| plan.children.len().checked_sub(1));
    }

    /// The child of the plan, which is created if this is the first time that it is needed.
    fn need<T>(&mut self, next: &PriorityChild, garden: &mut Garden<'_, T>) -> &Child {
        let known = self.children.iter().position(|c| c.name == next.name);
        let index = known.unwrap_or_else(|| {
            let mut child = Child::plant(next, garden);
            child.settle(Some(next), garden);
            self.children.push(child);
            self.children.len() - 1
        });
        let child = &mut self.children[index];
        child.kept_until = None;
        child
    }

    fn deactivate_below(&mut self, chosen: usize, now: Instant) {
        for next in &self.plan.children[chosen + 1..] {
            let mut children = self.children.iter_mut();
            if let Some(child) = children.find(|child| child.name == next.name) {
                child.keep_until(now + RETENTION);
            }
        }
    }

    fn chosen_child(&self) -> Option<&Child> {
        let next = self.plan.children.get(self.chosen?)?;
        self.child(&next.name)
    }

    fn child(&self, name: &str) -> Option<&Child> {
        self.children.iter().find(|child| &*child.name == name)
    }
}

impl Child {
    fn plant<T>(next: &PriorityChild, garden: &mut Garden<'_, T>) -> Self {
        let ignore = next.ignore_reresolution;
        let position = garden.within(
            |place| place.ignores_reresolution |= ignore,
            |garden| Position::plant(&next.node, garden),
        );
        Self {
            name: next.name.clone(),
            state: Connectivity::Connecting,
            position,
            failover_at: Some(garden.now + FAILOVER_TIMEOUT),
            was_well: false,
            kept_until: None,
        }
    }

    fn update<T>(&mut self, next: &PriorityChild, garden: &mut Garden<'_, T>) {
        let ignore = next.ignore_reresolution;
        garden.within(
            |place| place.ignores_reresolution |= ignore,
            |garden| self.position.update(&next.node, garden),
        );
    }

    /// Takes over the state of what is below, and starts and stops the failover timer by it.
    fn settle<T>(&mut self, next: Option<&PriorityChild>, garden: &mut Garden<'_, T>) {
        let ignore = next.is_some_and(|next| next.ignore_reresolution);
        garden.within(
            |place| place.ignores_reresolution |= ignore,
            |garden| self.position.settle(garden),
        );
        let state = self.position.state(garden.leaves);
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
            // A child that keeps saying so gets no more time.
            Connectivity::Connecting if before != state && self.was_well => {
                self.failover_at = Some(garden.now + FAILOVER_TIMEOUT);
            }
            Connectivity::Connecting => {}
        }
        self.failover_at.take_if(|at| *at <= garden.now);
    }

    fn keep_until(&mut self, until: Instant) {
        self.kept_until.get_or_insert(until);
    }

    fn tree<T>(&self, chosen: bool, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let too_long = self.state == Connectivity::Connecting && self.failover_at.is_none();
        let note = match (chosen, self.kept_until) {
            (true, _) if too_long => Some("in use, took too long".into()),
            (true, _) => Some("in use".into()),
            (false, Some(_)) => Some("kept in case it is needed".into()),
            (false, None) => too_long.then(|| "took too long".into()),
        };
        Tree::new(&*self.name, self.position.trees(leaves, pool))
            .with_state(self.state)
            .with_note(note)
    }
}
