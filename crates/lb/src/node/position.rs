//! A place in the tree whose node can be replaced by one of another kind (graceful switch).
//!
//! The old node serves until the new one is as good, because a change of policy must not make calls
//! wait or fail.

use super::{Branch, NodeContext};
use crate::{
    Connectivity, Tree, TreeRole,
    endpoint::Pool,
    leaf::{LeafId, Leaves},
    plan::{Endpoint, Node},
};

/// The node in use, and at most one that will replace it. The new one waits only while it is
/// CONNECTING and the old one is READY.
#[derive(Debug)]
pub(crate) struct Position {
    current: Branch,
    pending: Option<Branch>,
}

impl Position {
    pub(crate) fn create<T>(node: &Node, cx: &mut NodeContext<'_, T>) -> Self {
        Self {
            current: Branch::create(node, cx),
            pending: None,
        }
    }

    /// The node in use.
    pub(crate) fn current(&self) -> &Branch {
        &self.current
    }

    pub(crate) fn update<T>(&mut self, node: &Node, cx: &mut NodeContext<'_, T>) {
        let newest = self.pending.as_mut().unwrap_or(&mut self.current);
        if newest.fits(node, cx.leaves) {
            return newest.update(node, cx);
        }
        let fresh = Branch::create(node, cx);
        if let Node::Failing(_) = node {
            // A plan that fails every call takes effect at once, because it has nothing to wait
            // for.
            std::mem::replace(&mut self.current, fresh).remove(cx);
            if let Some(pending) = self.pending.take() {
                pending.remove(cx);
            }
        } else if let Some(superseded) = self.pending.replace(fresh) {
            superseded.remove(cx);
        }
    }

    pub(crate) fn settle<T>(&mut self, cx: &mut NodeContext<'_, T>) {
        self.current.settle(cx);
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.settle(cx);
        let connecting = pending.state(cx.leaves) == Connectivity::Connecting;
        let ready = self.current.state(cx.leaves) == Connectivity::Ready;
        if !(connecting && ready)
            && let Some(pending) = self.pending.take()
        {
            std::mem::replace(&mut self.current, pending).remove(cx);
        }
    }

    pub(crate) fn state<T>(&self, leaves: &Leaves<T>) -> Connectivity {
        self.current.state(leaves)
    }

    pub(crate) fn each_leaf(&self, visit: &mut impl FnMut(LeafId)) {
        self.current.each_leaf(visit);
        if let Some(pending) = &self.pending {
            pending.each_leaf(visit);
        }
    }

    /// Calls `visit` with the endpoints of the plan that no leaf holds.
    pub(crate) fn each_unheld<T>(&self, leaves: &Leaves<T>, visit: &mut dyn FnMut(&Endpoint)) {
        let newest = self.pending.as_ref().unwrap_or(&self.current);
        newest.each_unheld(leaves, visit);
    }

    pub(crate) fn remove<T>(self, cx: &mut NodeContext<'_, T>) {
        self.current.remove(cx);
        if let Some(pending) = self.pending {
            pending.remove(cx);
        }
    }

    /// The trees of both, the one in use first.
    pub(crate) fn trees<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Vec<Tree> {
        let mut trees = vec![self.current.tree(leaves, pool)];
        if let Some(pending) = &self.pending {
            let tree = pending.tree(leaves, pool);
            trees.push(tree.with_role(Some(TreeRole::Pending)));
        }
        trees
    }
}
