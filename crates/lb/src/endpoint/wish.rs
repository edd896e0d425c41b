//! What a call that finds no connection leaves behind.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::EndpointId;

/// The wish for a connection that nobody is making. Of all calls that share it, one is told to pass
/// it on.
#[derive(Debug)]
pub(crate) struct Wish {
    endpoint: EndpointId,
    told: AtomicBool,
}

impl Wish {
    pub(crate) fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            told: AtomicBool::new(false),
        }
    }

    /// The endpoint, for the first who asks.
    pub(crate) fn tell(&self) -> Option<EndpointId> {
        let told = self.told.load(Relaxed) || self.told.swap(true, Relaxed);
        (!told).then_some(self.endpoint)
    }

    /// Whether a call was told to pass it on.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }
}
