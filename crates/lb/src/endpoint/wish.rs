//! The wish for a connection, which a call leaves behind when it finds an IDLE endpoint.
//!
//! It exists so that of many calls at once only one asks the balancer to connect the endpoint. A
//! pick takes no lock for that.

use super::EndpointId;
use crate::{
    Pick,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The wish for a connection to an IDLE endpoint. Of all calls that share it, the first one must
/// pass it on to the balancer.
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

    /// The endpoint, for the first call that asks; `None` for all others.
    pub(crate) fn tell(&self) -> Option<EndpointId> {
        let told = self.told.load(Relaxed) || self.told.swap(true, Relaxed);
        (!told).then_some(self.endpoint)
    }

    /// The pick of a call that has to wait for the endpoint.
    pub(crate) fn wait<T>(&self) -> Pick<T> {
        self.tell().map_or(Pick::Queue, |id| Pick::Wake(id.into()))
    }

    /// Returns whether a call has been told to pass the wish on.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }
}

#[cfg(all(test, crowfly_loom))]
mod interleavings {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::slots::Slots;

    /// Exactly one call passes a wish on. Two would ask for two connections, and none for no
    /// connection.
    #[test]
    fn of_calls_at_the_same_time_one_is_told() {
        loom::model(|| {
            let wish = Arc::new(Wish::new(EndpointId(Slots::new().insert(()))));
            let calls = [(); 2].map(|()| {
                let wish = Arc::clone(&wish);
                thread::spawn(move || wish.tell().is_some())
            });
            let told_here = wish.tell().is_some();
            let told = calls.map(|call| call.join().unwrap());
            let told = usize::from(told_here) + told.into_iter().filter(|told| *told).count();
            assert_eq!(told, 1);
        });
    }
}
