//! One node of the model's tree, of any kind. Every node is walked anew after each step, so the
//! model needs no lists of changes.

use std::sync::Arc;

use crowfly_lb::{
    ClusterName, ClusterPlan,
    Connectivity::{self, Ready, TransientFailure},
    Node,
};

use super::{
    Made, Outcome, Position, Shares, Time, leaf::Leaf, priority::Priorities, roster::Roster,
    zones::Zones,
};

/// Every call of a million.
const ALL: u32 = 1_000_000;

/// One node.
pub(crate) enum Branch {
    Cluster {
        plan: Arc<ClusterPlan>,
        child: Box<Position>,
        roster: Roster,
    },
    Failing,
    Leaf(Leaf),
    Priority(Priorities),
    Zones(Zones),
}

impl Branch {
    pub(super) fn create(node: &Node, made: &Made, now: Time) -> Self {
        let mut branch = match node {
            Node::Cluster(plan) => {
                let roster = Roster::default();
                roster.know_draining(plan);
                let child = Position::create(&plan.child, &made.within(plan, &roster), now);
                return Self::Cluster {
                    plan: plan.clone(),
                    child: Box::new(child),
                    roster,
                };
            }
            Node::Failing(_) => Self::Failing,
            Node::Leaf(leaf) => Self::Leaf(Leaf::new(leaf, made)),
            Node::Localities(_) => Self::Zones(Zones::default()),
            Node::Priority(_) => Self::Priority(Priorities::default()),
        };
        branch.update(node, made, now);
        branch
    }

    pub(super) fn update(&mut self, node: &Node, made: &Made, now: Time) {
        match (self, node) {
            (
                Self::Cluster {
                    plan,
                    child,
                    roster,
                },
                Node::Cluster(next),
            ) => {
                *plan = next.clone();
                roster.know_draining(next);
                child.update(&next.child, &made.within(next, roster), now);
            }
            (Self::Leaf(leaf), Node::Leaf(next)) => leaf.update(next),
            (Self::Priority(priorities), Node::Priority(next)) => {
                priorities.update(next, made, now);
            }
            (Self::Zones(zones), Node::Localities(next)) => zones.update(next, made, now),
            _ => {}
        }
    }

    pub(super) fn settle(&mut self, now: Time) {
        match self {
            Self::Cluster { child, .. } => child.settle(now),
            Self::Failing => {}
            Self::Leaf(leaf) => leaf.settle(),
            Self::Priority(priorities) => priorities.settle(now),
            Self::Zones(zones) => zones.settle(now),
        }
    }

    pub(super) fn exit_idle(&mut self) {
        match self {
            Self::Cluster { child, .. } => child.current.exit_idle(),
            Self::Failing => {}
            Self::Leaf(leaf) => leaf.exit_idle(),
            Self::Priority(priorities) => {
                if let Some(chosen) = priorities.chosen_mut() {
                    chosen.current.exit_idle();
                }
            }
            Self::Zones(_) => {} // Its leaves never stay IDLE.
        }
    }

    /// A cluster that drops everything does not need its endpoints (A27).
    pub(super) fn state(&self) -> Connectivity {
        match self {
            Self::Cluster { plan, .. } if drops(plan) >= ALL => Ready,
            Self::Cluster { child, .. } => child.state(),
            Self::Failing => TransientFailure,
            Self::Leaf(leaf) => leaf.state(),
            Self::Priority(priorities) => priorities.state(),
            Self::Zones(zones) => zones.state(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Cluster { plan, .. } => {
                Kind::Cluster(plan.name.clone(), plan.eds_service_name.clone())
            }
            Self::Failing => Kind::Failing,
            Self::Leaf(leaf) => Kind::Leaf(leaf.policy.name().to_owned()),
            Self::Priority(_) => Kind::Priority,
            Self::Zones(_) => Kind::Localities,
        }
    }

    /// The child with this name. A cluster has one child without a name, which any name finds.
    pub(crate) fn child(&self, name: &str) -> Option<&Position> {
        match self {
            Self::Cluster { child, .. } => Some(child),
            Self::Failing | Self::Leaf(_) => None,
            Self::Priority(priorities) => priorities.child(name),
            Self::Zones(zones) => zones.child(name),
        }
    }

    pub(super) fn shares(&self, of: f64, into: &mut Shares) {
        match self {
            Self::Cluster { plan, .. } if drops(plan) >= ALL => {}
            Self::Cluster { plan, child, .. } => {
                let passing = 1.0 - f64::from(drops(plan)) / f64::from(ALL);
                child.current.shares(of * passing, into);
            }
            Self::Failing => {}
            Self::Leaf(leaf) => leaf.shares(of, into),
            Self::Priority(priorities) => {
                if let Some(chosen) = priorities.chosen() {
                    chosen.current.shares(of, into);
                }
            }
            Self::Zones(zones) => zones.shares(of, into),
        }
    }

    /// A32: drops come first, then the limit, and what is below only then.
    pub(super) fn outcomes(
        &self,
        hash: Option<u64>,
        open: &dyn Fn(&ClusterPlan) -> u64,
        into: &mut Vec<Outcome>,
    ) {
        match self {
            Self::Cluster { plan, child, .. } => {
                if drops(plan) > 0 {
                    into.push(Outcome::Drop { category: true });
                }
                if drops(plan) >= ALL {
                    return;
                }
                if open(plan) >= u64::from(plan.max_concurrent_requests) {
                    return into.push(Outcome::Drop { category: false });
                }
                child.current.outcomes(hash, open, into);
            }
            Self::Failing => into.push(Outcome::Fail),
            Self::Leaf(leaf) => leaf.outcomes(hash, into),
            Self::Priority(priorities) => match priorities.chosen() {
                Some(chosen) => chosen.current.outcomes(hash, open, into),
                None => into.push(Outcome::Fail),
            },
            Self::Zones(zones) => zones.outcomes(hash, into),
        }
    }
}

/// The kind of a node. A node of another kind replaces it gracefully.
#[derive(PartialEq)]
pub(crate) enum Kind {
    Cluster(ClusterName, Option<Arc<str>>),
    Failing,
    /// By the name of its policy.
    Leaf(String),
    Localities,
    Priority,
}

impl Kind {
    pub(super) fn of(node: &Node) -> Self {
        match node {
            Node::Cluster(plan) => Self::Cluster(plan.name.clone(), plan.eds_service_name.clone()),
            Node::Failing(_) => Self::Failing,
            Node::Leaf(leaf) => Self::Leaf(leaf.policy.name().to_owned()),
            Node::Localities(_) => Self::Localities,
            Node::Priority(_) => Self::Priority,
        }
    }
}

fn drops(plan: &ClusterPlan) -> u32 {
    plan.drops[0].per_million
}
