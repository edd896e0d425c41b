//! One attempt of a call: what a pick is given, and what it gives back.

use std::{cell::Cell, fmt, net::SocketAddr, sync::Arc};

use crate::{EndpointId, LocalityId, endpoint::ReadyEndpoint};

/// What a pick may know about the call.
///
/// It carries the randomness, so that a pick has no hidden input: a channel seeds it from a
/// thread-local generator, a test with a constant.
#[derive(Debug)]
pub struct CallContext {
    random: Cell<u64>,
}

impl CallContext {
    /// The context of one attempt, with its own sequence of random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Cell::new(seed),
        }
    }

    /// The next random number: SplitMix64, which makes a good number of any seed, 0 included.
    pub(crate) fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The token of one attempt on one endpoint. Dropping it ends the attempt.
///
/// It costs one reference count and no allocation, whatever it settles when it is dropped.
pub struct Call<T> {
    endpoint: Arc<ReadyEndpoint<T>>,
}

impl<T> Call<T> {
    pub(crate) fn start(endpoint: &Arc<ReadyEndpoint<T>>) -> Self {
        endpoint.start_call();
        Self {
            endpoint: endpoint.clone(),
        }
    }

    /// What to send the call on.
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

    /// Where the endpoint is.
    pub fn locality(&self) -> &LocalityId {
        &self.endpoint.locality
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.endpoint.finish_call();
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
