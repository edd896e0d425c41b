//! The picker that a tree is compiled to. It is apart from the tree, because calls pick on many
//! threads at once and must neither lock nor walk through the tree.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{
    AliasTable, Call, CallContext, ClusterName, Demand, EndpointId, LocalityId,
    counters::CallCounter,
    leaf::LeafChoice,
    load::DropCounters,
    node::ClusterImpl,
    override_host::Sessions,
    plan::{ClusterPlan, DropCategory},
};

/// Picks endpoints for the calls of one cluster.
///
/// Two parts of a picker change: its counters, and the map of endpoints that sessions use (`override_host`).
/// Everything else is fixed, and each change of the tree makes a new picker. So a pick never sees half of a change. A
/// node that only chooses a child has no part in the picker, because the tree has chosen already. At most three steps
/// remain for a pick: drops and limit, the choice of a locality by weight, and the choice of an endpoint.
#[derive(Debug)]
pub struct Picker<T> {
    pub(crate) root: Choice<T>,
}

impl<T> Picker<T> {
    /// Picks an endpoint, or says that the call must wait or fail.
    ///
    /// Lock-free and allocation-free; the work does not grow with the number of endpoints.
    pub fn pick(&self, cx: &CallContext) -> Pick<T> {
        self.root.pick(cx)
    }

    /// The reason why calls fail, if they do. Asking does not count as a pick.
    pub fn failure(&self) -> Option<&Arc<PickFailure>> {
        self.root.failure()
    }

    /// The share of the calls that each list of READY endpoints gets; empty if no call can be sent.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares = Vec::new();
        self.root.shares(1.0, &mut shares);
        shares
    }

    /// The reason why every call is dropped, even if endpoints are READY: a category drops all
    /// calls, or the limit of open calls is 0. `None` if some calls pass.
    pub fn drops_all(&self) -> Option<Dropped> {
        match &self.root {
            Choice::Gate(gate) => gate.drops_all(),
            Choice::Fail(_) | Choice::Leaf(_) | Choice::Weighted(_) => None,
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.root.same(&other.root)
    }
}

/// The outcome of a pick.
#[derive(Debug)]
pub enum Pick<T> {
    /// Send the call on this endpoint.
    Ready(Call<T>),
    /// Fail the call with UNAVAILABLE, whether or not it waits for ready.
    Drop(Dropped),
    /// Fail the call with UNAVAILABLE, unless it waits for ready: then wait for the next picker.
    Fail(Arc<PickFailure>),
    /// No endpoint can take the call yet: wait for the next picker.
    Queue,
    /// No endpoint can take the call until this is done: wait for the next picker, and tell the
    /// balancer of the demand ([`BalancerEvent::Demand`](crate::BalancerEvent::Demand)).
    Wake(Demand),
}

/// The reason why a call was dropped (A27, A32).
#[derive(Clone, PartialEq, Debug)]
pub struct Dropped {
    /// The cluster that dropped it.
    pub cluster: Arc<ClusterPlan>,
    /// The rule that dropped the call.
    pub cause: DropCause,
}

/// The rules that can drop a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DropCause {
    /// The drop category that the call fell into.
    Category(Arc<str>),
    /// The circuit breaker of the cluster: too many calls are open.
    Limit {
        /// The number of open calls.
        open: u64,
    },
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterPlan {
            name,
            max_concurrent_requests,
            ..
        } = &*self.cluster;
        match &self.cause {
            DropCause::Category(category) => {
                write!(f, "cluster {name}: dropped by category {category}")
            }
            DropCause::Limit { open } => write!(
                f,
                "cluster {name}: circuit breaker: open calls {open}, limit {max_concurrent_requests}"
            ),
        }
    }
}

/// The reason why no endpoint can take a call. Made when the tree is compiled, so a failing pick
/// allocates nothing either.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct PickFailure {
    /// The cluster that was picked from.
    pub cluster: ClusterName,
    /// The reason, such as the last failure to connect.
    pub reason: Arc<str>,
    /// The resolution note of the plan (A88), if it has one.
    pub note: Option<Arc<str>>,
}

impl fmt::Display for PickFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {}: {}", self.cluster, self.reason)?;
        match &self.note {
            Some(note) => write!(f, " ({note})"),
            None => Ok(()),
        }
    }
}

/// A part of the calls, and the endpoints that take it in turn.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// The leaf cluster whose drops and limit they are behind, if there is one.
    pub cluster: Option<ClusterName>,
    /// The locality of the endpoints.
    pub locality: LocalityId,
    /// The probability that a call goes to one of them.
    pub probability: f64,
    /// The endpoints, in the order of their turns.
    pub endpoints: Vec<EndpointId>,
}

/// One step of a pick.
#[derive(Debug)]
pub(crate) enum Choice<T> {
    Fail(Arc<PickFailure>),
    Gate(Box<Gate<T>>),
    Leaf(LeafChoice<T>),
    Weighted(Box<Weighted<T>>),
}

impl<T> Choice<T> {
    #[inline]
    fn pick(&self, cx: &CallContext<'_>) -> Pick<T> {
        let mut choice = self;
        loop {
            match choice {
                Self::Fail(failure) => return Pick::Fail(failure.clone()),
                Self::Gate(gate) => {
                    if let Some(dropped) = gate.refusal(cx) {
                        return Pick::Drop(dropped);
                    }
                    match &gate.sessions {
                        Some(sessions) if cx.session().is_some() => {
                            return gate.child.pick_of_session(sessions, cx);
                        }
                        _ => choice = &gate.child,
                    }
                }
                Self::Leaf(leaf) => return leaf.pick(cx),
                Self::Weighted(weighted) => choice = weighted.choose(cx.random()),
            }
        }
    }

    /// Picks for a call that may belong to a session. It is apart, because a pick that calls itself is not inlined.
    #[inline(never)]
    fn pick_of_session(&self, sessions: &Sessions<T>, cx: &CallContext<'_>) -> Pick<T> {
        match cx.session() {
            Some(session) => sessions.pick(&session, || self.pick(cx)),
            None => self.pick(cx),
        }
    }

    /// Gives all calls that fail this failure. Calls that wait still wait.
    pub(crate) fn fail_with(&mut self, failure: &Arc<PickFailure>) {
        match self {
            Self::Fail(own) => *own = failure.clone(),
            Self::Gate(gate) => gate.child.fail_with(failure),
            Self::Leaf(_) => {}
            Self::Weighted(weighted) => {
                let fails = |choice: &Self| matches!(choice, Self::Fail(_));
                if weighted.choices.iter().all(fails) {
                    *self = Self::Fail(failure.clone());
                } else {
                    let choices = weighted.choices.iter_mut();
                    choices.for_each(|choice| choice.fail_with(failure));
                }
            }
        }
    }

    fn failure(&self) -> Option<&Arc<PickFailure>> {
        match self {
            Self::Fail(failure) => Some(failure),
            Self::Gate(gate) => gate.child.failure(),
            Self::Leaf(_) => None,
            Self::Weighted(weighted) => weighted.choices.iter().find_map(Self::failure),
        }
    }

    /// Returns whether a pick by either choice has the same outcomes with the same probabilities.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fail(left), Self::Fail(right)) => left == right,
            (Self::Gate(left), Self::Gate(right)) => left.same(right),
            (Self::Leaf(left), Self::Leaf(right)) => left.same(right),
            (Self::Weighted(left), Self::Weighted(right)) => left.same(right),
            _ => false,
        }
    }

    fn shares(&self, probability: f64, into: &mut Vec<Share>) {
        match self {
            Self::Fail(_) => {}
            Self::Gate(gate) => {
                let before = into.len();
                gate.child.shares(probability * gate.passing(), into);
                for share in &mut into[before..] {
                    share.cluster = Some(gate.cluster.name.clone());
                }
            }
            Self::Leaf(leaf) => leaf.shares(probability, into),
            Self::Weighted(weighted) => {
                for (index, choice) in weighted.choices.iter().enumerate() {
                    choice.shares(probability * weighted.table.probability(index), into);
                }
            }
        }
    }
}

/// The checks that every call of a leaf cluster has to pass: first the drops, then the limit of
/// open calls (A32). A call of a session that passes may go to its own endpoint (A75).
#[derive(Debug)]
pub(crate) struct Gate<T> {
    cluster: Arc<ClusterPlan>,
    open: Arc<CallCounter>,
    /// Counts the drops for load reports, if somebody wants them.
    drops: Option<Arc<DropCounters>>,
    sessions: Option<Arc<Sessions<T>>>,
    child: Choice<T>,
}

impl<T> Gate<T> {
    pub(crate) fn new(
        cluster: &ClusterImpl,
        sessions: Option<&Arc<Sessions<T>>>,
        child: Choice<T>,
    ) -> Self {
        cluster
            .counter
            .expect_limit(cluster.plan.max_concurrent_requests);
        Self {
            cluster: cluster.plan.clone(),
            open: cluster.counter.clone(),
            drops: cluster.drops.clone(),
            sessions: sessions.cloned(),
            child,
        }
    }

    /// Tries the drop categories one after the other, each with its own random number. The limit is
    /// soft: calls that start at the same moment may pass it together.
    ///
    /// Inlined, because the answer is `None` for most calls, and a caller would read it from memory.
    #[inline]
    fn refusal(&self, cx: &CallContext) -> Option<Dropped> {
        for (index, drop) in self.cluster.drops.iter().enumerate() {
            if cx.random() % u64::from(DropCategory::ALL) < u64::from(drop.per_million) {
                return Some(self.drop_by_category(index, drop));
            }
        }
        let open = self.open.open_at(self.cluster.max_concurrent_requests)?;
        Some(self.drop_by_limit(open))
    }

    #[cold]
    fn drop_by_category(&self, index: usize, category: &DropCategory) -> Dropped {
        if let Some(drops) = &self.drops {
            drops.count_category(index);
        }
        self.dropped(DropCause::Category(category.name.clone()))
    }

    #[cold]
    fn drop_by_limit(&self, open: u64) -> Dropped {
        if let Some(drops) = &self.drops {
            drops.count_uncategorized();
        }
        self.dropped(DropCause::Limit { open })
    }

    fn drops_all(&self) -> Option<Dropped> {
        let mut drops = self.cluster.drops.iter();
        let all = drops.find(|drop| drop.per_million >= DropCategory::ALL);
        let cause = match all {
            Some(drop) => DropCause::Category(drop.name.clone()),
            None if self.cluster.max_concurrent_requests == 0 => DropCause::Limit {
                open: self.open.open(),
            },
            None => return None,
        };
        Some(self.dropped(cause))
    }

    /// The share of calls that no category drops.
    fn passing(&self) -> f64 {
        let drops = self.cluster.drops.iter();
        let passing = |drop: &DropCategory| {
            let share = f64::from(drop.per_million) / f64::from(DropCategory::ALL);
            1.0 - share.min(1.0)
        };
        drops.map(passing).product()
    }

    fn dropped(&self, cause: DropCause) -> Dropped {
        Dropped {
            cluster: self.cluster.clone(),
            cause,
        }
    }

    fn same(&self, other: &Self) -> bool {
        let (left, right) = (&self.cluster, &other.cluster);
        Arc::ptr_eq(&self.open, &other.open)
            && self.drops.as_ref().map(Arc::as_ptr) == other.drops.as_ref().map(Arc::as_ptr)
            && left.drops == right.drops
            && left.max_concurrent_requests == right.max_concurrent_requests
            && self.sessions.as_ref().map(Arc::as_ptr) == other.sessions.as_ref().map(Arc::as_ptr)
            && self.child.same(&other.child)
    }
}

/// A random choice by weight.
#[derive(Debug)]
pub(crate) struct Weighted<T> {
    table: AliasTable,
    choices: Box<[Choice<T>]>,
}

impl<T> Weighted<T> {
    /// The choices with their weights, or `None` if there are none.
    pub(crate) fn new(members: Vec<(NonZeroU32, Choice<T>)>) -> Option<Self> {
        let (weights, choices): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        Some(Self {
            table: AliasTable::new(&weights)?,
            choices: choices.into(),
        })
    }

    fn choose(&self, random: u64) -> &Choice<T> {
        &self.choices[self.table.choose(random)]
    }

    fn same(&self, other: &Self) -> bool {
        self.table == other.table
            && self.choices.len() == other.choices.len()
            && self
                .choices
                .iter()
                .zip(&other.choices)
                .all(|(left, right)| left.same(right))
    }
}
