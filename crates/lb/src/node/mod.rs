//! The live tree of a cluster: the shape of its plan, with state.
//!
//! The plan is data; this module exists because balancing also needs states, timers and
//! connections. Three things happen to a node:
//!
//! - It is *updated*: it follows a new plan.
//! - It is *settled*: it decides from the states below it, which may create a priority or start a
//!   timer.
//! - It is *compiled* (in [`compile`](crate::compile)): its decisions become part of a picker.

mod agenda;
mod cluster;
mod localities;
mod position;
mod priority;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

pub(crate) use self::{
    agenda::{Agenda, ChildId},
    cluster::ClusterImpl,
    localities::{Localities, LocalityChild},
    position::Position,
    priority::Priorities,
};
use crate::{
    CallCounters, ClusterName, Connectivity, LocalityId, Tree,
    endpoint::{Owner, Pool, RosterId},
    leaf::{Leaf, LeafId, Leaves},
    plan::{self, Endpoint, Node},
};

/// One node of a live tree.
#[derive(Debug)]
pub(crate) enum Branch {
    Cluster(Box<ClusterImpl>),
    Failing(Arc<str>),
    Leaf(LeafId),
    Localities(Localities),
    Priority(Box<Priorities>),
}

/// Everything that a change of a node may touch: the rest of the balancer, and the node's place in the tree.
pub(crate) struct NodeContext<'a, T> {
    pub(crate) tree: &'a ClusterName,
    pub(crate) leaves: &'a mut Leaves<T>,
    pub(crate) pool: &'a mut Pool<T>,
    pub(crate) rng: &'a mut fastrand::Rng,
    pub(crate) counters: &'a CallCounters,
    /// The leaves whose endpoints have changed.
    pub(crate) dirty: &'a mut BTreeSet<LeafId>,
    pub(crate) now: Instant,
    /// The parts of the tree that have to be settled.
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) place: Place,
}

/// The place of a node in the tree.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The nearest child of a `priority` node that it is in.
    pub(crate) child: Option<ChildId>,
    pub(crate) locality: LocalityId,
    /// The endpoints of the leaf cluster that it is in.
    pub(crate) roster: RosterId,
    /// True if a node above ignores requests to look names up again
    /// (`ignore_reresolution_requests`, A37).
    pub(crate) ignores_reresolution: bool,
}

impl Place {
    /// The root of a tree.
    pub(crate) fn root(roster: RosterId) -> Self {
        Self {
            child: None,
            locality: LocalityId::default(),
            roster,
            ignores_reresolution: false,
        }
    }

    /// One step down, into a child of a `priority` node.
    fn enter(&mut self, child: ChildId, ignore_reresolution: bool) {
        self.child = Some(child);
        self.ignores_reresolution |= ignore_reresolution;
    }
}

impl<T> NodeContext<'_, T> {
    /// Runs `f` one step further down.
    pub(crate) fn within<R>(
        &mut self,
        step: impl FnOnce(&mut Place),
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let above = self.place.clone();
        step(&mut self.place);
        let result = f(self);
        self.place = above;
        result
    }
}

impl Branch {
    /// A node that follows `node`.
    pub(crate) fn create<T>(node: &Node, cx: &mut NodeContext<'_, T>) -> Self {
        match node {
            Node::Cluster(cluster) => Self::Cluster(Box::new(ClusterImpl::create(cluster, cx))),
            Node::Failing(reason) => Self::Failing(reason.clone()),
            Node::Leaf(leaf) => Self::create_leaf(leaf, cx),
            Node::Localities(localities) => Self::Localities(Localities::create(localities, cx)),
            Node::Priority(priority) => Self::Priority(Box::new(Priorities::create(priority, cx))),
        }
    }

    /// Returns whether the node can follow `node` and keep its state. If not, a new node must
    /// replace it.
    pub(crate) fn fits<T>(&self, node: &Node, leaves: &Leaves<T>) -> bool {
        match (self, node) {
            (Self::Cluster(cluster), Node::Cluster(node)) => cluster.fits(node),
            (Self::Leaf(id), Node::Leaf(node)) => {
                leaves.get(id.0).is_some_and(|leaf| leaf.fits(node))
            }
            (Self::Failing(_), Node::Failing(_))
            | (Self::Localities(_), Node::Localities(_))
            | (Self::Priority(_), Node::Priority(_)) => true,
            _ => false,
        }
    }

    /// Makes the node follow `node`, which it fits.
    pub(crate) fn update<T>(&mut self, node: &Node, cx: &mut NodeContext<'_, T>) {
        match (self, node) {
            (Self::Cluster(cluster), Node::Cluster(node)) => cluster.update(node, cx),
            (Self::Failing(reason), Node::Failing(node)) => *reason = node.clone(),
            (Self::Leaf(id), Node::Leaf(node)) => update_leaf(*id, node, cx),
            (Self::Localities(localities), Node::Localities(node)) => {
                localities.update(node, cx);
            }
            (Self::Priority(priority), Node::Priority(node)) => priority.update(node, cx),
            (branch, node) => {
                let fresh = Self::create(node, cx);
                std::mem::replace(branch, fresh).remove(cx);
            }
        }
    }

    /// Updates the decisions of the node from the states below it. A second call changes nothing.
    pub(crate) fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        cx.agenda.steps += 1;
        match self {
            Self::Cluster(cluster) => cluster.settle(cx),
            Self::Failing(_) => {}
            Self::Leaf(id) => {
                if cx.dirty.remove(id)
                    && let Some(leaf) = cx.leaves.get_mut(id.0)
                {
                    leaf.refresh(cx.pool);
                }
            }
            Self::Localities(localities) => localities.settle(cx),
            Self::Priority(priority) => priority.settle(cx),
        }
    }

    /// The state of the node, once it is settled.
    pub(crate) fn state<T>(&self, leaves: &Leaves<T>) -> Connectivity {
        match self {
            Self::Cluster(cluster) => cluster.state(leaves),
            Self::Failing(_) => Connectivity::TransientFailure,
            Self::Leaf(id) => leaves
                .get(id.0)
                .map_or(Connectivity::TransientFailure, Leaf::state),
            Self::Localities(localities) => localities.state(),
            Self::Priority(priority) => priority.state(),
        }
    }

    /// The reason why calls fail, for a node that is failing.
    pub(crate) fn why<T>(&self, leaves: &Leaves<T>) -> Arc<str> {
        match self {
            Self::Cluster(cluster) => cluster.why(leaves),
            Self::Failing(reason) => reason.clone(),
            Self::Leaf(id) => {
                let why = leaves.get(id.0).and_then(Leaf::why);
                // The leaf failed, and has got other endpoints since.
                why.cloned().unwrap_or_else(|| "connecting".into())
            }
            Self::Localities(localities) => localities.why(leaves),
            Self::Priority(priority) => priority.why(leaves),
        }
    }

    /// Makes an IDLE node connect.
    pub(crate) fn exit_idle<T>(&self, cx: &mut NodeContext<'_, T>) {
        match self {
            Self::Cluster(cluster) => cluster.child.current().exit_idle(cx),
            // Localities are never IDLE, because settling connects those that would be.
            Self::Failing(_) | Self::Localities(_) => {}
            Self::Leaf(id) => {
                if let Some(leaf) = cx.leaves.get_mut(id.0)
                    && leaf.exit_idle(cx.pool)
                {
                    leaf.refresh(cx.pool);
                }
            }
            Self::Priority(priority) => priority.exit_idle(cx),
        }
    }

    /// Removes the node and everything below it.
    pub(crate) fn remove<T>(self, cx: &mut NodeContext<'_, T>) {
        match self {
            Self::Cluster(cluster) => cluster.remove(cx),
            Self::Failing(_) => {}
            Self::Leaf(id) => {
                cx.dirty.remove(&id);
                if let Some(leaf) = cx.leaves.remove(id.0) {
                    leaf.close(cx.pool);
                }
            }
            Self::Localities(localities) => localities.remove(cx),
            Self::Priority(priority) => priority.remove(cx),
        }
    }

    /// Every leaf below the node, also those that are kept in case they come back.
    pub(crate) fn each_leaf(&self, visit: &mut impl FnMut(LeafId)) {
        match self {
            Self::Cluster(cluster) => cluster.child.each_leaf(visit),
            Self::Failing(_) => {}
            Self::Leaf(id) => visit(*id),
            Self::Localities(localities) => localities.each_leaf(visit),
            Self::Priority(priority) => priority.each_leaf(visit),
        }
    }

    /// Calls `visit` with the endpoints of the plan that no leaf holds. Their priority is not
    /// needed, or a hash ring has no room for them. Endpoints of leaf clusters below are not
    /// visited.
    pub(crate) fn each_unheld<T>(&self, leaves: &Leaves<T>, visit: &mut dyn FnMut(&Endpoint)) {
        match self {
            Self::Cluster(_) | Self::Failing(_) => {}
            Self::Leaf(id) => {
                let leaf = leaves.get(id.0);
                leaf.into_iter().flat_map(Leaf::unplaced).for_each(visit);
            }
            Self::Localities(localities) => localities.each_unheld(leaves, visit),
            Self::Priority(priority) => priority.each_unheld(leaves, visit),
        }
    }

    pub(crate) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        match self {
            Self::Cluster(cluster) => cluster.tree(leaves, pool),
            Self::Failing(reason) => {
                Tree::failing(Some(reason.clone())).with_state(Connectivity::TransientFailure)
            }
            Self::Leaf(id) => leaves
                .get(id.0)
                .map_or_else(|| Tree::failing(None), |leaf| leaf.tree(pool)),
            Self::Localities(localities) => localities.tree(leaves, pool),
            Self::Priority(priority) => priority.tree(leaves, pool),
        }
    }

    fn create_leaf<T>(node: &plan::Leaf, cx: &mut NodeContext<'_, T>) -> Self {
        let Place {
            child,
            locality,
            roster,
            ..
        } = cx.place.clone();
        let (tree, policy) = (cx.tree.clone(), node.policy.clone());
        let id = cx.leaves.insert_with(|key| {
            let owner = Owner {
                leaf: LeafId(key),
                locality,
                roster,
            };
            Leaf::new(tree, child, owner, policy)
        });
        let id = LeafId(id);
        cx.dirty.insert(id);
        update_leaf(id, node, cx);
        Self::Leaf(id)
    }
}

fn update_leaf<T>(id: LeafId, node: &plan::Leaf, cx: &mut NodeContext<'_, T>) {
    if let Some(leaf) = cx.leaves.get_mut(id.0) {
        leaf.reresolves = !cx.place.ignores_reresolution;
        if leaf.update(node, cx.pool, cx.rng) {
            cx.dirty.insert(id);
        }
    }
}
