//! The leaves of a tree: endpoints, and a policy that chooses among them.
//!
//! All policies share this module, because they differ only in two things: which endpoints they
//! connect, and how a pick chooses one.

mod custom;
mod held;
mod least_request;
mod members;
mod pick_first;
mod ring;
mod ring_hash;
mod round_robin;
mod states;

use std::sync::Arc;

pub(crate) use self::{
    custom::Custom, least_request::LeastRequest, ring_hash::RingHash, round_robin::ReadyList,
};
use self::{members::Members, ring::Ring};
use crate::{
    Call, CallContext, ClusterName, Connectivity, EndpointView, Pick, Selector, Share, Tree,
    endpoint::{Owner, Pool, ReadyEndpoint, Wish},
    node::ChildId,
    plan::{self, Endpoint, Policy},
    slots::{Key, Slots},
};

/// The leaves of every cluster. They are apart from the trees, so that a report of a driver finds
/// its leaf without a walk through a tree.
pub(crate) type Leaves<T> = Slots<Leaf<T>>;

/// Names a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct LeafId(pub(crate) Key);

/// One leaf with its state.
#[derive(Debug)]
pub(crate) struct Leaf<T> {
    /// The cluster whose tree the leaf is in.
    tree: ClusterName,
    /// The nearest child of a `priority` node that the leaf is in.
    within: Option<ChildId>,
    owner: Owner,
    /// True if the loss of an endpoint is a reason to look names up again, because the endpoint may
    /// have moved.
    pub(crate) reresolves: bool,
    policy: Policy,
    wanted: Arc<[Endpoint]>,
    members: Members,
    /// The hash ring of the list; `None` for policies other than `ring_hash`.
    ring: Option<Arc<Ring>>,
    /// The endpoints that the ring has no room for.
    unplaced: Vec<Endpoint>,
    /// The selector that a custom policy built for the list; `None` for the policies of gRPC.
    selector: Option<Arc<dyn Selector>>,
    outcome: Outcome<T>,
}

/// The state of a leaf, and the choice that its picks make.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    pub(crate) state: Connectivity,
    pub(crate) choice: LeafChoice<T>,
}

/// The way in which a pick chooses among the endpoints of a leaf.
#[derive(Debug)]
pub(crate) enum LeafChoice<T> {
    Custom(Arc<Custom<T>>),
    Fail(Arc<str>),
    LeastRequest(Arc<LeastRequest<T>>),
    One(Arc<ReadyEndpoint<T>>),
    Queue,
    RingHash(Arc<RingHash<T>>),
    RoundRobin(Arc<ReadyList<T>>),
    /// The leaf is IDLE: the first call makes it connect.
    Wake(Arc<Wish>),
}

impl<T> Leaf<T> {
    /// A leaf without endpoints, which does not reresolve: both come with its first plan.
    pub(crate) fn new(
        tree: ClusterName,
        within: Option<ChildId>,
        owner: Owner,
        policy: Policy,
    ) -> Self {
        Self {
            tree,
            within,
            owner,
            reresolves: false,
            policy,
            wanted: Arc::from([]),
            members: Members::default(),
            ring: None,
            unplaced: Vec::new(),
            selector: None,
            outcome: Outcome {
                state: Connectivity::Connecting,
                choice: LeafChoice::Queue,
            },
        }
    }

    /// The cluster whose tree the leaf is in.
    pub(crate) fn tree_name(&self) -> &ClusterName {
        &self.tree
    }

    /// The nearest child of a `priority` node that the leaf is in.
    pub(crate) fn within(&self) -> Option<ChildId> {
        self.within
    }

    pub(crate) fn state(&self) -> Connectivity {
        self.outcome.state
    }

    pub(crate) fn choice(&self) -> &LeafChoice<T> {
        &self.outcome.choice
    }

    /// Returns whether the leaf can follow a node of the next plan and keep its endpoints. It can
    /// if the kind and the name of the policy stay.
    pub(crate) fn fits(&self, node: &plan::Leaf) -> bool {
        self.policy.name() == node.policy.name()
            && std::mem::discriminant(&self.policy) == std::mem::discriminant(&node.policy)
    }

    /// Takes the next plan. Returns whether it differs from the last one.
    ///
    /// An endpoint that stays keeps its id, its connection and its counters.
    pub(crate) fn update(
        &mut self,
        node: &plan::Leaf,
        pool: &mut Pool<T>,
        rng: &mut fastrand::Rng,
    ) -> bool {
        let same_endpoints = Arc::ptr_eq(&self.wanted, &node.endpoints)
            || self.wanted == node.endpoints && !self.wanted.is_empty();
        if same_endpoints && self.policy == node.policy {
            return false;
        }
        self.policy = node.policy.clone();
        self.wanted = node.endpoints.clone();
        let (members, owner) = (&mut self.members, &self.owner);
        if self.wanted.is_empty() {
            pool.empty(owner.leaf);
        }
        match &self.policy {
            Policy::Custom(policy) => {
                members.update(owner, &self.wanted, pool, rng);
                members.swap(owner, pool);
                self.selector = Some(policy.build(&custom::distinct(&self.wanted)));
            }
            Policy::PickFirst { shuffle } => {
                let all = pick_first::flatten(&self.wanted, *shuffle, rng);
                members.update_flattened(owner, &self.wanted, all.as_ref(), pool);
            }
            Policy::RingHash { size, .. } => {
                let mut merged = ring_hash::merge(&self.wanted);
                let mut ring = Ring::new(merged.iter(), *size);
                self.unplaced = ring.take_unplaced(&mut merged);
                members.update(owner, &merged.into(), pool, rng);
                self.ring = Some(Arc::new(ring));
            }
            Policy::LeastRequest(_) | Policy::RoundRobin => {
                members.update(owner, &self.wanted, pool, rng);
            }
        }
        true
    }

    /// Looks at the endpoints again, and connects those it wants.
    ///
    /// A new outcome that equals the last one is dropped, so that pickers keep sharing one list.
    pub(crate) fn refresh(&mut self, pool: &mut Pool<T>) {
        let (members, owner) = (&mut self.members, &self.owner);
        let outcome = match &self.policy {
            Policy::Custom(_) => match &self.selector {
                Some(selector) => custom::refresh(selector, members, owner, pool),
                None => Outcome::failing("no endpoints"),
            },
            Policy::LeastRequest(choices) => least_request::refresh(*choices, members, owner, pool),
            Policy::PickFirst { .. } => pick_first::refresh(members, owner, pool),
            Policy::RingHash {
                request_hash_header,
                ..
            } => match &self.ring {
                Some(ring) => {
                    let header = request_hash_header.as_ref();
                    ring_hash::refresh(ring, header, members, owner, pool)
                }
                None => Outcome::failing("no endpoints"),
            },
            Policy::RoundRobin => round_robin::refresh(members, owner, pool),
        };
        if !outcome.same(&self.outcome) {
            self.outcome = outcome;
        }
    }

    /// Counts one more READY endpoint. Returns whether the next picker can wait for more of them.
    /// Only `round_robin` and `least_request` can wait, because elsewhere calls may wait for this
    /// very endpoint.
    pub(crate) fn gained_little(&mut self) -> bool {
        self.members.gained_little() && self.any_will_do()
    }

    /// Counts one more failing endpoint, which was in state `before`. Returns whether the next
    /// picker can wait for more of them, as with READY endpoints.
    pub(crate) fn lost_little(&mut self, before: Connectivity) -> bool {
        self.members.lost_little(before) && self.any_will_do()
    }

    fn any_will_do(&self) -> bool {
        matches!(self.policy, Policy::LeastRequest(_) | Policy::RoundRobin)
    }

    /// Connects the first IDLE endpoint, if the leaf is IDLE. Returns whether it did.
    pub(crate) fn exit_idle(&mut self, pool: &mut Pool<T>) -> bool {
        if self.outcome.state != Connectivity::Idle {
            return false;
        }
        let wish = match &self.outcome.choice {
            LeafChoice::Custom(custom) => custom.states.first_idle(),
            LeafChoice::RingHash(ring) => ring.states.first_idle(),
            LeafChoice::Wake(wish) => Some(wish),
            _ => None,
        };
        wish.is_some_and(|wish| pool.connect(wish.endpoint()))
    }

    /// The endpoints of the plan that the leaf does not hold, because its hash ring has no room for
    /// them.
    pub(crate) fn unplaced(&self) -> &[Endpoint] {
        &self.unplaced
    }

    /// Ends the leaf, and releases its endpoints.
    pub(crate) fn close(self, pool: &mut Pool<T>) {
        self.members.close(&self.owner, pool);
    }

    /// The number of endpoints that the leaf has looked at so far, as a measure of its work.
    pub(crate) fn visits(&self) -> u64 {
        self.members.visits
    }

    /// Every endpoint once.
    pub(crate) fn views<'a>(
        &'a self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = EndpointView> + 'a {
        self.members.views(&self.owner, pool)
    }

    pub(crate) fn tree(&self, pool: &Pool<T>) -> Tree {
        Tree::leaf_policy(&self.policy)
            .with_state(self.state())
            .with_children(self.members.trees(&self.owner, pool))
    }

    /// The reason why calls fail, if they do.
    pub(crate) fn why(&self) -> Option<&Arc<str>> {
        match &self.outcome.choice {
            LeafChoice::Fail(why) => Some(why),
            LeafChoice::RingHash(ring) => ring.states.why.as_ref(),
            _ => None,
        }
    }
}

impl<T> Outcome<T> {
    pub(crate) fn connecting() -> Self {
        Self {
            state: Connectivity::Connecting,
            choice: LeafChoice::Queue,
        }
    }

    pub(crate) fn failing(why: impl Into<Arc<str>>) -> Self {
        Self {
            state: Connectivity::TransientFailure,
            choice: LeafChoice::Fail(why.into()),
        }
    }

    fn same(&self, other: &Self) -> bool {
        self.state == other.state && self.choice.same(&other.choice)
    }
}

impl<T> LeafChoice<T> {
    pub(crate) fn pick(&self, cx: &CallContext<'_>) -> Pick<T> {
        match self {
            // `Fail` is never picked from, because compiling the tree turns it into `Choice::Fail`.
            Self::Fail(_) | Self::Queue => Pick::Queue,
            Self::Custom(custom) => custom.pick(cx),
            Self::LeastRequest(least) => Pick::Ready(Call::start(least.choose(cx))),
            Self::One(endpoint) => Pick::Ready(Call::start(endpoint)),
            Self::RingHash(ring) => ring.pick(cx),
            Self::RoundRobin(list) => Pick::Ready(Call::start(list.next())),
            Self::Wake(wish) => wish.wait(),
        }
    }

    pub(crate) fn shares(&self, probability: f64, into: &mut Vec<Share>) {
        match self {
            Self::Fail(_) | Self::Queue | Self::Wake(_) => {}
            Self::Custom(custom) => custom.shares(probability, into),
            Self::LeastRequest(least) => into.push(least.list.share(probability)),
            Self::One(endpoint) => into.push(Share {
                cluster: None,
                locality: endpoint.locality.clone(),
                probability,
                endpoints: vec![endpoint.id],
            }),
            Self::RingHash(ring) => ring.shares(probability, into),
            Self::RoundRobin(list) => into.push(list.share(probability)),
        }
    }

    /// Returns whether a pick by either choice has the same outcomes with the same probabilities.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(left), Self::Custom(right)) => {
                Arc::ptr_eq(left, right) || left.same(right)
            }
            (Self::Fail(left), Self::Fail(right)) => left == right,
            (Self::LeastRequest(left), Self::LeastRequest(right)) => {
                Arc::ptr_eq(left, right) || left.same(right)
            }
            (Self::One(left), Self::One(right)) => Arc::ptr_eq(left, right),
            (Self::Queue, Self::Queue) => true,
            (Self::RingHash(left), Self::RingHash(right)) => {
                Arc::ptr_eq(left, right) || left.same(right)
            }
            (Self::RoundRobin(left), Self::RoundRobin(right)) => {
                Arc::ptr_eq(left, right) || left.same(right)
            }
            (Self::Wake(left), Self::Wake(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}

impl<T> Clone for LeafChoice<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Custom(custom) => Self::Custom(custom.clone()),
            Self::Fail(why) => Self::Fail(why.clone()),
            Self::LeastRequest(least) => Self::LeastRequest(least.clone()),
            Self::One(endpoint) => Self::One(endpoint.clone()),
            Self::Queue => Self::Queue,
            Self::RingHash(ring) => Self::RingHash(ring.clone()),
            Self::RoundRobin(list) => Self::RoundRobin(list.clone()),
            Self::Wake(wish) => Self::Wake(wish.clone()),
        }
    }
}
