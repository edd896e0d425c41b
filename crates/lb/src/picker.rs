//! What a tree compiles to: a flat picker that answers in constant time.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{AliasTable, Call, CallContext, ClusterName, EndpointId, LocalityId, leaf::ReadyList};

/// Picks endpoints for the calls of one cluster.
///
/// Immutable but for counters: every change of the tree makes a new picker, so a pick sees one
/// whole state. Nodes that only decide which child is used are compiled away; what remains is at
/// most one weighted choice and one list.
#[derive(Debug)]
pub struct Picker<T> {
    pub(crate) root: Choice<T>,
}

impl<T> Picker<T> {
    /// Picks an endpoint, or says that the call must wait or fail.
    ///
    /// Lock-free and allocation-free; O(1) at any number of endpoints and localities.
    pub fn pick(&self, cx: &CallContext) -> Pick<T> {
        let mut choice = &self.root;
        loop {
            match choice {
                Choice::RoundRobin(list) => return Pick::Ready(Call::start(list.next())),
                Choice::Weighted(weighted) => choice = weighted.choose(cx.random()),
                Choice::Queue => return Pick::Queue,
                Choice::Fail(failure) => return Pick::Fail(failure.clone()),
            }
        }
    }

    /// What share of the calls each list of ready endpoints gets; empty if no call can be sent.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares = Vec::new();
        self.root.shares(1.0, &mut shares);
        shares
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
    /// No endpoint can take the call yet: wait for the next picker.
    Queue,
    /// Fail the call with UNAVAILABLE, unless it waits for ready: then wait for the next picker.
    Fail(Arc<Failure>),
}

/// Why no endpoint can take a call. Made when the tree is compiled, so a failing pick allocates
/// nothing either.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Failure {
    /// The cluster that was picked from.
    pub cluster: ClusterName,
    /// What is wrong.
    pub reason: Arc<str>,
    /// What the resolver had to add.
    pub note: Option<Arc<str>>,
}

impl fmt::Display for Failure {
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
    /// Where the endpoints are.
    pub locality: LocalityId,
    /// The probability that a call goes to one of them.
    pub probability: f64,
    /// The endpoints, in the order of their turns.
    pub endpoints: Vec<EndpointId>,
}

/// One step of a pick.
#[derive(Debug)]
pub(crate) enum Choice<T> {
    RoundRobin(Arc<ReadyList<T>>),
    Weighted(Box<Weighted<T>>),
    Queue,
    Fail(Arc<Failure>),
}

impl<T> Choice<T> {
    /// Whether a pick would have the same outcomes with the same probabilities.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::RoundRobin(left), Self::RoundRobin(right)) => Arc::ptr_eq(left, right),
            (Self::Weighted(left), Self::Weighted(right)) => left.same(right),
            (Self::Queue, Self::Queue) => true,
            (Self::Fail(left), Self::Fail(right)) => left == right,
            _ => false,
        }
    }

    fn shares(&self, probability: f64, into: &mut Vec<Share>) {
        match self {
            Self::RoundRobin(list) => into.push(Share {
                locality: list.locality().clone(),
                probability,
                endpoints: list.endpoints().collect(),
            }),
            Self::Weighted(weighted) => {
                for (index, choice) in weighted.choices.iter().enumerate() {
                    choice.shares(probability * weighted.table.probability(index), into);
                }
            }
            Self::Queue | Self::Fail(_) => {}
        }
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
