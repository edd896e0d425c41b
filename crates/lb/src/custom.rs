//! Policies of the user's own.
//!
//! A policy is asked three things: what it needs to know about a list of endpoints
//! ([`CustomPolicy::build`]), which of them to connect ([`Selector::wants`]), and where a call goes
//! ([`Selector::pick`]). All else (connections, states, lists, counters, publishing) is done for it.

use std::fmt;

use crate::{CallContext, Connectivity, Endpoint};

/// A balancing policy, with its configuration. Two are equal if they are the same object.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
/// # use crowfly_lb::{CallContext, CallOutcome, CustomPolicy, Endpoint, Policy, ReadySet, Selection, Selector};
///
/// /// Avoids endpoints that have failed more calls than others.
/// #[derive(Debug)]
/// struct FewestErrors;
///
/// #[derive(Debug)]
/// struct Errors(Box<[AtomicU64]>);
///
/// impl CustomPolicy for FewestErrors {
///     fn name(&self) -> &str {
///         "fewest_errors"
///     }
///
///     fn build(&self, endpoints: &[Endpoint]) -> Arc<dyn Selector> {
///         Arc::new(Errors(endpoints.iter().map(|_| AtomicU64::new(0)).collect()))
///     }
/// }
///
/// impl Selector for Errors {
///     fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
///         let best = ready.iter().min_by_key(|endpoint| self.0[endpoint.index()].load(Relaxed));
///         best.map_or(Selection::Queue, Selection::Send)
///     }
///
///     fn finished(&self, endpoint: usize, outcome: CallOutcome) {
///         if let CallOutcome::Status(code) = outcome && code != 0 {
///             self.0[endpoint].fetch_add(1, Relaxed);
///         }
///     }
/// }
///
/// let policy = Policy::Custom(Arc::new(FewestErrors));
/// assert_eq!(policy.name(), "fewest_errors");
/// ```
pub trait CustomPolicy: fmt::Debug + Send + Sync {
    /// What it is called in trees. A policy of another name replaces this one gracefully; one of the
    /// same name takes over its connections.
    fn name(&self) -> &str;

    /// A selector for a list of endpoints, each of which comes once. Selectors name endpoints by
    /// their place in this list.
    fn build(&self, endpoints: &[Endpoint]) -> std::sync::Arc<dyn Selector>;
}

impl PartialEq for dyn CustomPolicy {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

/// Chooses among the endpoints of one list.
pub trait Selector: fmt::Debug + Send + Sync {
    /// Whether an endpoint that is IDLE is to be connected now, given the states of all; asked after
    /// every change. Unless it is said otherwise, all are.
    fn wants(&self, _endpoint: usize, _states: &[Connectivity]) -> bool {
        true
    }

    /// Where a call goes. It is asked for every call, by many threads: it should not lock, allocate
    /// or wait. If all endpoints are failing it is not asked.
    fn pick<'a>(&self, cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a>;

    /// A call that this selector chose the endpoint for has ended.
    fn finished(&self, _endpoint: usize, _outcome: CallOutcome) {}
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CallOutcome {
    /// With this gRPC status code; 0 is OK.
    Status(i32),
    /// Nobody said: it was cancelled, or never sent.
    Unknown,
}

/// What a selector decides.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// The call waits, and this endpoint is connected, if it is IDLE.
    Connect(usize),
    /// The call waits.
    Queue,
    /// The call is sent here.
    Send(ReadyRef<'a>),
}

/// The endpoints that are READY, in the order of the list; there may be none.
#[derive(Clone, Copy, Debug)]
pub struct ReadySet<'a> {
    pub(crate) view: &'a dyn ReadyView,
}

impl<'a> ReadySet<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.view.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// One of them, by its place among those that are READY.
    pub fn get(self, place: usize) -> Option<ReadyRef<'a>> {
        let view = self.view;
        (place < view.len()).then_some(ReadyRef { view, place })
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = ReadyRef<'a>> {
        (0..self.len()).filter_map(move |place| self.get(place))
    }
}

/// An endpoint that is READY. There is no other way to get one than from the [`ReadySet`] of a pick,
/// so a call is never sent to one that is not.
#[derive(Clone, Copy, Debug)]
pub struct ReadyRef<'a> {
    view: &'a dyn ReadyView,
    pub(crate) place: usize,
}

impl ReadyRef<'_> {
    /// Its place in the list that the selector was built for.
    pub fn index(self) -> usize {
        self.view.index(self.place)
    }

    /// How many calls it has open.
    pub fn in_flight(self) -> u64 {
        self.view.in_flight(self.place)
    }
}

/// Ready endpoints without what calls are sent on.
pub(crate) trait ReadyView: fmt::Debug {
    fn len(&self) -> usize;
    fn index(&self, place: usize) -> usize;
    fn in_flight(&self, place: usize) -> u64;
}
