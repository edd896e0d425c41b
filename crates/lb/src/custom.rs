//! Policies of the user's own.
//!
//! [`CustomPolicy::build`] makes a selector for a list of endpoints. [`Selector::wants`] says which
//! of them to connect, and [`Selector::pick`] where a call goes. [`Selector::finished`] tells it
//! how each of its attempts ended. The balancer does everything else: connections, states, lists,
//! counters and publishing.

use std::fmt;

use crate::{CallContext, CallOutcome, Connectivity, Endpoint};

/// A balancing policy, with its configuration. Two are equal if they are the same object.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
/// # use crowfly_lb::{CallContext, CallOutcome, Counted, CustomPolicy, Endpoint, Policy, ReadySet, Selection, Selector};
///
/// /// Avoids endpoints that have failed more attempts than others.
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
///         // An attempt that was never sent says nothing about its endpoint.
///         if outcome.for_outlier_detection() == Some(Counted::Failure) {
///             self.0[endpoint].fetch_add(1, Relaxed);
///         }
///     }
/// }
///
/// let policy = Policy::Custom(Arc::new(FewestErrors));
/// assert_eq!(policy.name(), "fewest_errors");
/// ```
pub trait CustomPolicy: fmt::Debug + Send + Sync {
    /// The name of the policy in trees. A policy of another name replaces this one gracefully; one of
    /// the same name takes over its connections.
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
    /// Decides if an endpoint that is IDLE is to be connected now, given the states of all endpoints.
    /// It is asked after every change. The default connects all of them.
    fn wants(&self, _endpoint: usize, _states: &[Connectivity]) -> bool {
        true
    }

    /// Decides where a call goes. It should not lock, allocate or wait, because it is asked for every
    /// call and by many threads. It is not asked while all endpoints are failing.
    fn pick<'a>(&self, cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a>;

    /// An attempt that this selector chose the endpoint for has ended.
    ///
    /// It is told once for each [`Selection::Send`]. A call that is sent again is picked again, so it has
    /// an outcome for each attempt.
    fn finished(&self, _endpoint: usize, _outcome: CallOutcome) {}
}

/// The decision of a selector for one call.
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
    /// The number of READY endpoints.
    pub fn len(self) -> usize {
        self.view.len()
    }

    /// True if no endpoint is READY.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The READY endpoint at this place among the READY ones.
    pub fn get(self, place: usize) -> Option<ReadyRef<'a>> {
        let view = self.view;
        (place < view.len()).then_some(ReadyRef { view, place })
    }

    /// All READY endpoints, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = ReadyRef<'a>> {
        (0..self.len()).filter_map(move |place| self.get(place))
    }
}

/// An endpoint that is READY. A selector gets it only from the [`ReadySet`] of a pick. So a call is
/// never sent to an endpoint that is not READY.
#[derive(Clone, Copy, Debug)]
pub struct ReadyRef<'a> {
    view: &'a dyn ReadyView,
    pub(crate) place: usize,
}

impl ReadyRef<'_> {
    /// The endpoint's place in the list that the selector was built for.
    pub fn index(self) -> usize {
        self.view.index(self.place)
    }

    /// The number of calls that are open on the endpoint.
    pub fn in_flight(self) -> u64 {
        self.view.in_flight(self.place)
    }
}

/// READY endpoints without the type of their connections, because a selector is not generic over it.
pub(crate) trait ReadyView: fmt::Debug {
    fn len(&self) -> usize;
    fn index(&self, place: usize) -> usize;
    fn in_flight(&self, place: usize) -> u64;
}
