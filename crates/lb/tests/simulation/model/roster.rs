//! The endpoints that a leaf cluster knows.
//!
//! The leaves of a cluster share its endpoints by reference, and nobody counts who holds one: after every
//! step those that are in no list, and not in the plan, are looked for and forgotten.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use crowfly_lb::{ClusterPlan, Node, Policy};

use super::{Branch, Endpoint, Name, Position, name_of};
use crate::plans::is_named;

/// An endpoint, wherever it is.
pub(crate) type Shared = Rc<RefCell<Endpoint>>;

/// The endpoints of one leaf cluster, by name.
#[derive(Clone, Default)]
pub(crate) struct Roster(Rc<RefCell<BTreeMap<Name, Shared>>>);

impl Roster {
    pub(super) fn get(&self, name: Name) -> Shared {
        let mut known = self.0.borrow_mut();
        let endpoint = known.entry(name);
        endpoint
            .or_insert_with(|| Rc::new(RefCell::new(Endpoint::new(vec![]))))
            .clone()
    }

    pub(super) fn all(&self) -> Vec<(Name, Shared)> {
        let known = self.0.borrow();
        known.iter().map(|(name, e)| (*name, e.clone())).collect()
    }

    /// A55: draining endpoints are known though they are in no list.
    pub(super) fn know_draining(&self, plan: &ClusterPlan) {
        for endpoint in plan.draining.iter() {
            self.get(name_of(endpoint));
        }
    }
}

/// The values that the nodes of a plan are made with.
#[derive(Clone, Default)]
pub(crate) struct Made {
    /// The number of the plan.
    pub(super) number: u8,
    /// The endpoints of the leaf cluster that they are in.
    pub(super) roster: Roster,
    /// True if its addresses come from a name.
    pub(super) named: bool,
}

impl Made {
    pub(super) fn by_plan(number: u8) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    pub(super) fn within(&self, plan: &ClusterPlan, roster: &Roster) -> Self {
        Self {
            number: self.number,
            roster: roster.clone(),
            named: is_named(plan),
        }
    }
}

/// A75: a cluster knows the endpoints of its plan that it has ever needed, in whatever priority and
/// locality they are now. Those that no list has are not connected, nor are those that only `pick_first` has,
/// because it connects its own list of addresses (A62).
pub(super) fn forget(root: &Position) {
    root.each(&mut |branch| {
        let Branch::Cluster {
            plan,
            child,
            roster,
        } = branch
        else {
            return;
        };
        let (mut in_lists, mut wanted) = (BTreeSet::new(), BTreeSet::new());
        child.each(&mut |below| {
            if let Branch::Leaf(leaf) = below {
                in_lists.extend(leaf.names());
                if !matches!(leaf.policy, Policy::PickFirst { .. }) {
                    wanted.extend(leaf.names());
                }
            }
        });
        let mut in_plan: BTreeSet<_> = plan.draining.iter().map(name_of).collect();
        collect(&plan.child, &mut in_plan);
        roster.0.borrow_mut().retain(|name, endpoint| {
            if !wanted.contains(name) {
                endpoint.borrow_mut().release();
            }
            in_lists.contains(name) || in_plan.contains(name)
        });
    });
}

fn collect(node: &Node, into: &mut BTreeSet<Name>) {
    match node {
        Node::Cluster(_) | Node::Failing(_) => {}
        Node::Leaf(leaf) => into.extend(leaf.endpoints.iter().map(name_of)),
        Node::Localities(zones) => zones.iter().for_each(|zone| collect(&zone.child, into)),
        Node::Priority(plan) => plan.children.iter().for_each(|c| collect(&c.node, into)),
    }
}
