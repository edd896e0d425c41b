//! The list of the parts of a tree that have to be settled.
//!
//! A `priority` node may have thousands of children, and one report changes one of them. So nodes
//! are not asked one by one. A change of a child is noted here, for the child and for every child
//! above it. Settling visits those alone.

use std::{collections::BTreeSet, time::Instant};

use crate::slots::{Key, Slots};

/// The nodes of one tree that have to be settled.
#[derive(Debug)]
pub(crate) struct Agenda {
    nodes: Slots<DueNode>,
    /// The times at which nodes have to be settled even if nothing happens.
    alarms: BTreeSet<(Instant, NodeId, Option<Key>)>,
    /// The number of nodes that were looked at so far.
    pub(crate) steps: u64,
}

/// Names a node of the tree that has children or alarms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(Key);

/// Names a child of a `priority` node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChildId {
    pub(crate) node: NodeId,
    pub(crate) key: Key,
}

/// One node, with those of its children that are due.
#[derive(Debug)]
struct DueNode {
    /// The priority child that holds the node; `None` if only the root is above it.
    within: Option<ChildId>,
    /// The children of the node that have to be settled.
    due: BTreeSet<Key>,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Slots::new(),
            alarms: BTreeSet::new(),
            steps: 0,
        }
    }

    pub(crate) fn add(&mut self, within: Option<ChildId>) -> NodeId {
        let due = BTreeSet::new();
        NodeId(self.nodes.insert(DueNode { within, due }))
    }

    /// The node goes. Its alarms are its own to take back.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(node.0);
    }

    /// Something happened in a child, and so in all that it is in.
    pub(crate) fn touch(&mut self, child: Option<ChildId>) {
        let mut next = child;
        while let Some(ChildId { node, key }) = next {
            // If the child is due, so is what it is in.
            let Some(entry) = self.nodes.get_mut(node.0) else {
                return;
            };
            if !entry.due.insert(key) {
                return;
            }
            next = entry.within;
        }
    }

    /// The children of a node in which something happened since this was last asked.
    pub(crate) fn take_due(&mut self, node: NodeId) -> BTreeSet<Key> {
        let entry = self.nodes.get_mut(node.0);
        entry
            .map(|entry| std::mem::take(&mut entry.due))
            .unwrap_or_default()
    }

    /// Moves the alarm of a node, or of one of its children, from `before` to `at`.
    pub(crate) fn set_alarm(
        &mut self,
        node: NodeId,
        child: Option<Key>,
        before: &mut Option<Instant>,
        at: Option<Instant>,
    ) {
        if *before == at {
            return;
        }
        if let Some(before) = *before {
            self.alarms.remove(&(before, node, child));
        }
        self.alarms.extend(at.map(|at| (at, node, child)));
        *before = at;
    }

    /// The time has come for some.
    pub(crate) fn fire(&mut self, now: Instant) {
        while let Some(&(at, node, child)) = self.alarms.first()
            && at <= now
        {
            self.alarms.pop_first();
            match child {
                Some(key) => self.touch(Some(ChildId { node, key })),
                None => {
                    let entry = self.nodes.get(node.0);
                    self.touch(entry.and_then(|entry| entry.within));
                }
            }
        }
    }

    /// The time at which the tree has to be settled even if nothing happens.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, ..)| *at)
    }

    /// Gives back what held the last alarms.
    pub(crate) fn tidy(&mut self) {
        if self.alarms.is_empty() {
            self.alarms = BTreeSet::new();
        }
    }
}
