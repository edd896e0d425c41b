//! A place in the tree whose node can be replaced by one of another kind (graceful switch).

use super::{Branch, Garden};
use crate::{
    Connectivity, Tree, TreeRole,
    endpoint::Pool,
    leaf::{LeafId, Leaves},
    plan::Node,
};

/// The node in use, and at most one that is to replace it when it is as good: unless the new one is
/// CONNECTING while the old one is READY, it takes over.
#[derive(Debug)]
pub(crate) struct Position {
    current: Branch,
    pending: Option<Branch>,
}

impl Position {
    pub(crate) fn plant<T>(node: &Node, garden: &mut Garden<'_, T>) -> Self {
        Self {
            current: Branch::plant(node, garden),
            pending: None,
        }
    }

    /// The node in use.
    pub(crate) fn current(&self) -> &Branch {
        &self.current
    }

    pub(crate) fn update<T>(&mut self, node: &Node, garden: &mut Garden<'_, T>) {
        let newest = self.pending.as_mut().unwrap_or(&mut self.current);
        if newest.fits(node, garden.leaves) {
            return newest.update(node, garden);
        }
        let fresh = Branch::plant(node, garden);
        if let Node::Failing(_) = node {
            // What is in error is torn down at once.
            std::mem::replace(&mut self.current, fresh).fell(garden);
            if let Some(pending) = self.pending.take() {
                pending.fell(garden);
            }
        } else if let Some(superseded) = self.pending.replace(fresh) {
            superseded.fell(garden);
        }
    }

    pub(crate) fn settle<T>(&mut self, garden: &mut Garden<'_, T>) {
        self.current.settle(garden);
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.settle(garden);
        let connecting = pending.state(garden.leaves) == Connectivity::Connecting;
        let ready = self.current.state(garden.leaves) == Connectivity::Ready;
        if !(connecting && ready)
            && let Some(pending) = self.pending.take()
        {
            std::mem::replace(&mut self.current, pending).fell(garden);
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

    pub(crate) fn fell<T>(self, garden: &mut Garden<'_, T>) {
        self.current.fell(garden);
        if let Some(pending) = self.pending {
            pending.fell(garden);
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
