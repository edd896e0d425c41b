//! From a tree to a flat picker.
//!
//! Compiling reads the choices that [`Balancer::flush`](crate::Balancer::flush) has made (which
//! list is in use, which locality counts as failing) and makes none itself, so it is a pure
//! function. A leaf that did not change is reused as it is: the work is O(nodes of the cluster's
//! tree), not O(endpoints).

use std::sync::Arc;

use crate::{
    Connectivity, Failure, Picker,
    balancer::{Branch, Child, Leaves},
    leaf::Outcome,
    picker::{Choice, Weighted},
    plan::Plan,
};

/// The picker of a settled tree; `plan` gives its failures their words.
pub(crate) fn compile<T>(plan: &Plan, root: &Branch, leaves: &Leaves<T>) -> Picker<T> {
    Picker {
        root: Compiler { plan, leaves }.branch(root),
    }
}

struct Compiler<'a, T> {
    plan: &'a Plan,
    leaves: &'a Leaves<T>,
}

impl<T> Compiler<'_, T> {
    fn branch(&self, branch: &Branch) -> Choice<T> {
        match branch {
            Branch::Localities(children) => self.localities(children),
            Branch::Leaf(id) => match self.leaves.get(id.0).map(|leaf| leaf.outcome()) {
                Some(Outcome::Ready(list)) => Choice::RoundRobin(list.clone()),
                Some(Outcome::Connecting) => Choice::Queue,
                Some(Outcome::Failing(reason)) => self.fail(reason.clone()),
                None => self.fail("no endpoints".into()),
            },
        }
    }

    /// A weighted choice among the children in the best state that any of them is in: calls go to
    /// the READY ones only, wait if one may become so, and else fail as a random one fails.
    fn localities(&self, children: &[Child]) -> Choice<T> {
        let state = Connectivity::aggregate(children.iter().map(|child| child.state));
        if state == Connectivity::Connecting {
            return Choice::Queue;
        }
        let members = children.iter().filter(|child| child.state == state);
        let mut members: Vec<_> = members
            .map(|child| (child.weight, self.branch(&child.branch)))
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
        Choice::Fail(Arc::new(Failure {
            cluster: self.plan.cluster.clone(),
            reason,
            note: self.plan.note.clone(),
        }))
    }
}
