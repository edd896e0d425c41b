//! An endpoint as its sessions see it.
//!
//! It is apart from the endpoint's record, because picks on every thread read it while the balancer owns
//! the record.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::{Tick, bell::Bell};
use crate::{
    Call, EndpointId, Health,
    endpoint::{ReadyEndpoint, Wish},
    plan::HealthSet,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

/// An endpoint that sessions can stick to. The balancer writes it; picks read it, and say when they used it.
#[derive(Debug)]
pub(crate) struct Anchor<T> {
    pub(crate) id: EndpointId,
    state: ArcSwap<AnchorState<T>>,
    health: AtomicU8,
    /// When a call of a session last used the endpoint, or waited for it.
    last_used: AtomicU64,
    bell: Bell,
}

/// The state of an endpoint in the order of A75's rule: its own connection, whatever balancing thinks of it.
#[derive(Debug)]
pub(crate) enum AnchorState<T> {
    /// The endpoint has no connection, and neither a leaf nor a call has asked for one.
    Absent(Arc<Wish>),
    Connecting,
    Failing,
    /// The connection was lost, and is not made again until a call wants it.
    Idle(Arc<Wish>),
    Ready(Arc<ReadyEndpoint<T>>),
}

impl<T> Anchor<T> {
    pub(crate) fn new(id: EndpointId, health: Health, state: AnchorState<T>) -> Self {
        Self {
            id,
            state: ArcSwap::from_pointee(state),
            health: AtomicU8::new(HealthSet::of(health).bits()),
            last_used: AtomicU64::new(0),
            bell: Bell::default(),
        }
    }

    /// The set that has nothing but its health.
    pub(super) fn health(&self) -> HealthSet {
        HealthSet::from_bits(self.health.load(Relaxed))
    }

    pub(super) fn state(&self) -> Guard<Arc<AnchorState<T>>> {
        self.state.load()
    }

    /// A call on the connection, if there is one.
    pub(super) fn start_call(&self, at: Tick) -> Option<Call<T>> {
        let AnchorState::Ready(ready) = &**self.state.load() else {
            return None;
        };
        self.used(at);
        Some(Call::start(ready))
    }

    /// A call of a session uses the endpoint. Of the calls of one tick mostly one writes, because all of them
    /// share the cache line.
    pub(crate) fn used(&self, at: Tick) {
        if self.last_used.load(Relaxed) != at {
            self.last_used.store(at, Relaxed);
        }
    }

    /// The last use.
    pub(crate) fn last_used(&self) -> Tick {
        self.last_used.load(Relaxed)
    }

    /// The plan no longer has the endpoint: if it comes back, its sessions are new.
    pub(crate) fn forget_uses(&self) {
        self.last_used.store(0, Relaxed);
    }

    /// A call may have to wait for a change of the endpoint. It must look again after this.
    pub(super) fn listen(&self) {
        self.bell.listen();
    }

    /// Returns whether a call may wait for the change that was just made.
    #[must_use]
    pub(crate) fn ring(&self) -> bool {
        self.bell.ring()
    }

    /// Sets the state, if it is another. Returns whether a call may wait for that.
    #[must_use]
    pub(crate) fn set_state(&self, state: AnchorState<T>) -> bool {
        if self.state.load().same(&state) {
            return false;
        }
        self.state.store(Arc::new(state));
        self.ring()
    }

    /// Sets the health, if it is another. Returns whether a call may wait for that.
    #[must_use]
    pub(crate) fn set_health(&self, health: Health) -> bool {
        let health = HealthSet::of(health).bits();
        self.health.swap(health, Relaxed) != health && self.ring()
    }
}

impl<T> AnchorState<T> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent(left), Self::Absent(right)) | (Self::Idle(left), Self::Idle(right)) => {
                Arc::ptr_eq(left, right)
            }
            (Self::Connecting, Self::Connecting) | (Self::Failing, Self::Failing) => true,
            (Self::Ready(left), Self::Ready(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}
