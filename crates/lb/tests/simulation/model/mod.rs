//! The rules, worked out anew after every step by code that is simple enough to be right.
//!
//! It follows the same plans as the balancer, and is written from the text of the gRFCs. It keeps no
//! lists of changes or compiled choices: everything is walked each time.

mod branch;
mod endpoint;
mod leaf;
mod position;
mod priority;
mod ring;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
};

use crowfly_lb::{
    Cluster, ClusterName,
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    Plan,
};

pub(crate) use self::{
    branch::{Branch, Kind},
    endpoint::Endpoint,
    position::Position,
};

/// Milliseconds since the start.
pub(crate) type Time = u64;

/// Names an endpoint: what its addresses have in common.
pub(crate) type Name = Ipv6Addr;

/// The probability of every endpoint that calls can go to.
pub(crate) type Shares = BTreeMap<Name, f64>;

/// How long what is not used any more is kept.
const KEPT: Time = 900_000;

/// What a pick may come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// By a category, or by the limit.
    Drop {
        category: bool,
    },
    Fail,
    Send(Name),
    Wait,
    /// The call waits, and is the first to want this endpoint.
    Wake(Name),
}

/// A cluster.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) root: Option<Position>,
    /// Whether names are to be looked up again.
    pub(crate) reresolves: bool,
}

impl Model {
    pub(crate) fn plan(&mut self, plan: &Plan, number: u8, now: Time) {
        match &mut self.root {
            Some(root) => root.update(&plan.root, number, now),
            None => self.root = Some(Position::create(&plan.root, number, now)),
        }
    }

    /// Draws the conclusions, and those from what endpoints make of them.
    pub(crate) fn settle(&mut self, now: Time) {
        let mut is_settled = false;
        while let Some(root) = &mut self.root
            && !is_settled
        {
            root.settle(now);
            is_settled = true;
            self.each_endpoint(&mut |_, endpoint| is_settled &= !endpoint.obey(now));
        }
    }

    /// Connects what is IDLE without a call.
    pub(crate) fn exit_idle(&mut self) {
        if let Some(root) = &mut self.root {
            root.current.exit_idle();
        }
    }

    pub(crate) fn state(&self) -> Option<Connectivity> {
        self.root.as_ref().map(Position::state)
    }

    /// When something happens to the tree by itself.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let mut times = Vec::new();
        if let Some(root) = &self.root {
            root.timers(&mut times);
        }
        times.into_iter().min()
    }

    pub(crate) fn shares(&self) -> Shares {
        let mut shares = Shares::new();
        if let Some(root) = &self.root {
            root.current.shares(1.0, &mut shares);
        }
        assert!(
            shares.values().all(|share| *share > 0.0),
            "whatever is READY has its share: {shares:?}"
        );
        shares
    }

    /// All that a pick may come to, where clusters have so many calls open.
    pub(crate) fn outcomes(
        &self,
        hash: Option<u64>,
        open: &dyn Fn(&Cluster) -> u64,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Some(root) = &self.root {
            root.current.outcomes(hash, open, &mut outcomes);
        }
        outcomes
    }

    /// How many leaves there are.
    pub(crate) fn leaves(&self) -> usize {
        let mut leaves = 0;
        if let Some(root) = &self.root {
            root.each(&mut |branch| leaves += usize::from(matches!(branch, Branch::Leaf(_))));
        }
        leaves
    }

    /// The clusters that have any state.
    pub(crate) fn clusters(&self) -> BTreeSet<(ClusterName, Option<Arc<str>>)> {
        let mut clusters = BTreeSet::new();
        if let Some(root) = &self.root {
            root.each(&mut |branch| {
                if let Branch::Cluster(plan, _) = branch {
                    clusters.insert((plan.name.clone(), plan.eds_service_name.clone()));
                }
            });
        }
        clusters
    }

    pub(crate) fn endpoints(&self) -> BTreeMap<Name, &Endpoint> {
        let mut endpoints = BTreeMap::new();
        if let Some(root) = &self.root {
            root.each(&mut |branch| {
                if let Branch::Leaf(leaf) = branch {
                    for (name, endpoint) in &leaf.endpoints {
                        assert!(endpoints.insert(*name, endpoint).is_none());
                    }
                }
            });
        }
        endpoints
    }

    pub(crate) fn with_endpoint(&mut self, wanted: Name, visit: impl Fn(&mut Endpoint)) {
        self.each_endpoint(&mut |name, endpoint| {
            if name == wanted {
                visit(endpoint);
            }
        });
    }

    /// Lets something happen to endpoints, and hears what they have lost by it.
    pub(crate) fn each_endpoint(&mut self, visit: &mut dyn FnMut(Name, &mut Endpoint)) {
        let Some(root) = &mut self.root else { return };
        root.each_leaf(false, &mut |leaf, named| {
            for (name, endpoint) in &mut leaf.endpoints {
                visit(*name, endpoint);
            }
            self.reresolves |= leaf.has_lost() && named;
        });
    }
}

/// READY, or else CONNECTING, or else IDLE, or else TRANSIENT_FAILURE.
fn best(states: impl Iterator<Item = Connectivity>) -> Connectivity {
    let states: Vec<_> = states.collect();
    let order = [Ready, Connecting, Idle];
    let found = order.into_iter().find(|state| states.contains(state));
    found.unwrap_or(TransientFailure)
}

pub(crate) fn name_of(endpoint: &crowfly_lb::Endpoint) -> Name {
    match endpoint.addresses()[0] {
        SocketAddr::V4(_) => panic!("an IPv6 address"),
        SocketAddr::V6(address) => *address.ip(),
    }
}
