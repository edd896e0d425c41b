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
mod roster;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
};

use crate::plans::is_named;
use crowfly_lb::{
    ClusterName, ClusterPlan,
    Connectivity::{self, Connecting, Idle, Ready, TransientFailure},
    LocalityId, Plan,
};

pub(crate) use self::{
    branch::{Branch, Kind},
    endpoint::Endpoint,
    position::Position,
    roster::{Made, Shared},
};

/// Milliseconds since the start.
pub(crate) type Time = u64;

/// Names an endpoint: the part that its addresses have in common. The list of a `pick_first` leaf has a
/// name, too ([`list_name`]).
pub(crate) type Name = Ipv6Addr;

/// The probability of every endpoint that calls can go to.
pub(crate) type Shares = BTreeMap<Name, f64>;

/// The time for which an unused part of the tree is kept.
const KEPT: Time = 900_000;

/// A possible outcome of a pick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// By a category, or by the limit.
    Drop {
        category: bool,
    },
    Fail,
    /// To an endpoint, in the locality where the leaf has it; a leaf inside of one need not say which.
    Send(Name, Option<LocalityId>),
    Wait,
    /// The call waits, and is the first to want this endpoint.
    Wake(Name),
}

/// A cluster.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) root: Option<Position>,
    /// True if names are to be looked up again.
    pub(crate) reresolves: bool,
}

impl Model {
    pub(crate) fn plan(&mut self, plan: &Plan, number: u8, now: Time) {
        let made = Made::by_plan(number);
        match &mut self.root {
            Some(root) => root.update(&plan.root, &made, now),
            None => self.root = Some(Position::create(&plan.root, &made, now)),
        }
    }

    /// Draws the conclusions, and those from what endpoints make of them.
    pub(crate) fn settle(&mut self, now: Time) {
        let mut is_settled = false;
        while let Some(root) = &mut self.root
            && !is_settled
        {
            root.settle(now);
            roster::forget(root);
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

    /// The next time at which the tree changes by itself.
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
        open: &dyn Fn(&ClusterPlan) -> u64,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Some(root) = &self.root {
            root.current.outcomes(hash, open, &mut outcomes);
        }
        outcomes
    }

    /// The number of leaves.
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
                if let Branch::Cluster { plan, .. } = branch {
                    clusters.insert((plan.name.clone(), plan.eds_service_name.clone()));
                }
            });
        }
        clusters
    }

    /// Returns whether a cluster has the endpoint among those that drain.
    pub(crate) fn is_draining(&self, name: Name) -> bool {
        let mut found = false;
        if let Some(root) = &self.root {
            root.each(&mut |branch| {
                if let Branch::Cluster { plan, .. } = branch {
                    found |= plan.draining.iter().any(|e| name_of(e) == name);
                }
            });
        }
        found
    }

    /// The localities that leaves have an endpoint in.
    pub(crate) fn localities_of(&self, name: Name) -> BTreeSet<LocalityId> {
        let mut found = BTreeSet::new();
        if let Some(root) = &self.root {
            root.each(&mut |branch| match branch {
                Branch::Leaf(leaf) => found.extend(leaf.localities_of(name).flatten()),
                Branch::Zones(zones) => found.extend(zones.that_have(name)),
                _ => {}
            });
        }
        found
    }

    /// Every endpoint, and every list of a `pick_first` leaf.
    pub(crate) fn endpoints(&self) -> BTreeMap<Name, Shared> {
        let mut endpoints = BTreeMap::new();
        if let Some(root) = &self.root {
            root.each(&mut |branch| match branch {
                Branch::Cluster { roster, .. } => endpoints.extend(roster.all()),
                Branch::Leaf(leaf) => endpoints.extend(leaf.list()),
                _ => {}
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
        let Some(root) = &self.root else { return };
        let mut lost = false;
        let mut visit = |(name, endpoint): (Name, Shared), named: bool| {
            let mut endpoint = endpoint.borrow_mut();
            visit(name, &mut endpoint);
            lost |= std::mem::take(&mut endpoint.lost) && named;
        };
        root.each(&mut |branch| match branch {
            Branch::Cluster { plan, roster, .. } => {
                let all = roster.all().into_iter();
                all.for_each(|known| visit(known, is_named(plan)));
            }
            Branch::Leaf(leaf) => leaf.list().into_iter().for_each(|l| visit(l, leaf.named)),
            _ => {}
        });
        root.each(&mut |branch| {
            if let Branch::Leaf(leaf) = branch {
                lost |= leaf.emptied.take() && leaf.named;
            }
        });
        self.reresolves |= lost;
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
    name_at(endpoint.addresses()[0])
}

/// The name of the endpoint that has an address.
pub(crate) fn name_at(address: SocketAddr) -> Name {
    match address {
        SocketAddr::V4(_) => panic!("an IPv6 address"),
        SocketAddr::V6(address) => *address.ip(),
    }
}

/// The name of a `pick_first` leaf's list of addresses, by the first of them.
pub(crate) fn list_name(first: SocketAddr) -> Name {
    let mut octets = name_at(first).octets();
    octets[15] = 0xff;
    octets.into()
}
