//! A place in the model's tree, whose node may be replaced by one of another kind. Both nodes exist
//! for a while, because the new one takes over gracefully.

use crowfly_lb::{
    Connectivity::{self, Connecting, Ready},
    Node,
};

use super::{Branch, Kind, Made, Time};
use crate::plans::created_by;

/// The node in use, and one of another kind that is to replace it.
pub(crate) struct Position {
    /// The number of the plan that the newer one comes from, as its addresses say.
    pub(crate) created_by: u8,
    pub(super) current: Branch,
    pending: Option<Branch>,
}

impl Position {
    /// One that went, and is needed again under the same plan, has the addresses that it had.
    pub(super) fn create(node: &Node, made: &Made, now: Time) -> Self {
        Self {
            created_by: created_by(node).unwrap_or(made.number),
            current: Branch::create(node, made, now),
            pending: None,
        }
    }

    pub(crate) fn newest(&self) -> &Branch {
        self.pending.as_ref().unwrap_or(&self.current)
    }

    pub(super) fn update(&mut self, node: &Node, made: &Made, now: Time) {
        let newest = self.pending.as_mut().unwrap_or(&mut self.current);
        if newest.kind() == Kind::of(node) {
            return newest.update(node, made, now);
        }
        self.created_by = made.number;
        let fresh = Branch::create(node, made, now);
        if matches!(fresh, Branch::Failing) {
            self.current = fresh;
            self.pending = None;
        } else {
            self.pending = Some(fresh);
        }
    }

    /// The new one takes over, unless it is CONNECTING while the old one is READY.
    pub(super) fn settle(&mut self, now: Time) {
        self.current.settle(now);
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.settle(now);
        if pending.state() != Connecting || self.current.state() != Ready {
            self.current = self.pending.take().expect("it is there");
        }
    }

    pub(super) fn state(&self) -> Connectivity {
        self.current.state()
    }

    pub(super) fn timers(&self, into: &mut Vec<Time>) {
        self.each(&mut |branch| match branch {
            Branch::Priority(priorities) => priorities.timers(into),
            Branch::Zones(zones) => zones.timers(into),
            _ => {}
        });
    }

    /// Every node, also those that are not in use.
    pub(super) fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Branch)) {
        for branch in std::iter::once(&self.current).chain(&self.pending) {
            visit(branch);
            match branch {
                Branch::Cluster { child, .. } => child.each(visit),
                Branch::Priority(priorities) => {
                    priorities.positions().for_each(|child| child.each(visit));
                }
                Branch::Zones(zones) => zones.positions().for_each(|child| child.each(visit)),
                Branch::Failing | Branch::Leaf(_) => {}
            }
        }
    }
}
