//! One attempt of a call: the context that a pick is given, and the token that it gives back.
//!
//! Both are values without hidden inputs or outputs, because picks run on every thread at once and a
//! test must be able to repeat them.

use std::{cell::Cell, fmt, net::SocketAddr, sync::Arc, time::Instant};

use xxhash_rust::xxh64::Xxh64;

use crate::{
    BackendMetrics, CallOutcome, ClusterName, EndpointId, LocalityId, Selector,
    endpoint::ReadyEndpoint,
};

/// All that a pick may know about the call.
///
/// It carries the randomness, so that a pick has no hidden input: a channel seeds it from a
/// thread-local generator, a test with a constant.
#[derive(Clone, Debug)]
pub struct CallContext<'a> {
    random: Cell<u64>,
    hash: Option<u64>,
    headers: Option<&'a dyn HashHeader>,
    session: Option<CallSession<'a>>,
}

/// The session of a call (A55): the backend that it sticks to, if it has one yet.
#[derive(Clone, Copy, Debug)]
pub struct CallSession<'a> {
    /// The addresses of the backend, in the order in which they are tried. They are empty if the call is
    /// the first of its session.
    pub addresses: &'a [SocketAddr],
    /// The time of the pick. A connection is kept for as long as sessions use it (A75).
    pub now: Instant,
}

/// The headers of a call, for policies that hash one of them.
pub trait HashHeader: fmt::Debug {
    /// The hash of a header's values ([`hash_values`]), or `None` if the call does not have it.
    fn hash_header(&self, name: &str) -> Option<u64>;
}

/// The hash of the values of a header, as if they were joined by commas (A76): XXH64, without a copy.
/// `None` if there are none, or nothing in them.
///
/// ```
/// use crowfly_lb::hash_values;
///
/// assert_eq!(hash_values([&b"a"[..], b"b"]), hash_values([&b"a,b"[..]]));
/// assert_eq!(hash_values([&b""[..]]), None);
/// ```
pub fn hash_values<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut hash = Xxh64::new(0);
    let mut is_empty = true;
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            hash.update(b",");
        }
        hash.update(value);
        is_empty &= index == 0 && value.is_empty();
    }
    (!is_empty).then(|| hash.digest())
}

impl<'a> CallContext<'a> {
    /// The context of one attempt, with its own sequence of random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Cell::new(seed),
            hash: None,
            headers: None,
            session: None,
        }
    }

    /// Adds the hash of the call. Calls of one hash belong together, so it is the same for every pick
    /// of a call.
    pub fn with_hash(self, hash: u64) -> Self {
        Self {
            hash: Some(hash),
            ..self
        }
    }

    /// Adds the headers of the call, for policies that hash one of them.
    pub fn with_headers<'b>(self, headers: &'b dyn HashHeader) -> CallContext<'b>
    where
        'a: 'b,
    {
        CallContext {
            headers: Some(headers),
            ..self
        }
    }

    /// Says that the call belongs to a session, which sticks to the backend with one of these addresses
    /// (A55, A60). A session that has no backend yet gives none: its call goes anywhere, and the
    /// [addresses](Call::session_addresses) of the picked backend are those to stick to.
    ///
    /// Only a call of a session says the time, because nothing else of a pick depends on it.
    pub fn with_session(self, addresses: &'a [SocketAddr], now: Instant) -> Self {
        Self {
            session: Some(CallSession { addresses, now }),
            ..self
        }
    }

    /// The session of the call; `None` if no filter keeps one.
    pub fn session(&self) -> Option<CallSession<'a>> {
        self.session
    }

    /// The hash that the call was given.
    pub fn hash(&self) -> Option<u64> {
        self.hash
    }

    /// The hash of a header of the call.
    pub fn hash_header(&self, name: &str) -> Option<u64> {
        self.headers?.hash_header(name)
    }

    /// The next random number: SplitMix64, which makes a good number of any seed, 0 included.
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The token of one attempt on one endpoint. Dropping it ends the attempt.
///
/// A token that is dropped without a word was [cancelled](CallOutcome::Cancelled). It costs one
/// reference count and no allocation, whatever it settles when it is dropped.
pub struct Call<T> {
    endpoint: Arc<ReadyEndpoint<T>>,
    wakes: Option<EndpointId>,
    /// The policy that hears of the end, and its number for the endpoint.
    observer: Option<(Arc<dyn Selector>, usize)>,
    outcome: CallOutcome,
}

impl<T> Call<T> {
    pub(crate) fn start(endpoint: &Arc<ReadyEndpoint<T>>) -> Self {
        endpoint.start_call();
        Self {
            endpoint: endpoint.clone(),
            wakes: None,
            observer: None,
            outcome: CallOutcome::Cancelled,
        }
    }

    /// Makes the call ask for another endpoint to be connected.
    pub(crate) fn waking(mut self, other: Option<EndpointId>) -> Self {
        self.wakes = other;
        self
    }

    /// Lets a policy of the user's hear of the end.
    pub(crate) fn observed(mut self, selector: &Arc<dyn Selector>, index: usize) -> Self {
        self.observer = Some((selector.clone(), index));
        self
    }

    /// Ends the attempt with this outcome, because policies learn from it.
    pub fn finish(mut self, outcome: CallOutcome) {
        self.will_end(outcome);
    }

    /// Sets the outcome that the attempt has when the token is dropped. It is for an attempt whose
    /// outcome is known before its end, such as a response whose head carries its status.
    pub fn will_end(&mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }

    /// Returns whether load reports propagate metrics that the backend sends with the end of the attempt. They
    /// need not be read otherwise.
    pub fn wants_metrics(&self) -> bool {
        self.endpoint.wants_metrics()
    }

    /// Adds the metrics that came with the end of the attempt to the load of the cluster (A64, A85).
    pub fn record_metrics(&self, metrics: &BackendMetrics<'_>) {
        self.endpoint.record_metrics(metrics);
    }

    /// Another endpoint that should be connected for calls to come: tell the balancer
    /// ([`BalancerEvent::Demand`](crate::BalancerEvent::Demand)). Only `ring_hash` asks for that, for
    /// calls without a hash (A76).
    pub fn wakes(&self) -> Option<EndpointId> {
        self.wakes
    }

    /// The connection to send the call on.
    pub fn transport(&self) -> &T {
        &self.endpoint.transport
    }

    /// The endpoint that was picked.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint.id
    }

    /// The addresses of the endpoint, the main one first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.endpoint.addresses
    }

    /// The address of the endpoint that is connected.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// The addresses that a session sticks to from this call on: the connected one first, then the others
    /// of the endpoint (A61).
    pub fn session_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let connected = self.address();
        let others = self.addresses().iter().copied();
        std::iter::once(connected).chain(others.filter(move |address| *address != connected))
    }

    /// The leaf cluster that the endpoint belongs to; `None` if the plan names none. Metrics call it the
    /// backend service (A89).
    pub fn cluster(&self) -> Option<&ClusterName> {
        self.endpoint.cluster()
    }

    /// The locality that the endpoint was in when it was picked. It may have moved since.
    pub fn locality(&self) -> &LocalityId {
        &self.endpoint.locality
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.endpoint.finish_call(self.outcome);
        if let Some((selector, index)) = &self.observer {
            selector.finished(*index, self.outcome);
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("endpoint", &self.endpoint())
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}
