//! From a tree to a flat picker.
//!
//! [`Balancer::flush`](crate::Balancer::flush) has chosen which priority and which list are in use,
//! and which localities count as failing. Compiling reads these choices and makes none itself, so
//! it is a pure function. A leaf that did not change is reused as it is. So the work is O(nodes on
//! the way to the leaves in use), not O(endpoints).

use std::sync::Arc;

use crate::{
    Connectivity, PickFailure, Picker,
    endpoint::Pool,
    leaf::{LeafChoice, Leaves},
    node::{Branch, Localities, LocalityChild, Priorities},
    picker::{Choice, Gate, Weighted},
    plan::Plan,
};

/// The picker of a settled tree. The name and the note of `plan` go into the texts of failures.
pub(crate) fn compile<T>(
    plan: &Plan,
    root: &Branch,
    leaves: &Leaves<T>,
    pool: &Pool<T>,
) -> Picker<T> {
    let mut compiler = Compiler {
        plan,
        leaves,
        pool,
        note: plan.note.clone(),
    };
    Picker {
        root: compiler.branch(root),
    }
}

struct Compiler<'a, T> {
    plan: &'a Plan,
    leaves: &'a Leaves<T>,
    pool: &'a Pool<T>,
    /// The resolution note (A88) for failures at this place of the tree: that of the nearest
    /// cluster above that has one.
    note: Option<Arc<str>>,
}

impl<T> Compiler<'_, T> {
    fn branch(&mut self, branch: &Branch) -> Choice<T> {
        match branch {
            Branch::Cluster(cluster) => {
                let note = cluster.plan.note.clone().or_else(|| self.note.clone());
                let above = std::mem::replace(&mut self.note, note);
                let child = self.branch(cluster.child.current());
                self.note = above;
                let sessions = self.pool.sessions(cluster.roster);
                Choice::Gate(Box::new(Gate::new(cluster, sessions, child)))
            }
            Branch::Failing(reason) => self.fail(reason.clone()),
            Branch::Leaf(id) => match self.leaves.get(id.0).map(|leaf| leaf.choice()) {
                Some(LeafChoice::Fail(reason)) => self.fail(reason.clone()),
                Some(choice) => Choice::Leaf(choice.clone()),
                None => self.fail("no endpoints".into()),
            },
            Branch::Localities(localities) => self.localities(localities),
            Branch::Priority(priority) => self.priority(priority),
        }
    }

    /// The child in use. If it is failing, all children are, so the failure of a call names several
    /// of them.
    fn priority(&mut self, priority: &Priorities) -> Choice<T> {
        let Some(chosen) = priority.chosen() else {
            return self.fail(priority.why(self.leaves));
        };
        let mut choice = self.branch(chosen.current());
        if chosen.state(self.leaves) == Connectivity::TransientFailure {
            choice.fail_with(&self.failure(priority.why(self.leaves)));
        }
        choice
    }

    /// A weighted choice among the children in the best state that any of them is in. Calls go to
    /// READY children only. Without one they wait for a child that is not failing, or fail as a
    /// random child fails.
    fn localities(&mut self, localities: &Localities) -> Choice<T> {
        let state = localities.state();
        if let Connectivity::Connecting | Connectivity::Idle = state {
            return Choice::Leaf(LeafChoice::Queue);
        }
        let in_state = |(_, child): &(_, &LocalityChild)| child.state == state;
        let members = localities.weighted().filter(in_state);
        let mut members: Vec<_> = members
            .map(|(weight, child)| (weight, self.branch(child.position.current())))
            .collect();
        if members.len() == 1
            && let Some((_, only)) = members.pop()
        {
            return only;
        }
        match Weighted::new(members) {
            Some(weighted) => Choice::Weighted(Box::new(weighted)),
            None => self.fail("no endpoints".into()),
        }
    }

    fn fail(&self, reason: Arc<str>) -> Choice<T> {
        Choice::Fail(self.failure(reason))
    }

    fn failure(&self, reason: Arc<str>) -> Arc<PickFailure> {
        Arc::new(PickFailure {
            cluster: self.plan.cluster.clone(),
            reason,
            note: self.note.clone(),
        })
    }
}
