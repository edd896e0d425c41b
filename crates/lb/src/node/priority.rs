//! `priority` (A56): the first child that can take calls, the next ones only when it cannot.
//!
//! No step looks at all children, because there may be thousands. Only the children in which
//! something happened are settled. [`Marks`] find the next child that fits a condition of A56.

mod child;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use smallvec::SmallVec;

use self::child::{CONNECTING, Child, HOPEFUL, KEPT, NEEDED};
use super::{
    NodeContext, Position,
    agenda::{ChildId, NodeId},
};
use crate::{
    Connectivity, Tree, TreeRole,
    endpoint::Pool,
    leaf::{LeafId, Leaves},
    math::Marks,
    plan::{Endpoint, Priority},
    slots::{Key, Slots},
    timing::RETENTION,
};

/// The most children whose failures are named in the text of a failed call.
const TOLD: usize = 8;

/// A `priority` node: the children that were needed so far.
#[derive(Debug)]
pub(crate) struct Priorities {
    id: NodeId,
    plan: Arc<Priority>,
    children: Slots<Child>,
    /// The child in each place of the plan, once it was needed.
    places: Box<[Option<Key>]>,
    marks: Marks,
    /// The place in the plan of the child that takes the calls.
    chosen: Option<usize>,
}

impl Priorities {
    /// Children come with the first settling, as they are needed.
    pub(super) fn create<T>(plan: &Arc<Priority>, cx: &mut NodeContext<'_, T>) -> Self {
        let mut priorities = Self {
            id: cx.agenda.add(cx.place.child),
            plan: plan.clone(),
            children: Slots::new(),
            places: Box::default(),
            marks: Marks::default(),
            chosen: None,
        };
        priorities.arrange();
        priorities
    }

    /// A child that is not in the plan any more is kept for as long as the plan says; it takes no
    /// calls.
    pub(super) fn update<T>(&mut self, plan: &Arc<Priority>, cx: &mut NodeContext<'_, T>) {
        if Arc::ptr_eq(&self.plan, plan) {
            return;
        }
        self.plan = plan.clone();
        self.chosen = None;
        let places = plan.children.iter().enumerate();
        let places: HashMap<&str, usize> =
            places.map(|(place, next)| (&*next.name, place)).collect();
        let mut removed = Vec::new();
        for child in self.children.iter_mut() {
            child.place = places.get(&*child.name).copied();
            match child.place {
                Some(place) => child.update(&plan.children[place], cx),
                None if plan.keep_removed.is_zero() => removed.push(child.id.key),
                None => child.keep_until(cx.now + plan.keep_removed),
            }
            cx.agenda.touch(Some(child.id));
        }
        for key in removed {
            self.remove_child(key, cx);
        }
        self.arrange();
    }

    /// Finds the children of the plan, and what A56 may ask of them.
    fn arrange(&mut self) {
        let count = self.plan.children.len();
        self.marks = Marks::new(count);
        let mut places = vec![None; count];
        for child in self.children.iter() {
            if let Some(place) = child.place {
                places[place] = Some(child.id.key);
            }
        }
        self.places = places.into();
        for place in 0..count {
            self.mark(place);
        }
    }

    pub(super) fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        for key in self.in_order(cx.agenda.take_due(self.id)) {
            let Some(child) = self.children.get_mut(key) else {
                continue;
            };
            let place = child.place;
            if child.kept_until.is_some_and(|until| until <= cx.now) {
                self.remove_child(key, cx);
            } else {
                let next = place.and_then(|place| self.plan.children.get(place));
                child.settle(next, cx);
            }
            if let Some(place) = place {
                self.mark(place);
            }
        }
        self.choose(cx);
    }

    /// Sorts children by preference, with those that left the plan last. The order matters, because
    /// children may share an endpoint, and the first of them connects it.
    fn in_order(&self, keys: BTreeSet<Key>) -> SmallVec<[Key; 2]> {
        let mut keys: SmallVec<_> = keys.into_iter().collect();
        keys.sort_by_key(|key| {
            let child = self.children.get(*key);
            child.map(|child| (child.place.unwrap_or(usize::MAX), child.name.clone()))
        });
        keys
    }

    pub(super) fn state(&self) -> Connectivity {
        let chosen = self.chosen_child();
        chosen.map_or(Connectivity::TransientFailure, |child| child.state)
    }

    /// The child that takes the calls; `None` if the plan has none.
    pub(crate) fn chosen(&self) -> Option<&Position> {
        self.chosen_child().map(|child| &child.position)
    }

    /// Says why the children fail. Several are named, because calls would have gone to any of them.
    /// At most [`TOLD`] are, because the text is made again with every failure and there may be
    /// thousands.
    pub(crate) fn why<T>(&self, leaves: &Leaves<T>) -> Arc<str> {
        let children = (0..self.places.len().min(TOLD)).filter_map(|place| self.child(place));
        let mut whys: Vec<Arc<str>> = children
            .map(|child| child.position.current().why(leaves))
            .collect();
        whys.dedup();
        let why = match whys.as_slice() {
            [] => "priority policy has empty priority list".into(),
            [only] => only.clone(),
            whys => whys.join("; ").into(),
        };
        match self.places.len().saturating_sub(TOLD) {
            0 => why,
            others => format!("{why}; and {others} more").into(),
        }
    }

    pub(super) fn exit_idle<T>(&self, cx: &mut NodeContext<'_, T>) {
        if let Some(chosen) = self.chosen() {
            chosen.current().exit_idle(cx);
        }
    }

    pub(super) fn each_leaf(&self, visit: &mut impl FnMut(LeafId)) {
        for child in self.children.iter() {
            child.position.each_leaf(visit);
        }
    }

    /// Calls `visit` with the endpoints of the plan that no leaf holds: mostly those of children that
    /// were not needed.
    pub(super) fn each_unheld<T>(&self, leaves: &Leaves<T>, visit: &mut dyn FnMut(&Endpoint)) {
        for (place, next) in self.plan.children.iter().enumerate() {
            match self.child(place) {
                Some(child) => child.position.each_unheld(leaves, visit),
                None => next.node.each_endpoint(visit),
            }
        }
    }

    pub(super) fn remove<T>(mut self, cx: &mut NodeContext<'_, T>) {
        let keys: Vec<Key> = self.children.iter().map(|child| child.id.key).collect();
        for key in keys {
            self.remove_child(key, cx);
        }
        cx.agenda.remove(self.id);
    }

    pub(super) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        let mut trees = Vec::new();
        for (place, next) in self.plan.children.iter().enumerate() {
            trees.push(match self.child(place) {
                Some(child) => child.tree(self.chosen == Some(place), leaves, pool),
                None => Tree::priority_child(&next.name).with_role(Some(TreeRole::NotNeeded)),
            });
        }
        let removed = self.children.iter().filter(|child| child.place.is_none());
        trees.extend(removed.map(|child| child.tree(false, leaves, pool)));
        Tree::priority()
            .with_state(self.state())
            .with_children(trees)
    }

    /// The algorithm of A56: it creates children until one of them can take calls or has time left
    /// to connect. Run again on the same states, it chooses the same child.
    fn choose<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        self.chosen = None;
        while let Some(place) = self.marks.first(0, HOPEFUL) {
            let Some(child) = self.child(place) else {
                self.create_child(place, cx);
                continue;
            };
            let is_well = child.is_well();
            self.chosen = Some(place);
            self.need_up_to(place, cx);
            if is_well {
                self.deactivate_below(place, cx);
            }
            return;
        }
        // Every child exists, and none of them can take calls or has time left to connect.
        let Some(last) = self.places.len().checked_sub(1) else {
            return;
        };
        self.need_up_to(last, cx);
        self.chosen = self.marks.first(0, CONNECTING).or(Some(last));
    }

    /// Creates the child of a place, which is needed for the first time.
    fn create_child<T>(&mut self, place: usize, cx: &mut NodeContext<'_, T>) {
        let next = &self.plan.children[place];
        let node = self.id;
        let key = self.children.insert_with(|key| {
            let id = ChildId { node, key };
            let mut child = Child::create(id, place, next, cx);
            child.settle(Some(next), cx);
            child
        });
        self.places[place] = Some(key);
        self.mark(place);
    }

    /// The children up to this place that were kept in case they are needed are needed now.
    fn need_up_to<T>(&mut self, last: usize, cx: &mut NodeContext<'_, T>) {
        while let Some(place) = self.marks.first(0, KEPT).filter(|place| *place <= last) {
            self.change(place, cx, |child| child.kept_until = None);
        }
    }

    /// The children below the chosen one are kept for a while, because they may be needed again (A56).
    fn deactivate_below<T>(&mut self, chosen: usize, cx: &mut NodeContext<'_, T>) {
        let until = cx.now + RETENTION;
        while let Some(place) = self.marks.first(chosen + 1, NEEDED) {
            self.change(place, cx, |child| child.keep_until(until));
        }
    }

    /// Changes the child of a place, and marks it anew.
    fn change<T>(
        &mut self,
        place: usize,
        cx: &mut NodeContext<'_, T>,
        change: impl FnOnce(&mut Child),
    ) {
        cx.agenda.steps += 1;
        let key = self.places.get(place).copied().flatten();
        if let Some(child) = key.and_then(|key| self.children.get_mut(key)) {
            change(child);
            child.set_alarm(cx);
        }
        self.mark(place);
    }

    /// Notes what A56 may ask of the child of a place.
    fn mark(&mut self, place: usize) {
        let marks = self.child(place).map_or(HOPEFUL, Child::marks);
        self.marks.set(place, marks);
    }

    fn remove_child<T>(&mut self, key: Key, cx: &mut NodeContext<'_, T>) {
        let Some(mut child) = self.children.remove(key) else {
            return;
        };
        if let Some(place) = child.place.and_then(|place| self.places.get_mut(place)) {
            *place = None;
        }
        child.move_alarm(None, cx);
        child.position.remove(cx);
    }

    fn chosen_child(&self) -> Option<&Child> {
        self.child(self.chosen?)
    }

    /// The child of a place in the plan, if it was needed.
    fn child(&self, place: usize) -> Option<&Child> {
        let key = self.places.get(place).copied().flatten()?;
        self.children.get(key)
    }
}
