//! The live tree of a cluster: the plan's shape, with state.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU32,
};

use crate::{
    ClusterName, Connectivity, LocalityId, Tree,
    endpoint::Pool,
    leaf::{LeafId, RoundRobin},
    plan::{Locality, Node},
    slots::Slots,
    tree::{LOCALITIES, ROUND_ROBIN, locality_label},
};

/// The leaves of every cluster. They are apart from the trees, so that a report finds its leaf
/// without a walk.
pub(crate) type Leaves<T> = Slots<RoundRobin<T>>;

/// One node of a live tree.
#[derive(Debug)]
pub(crate) enum Branch {
    Localities(Vec<Child>),
    Leaf(LeafId),
}

impl Branch {
    /// The state of the node, from the settled states of its children.
    pub(crate) fn state<T>(&self, leaves: &Leaves<T>) -> Connectivity {
        match self {
            Self::Localities(children) => {
                Connectivity::aggregate(children.iter().map(|child| child.state))
            }
            Self::Leaf(id) => leaves
                .get(id.0)
                .map_or(Connectivity::TransientFailure, |leaf| {
                    leaf.outcome().connectivity()
                }),
        }
    }

    /// Takes over the states of the leaves, from the bottom up.
    pub(crate) fn settle<T>(&mut self, leaves: &Leaves<T>) {
        let Self::Localities(children) = self else {
            return;
        };
        for child in children {
            child.branch.settle(leaves);
            child.state = child.state.sticky(child.branch.state(leaves));
        }
    }

    /// The leaves below the node.
    pub(crate) fn leaves(&self) -> Vec<LeafId> {
        match self {
            Self::Localities(children) => children
                .iter()
                .flat_map(|child| child.branch.leaves())
                .collect(),
            Self::Leaf(id) => vec![*id],
        }
    }

    pub(crate) fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        match self {
            Self::Localities(children) => {
                let children = children
                    .iter()
                    .map(|child| child.tree(leaves, pool))
                    .collect();
                Tree::new(LOCALITIES, children).with_state(self.state(leaves))
            }
            Self::Leaf(id) => leaves
                .get(id.0)
                .map_or_else(|| Tree::new(ROUND_ROBIN, vec![]), |leaf| leaf.tree(pool)),
        }
    }
}

impl Default for Branch {
    fn default() -> Self {
        Self::Localities(Vec::new())
    }
}

/// A locality with its share.
#[derive(Debug)]
pub(crate) struct Child {
    id: LocalityId,
    pub(crate) weight: NonZeroU32,
    /// What it counts as: a locality that failed counts as failing until it is READY.
    pub(crate) state: Connectivity,
    pub(crate) branch: Branch,
}

impl Child {
    fn new(locality: &Locality) -> Self {
        Self {
            id: locality.id.clone(),
            weight: locality.weight,
            state: Connectivity::Connecting,
            branch: Branch::default(),
        }
    }

    fn tree<T>(&self, leaves: &Leaves<T>, pool: &Pool<T>) -> Tree {
        Tree::new(
            locality_label(&self.id, self.weight),
            vec![self.branch.tree(leaves, pool)],
        )
        .with_state(self.state)
    }
}

/// Makes a live tree follow its plan.
pub(super) struct Grower<'a, T> {
    pub(super) cluster: &'a ClusterName,
    pub(super) leaves: &'a mut Leaves<T>,
    pub(super) pool: &'a mut Pool<T>,
    pub(super) rng: &'a mut fastrand::Rng,
    /// Leaves that have to be looked at.
    pub(super) dirty: &'a mut BTreeSet<LeafId>,
}

impl<T> Grower<'_, T> {
    /// Makes a node follow the plan; `locality` is the one that it is in.
    pub(super) fn update(&mut self, branch: &mut Branch, node: &Node, locality: &LocalityId) {
        match (branch, node) {
            (Branch::Localities(children), Node::Localities(localities)) => {
                self.update_localities(children, localities);
            }
            (Branch::Leaf(id), Node::RoundRobin(endpoints)) => {
                if let Some(leaf) = self.leaves.get_mut(id.0)
                    && leaf.update(*id, endpoints, self.pool, self.rng)
                {
                    self.dirty.insert(*id);
                }
            }
            (branch, node) => {
                let fresh = self.plant(node, locality);
                self.fell(&std::mem::replace(branch, fresh));
                self.update(branch, node, locality);
            }
        }
    }

    /// A node goes, and with it all that is below it.
    pub(super) fn fell(&mut self, branch: &Branch) {
        for id in branch.leaves() {
            if let Some(leaf) = self.leaves.remove(id.0) {
                leaf.close(self.pool);
            }
        }
    }

    /// Localities that stay keep their state, in the order of the plan.
    fn update_localities(&mut self, children: &mut Vec<Child>, localities: &[Locality]) {
        let mut before: HashMap<LocalityId, Child> = children
            .drain(..)
            .map(|child| (child.id.clone(), child))
            .collect();
        for locality in localities {
            let mut child = before
                .remove(&locality.id)
                .unwrap_or_else(|| Child::new(locality));
            child.weight = locality.weight;
            self.update(&mut child.branch, &locality.child, &locality.id);
            children.push(child);
        }
        let mut gone: Vec<_> = before.into_values().collect();
        gone.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        for child in gone {
            self.fell(&child.branch);
        }
    }

    /// A node of the kind that the plan asks for, still empty.
    fn plant(&mut self, node: &Node, locality: &LocalityId) -> Branch {
        match node {
            Node::Localities(_) => Branch::default(),
            Node::RoundRobin(_) => {
                let leaf = RoundRobin::new(self.cluster.clone(), locality.clone());
                let id = LeafId(self.leaves.insert(leaf));
                self.dirty.insert(id);
                Branch::Leaf(id)
            }
        }
    }
}
