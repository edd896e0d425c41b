//! Keeps one of several equal values, because most services of a server have the same policies and ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Policy, PortName};

/// The number of values at which an interner begins to look for those that nobody uses any more.
const MANY: usize = 64;

/// The interners that all services of a server share.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) policies: Interner<Policy>,
    /// The ports of backends.
    pub(super) ports: Interner<BTreeMap<PortName, u16>>,
}

/// A set of values that hands out one copy of equal ones.
#[derive(Debug)]
pub(super) struct Interner<T> {
    known: BTreeSet<Arc<T>>,
    /// The number of values at which unused ones are forgotten.
    limit: usize,
}

impl<T: Ord> Interner<T> {
    /// The value that is known already and equal, or else this one.
    pub(super) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            // The limit grows with the set, so that looking at all values stays cheap for each new one.
            self.limit = (2 * self.known.len()).max(MANY);
        }
        self.known.insert(Arc::clone(&value));
        value
    }
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            known: BTreeSet::new(),
            limit: MANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_forgotten() {
        let mut interner = Interner::default();
        let kept: Vec<_> = (0..MANY).map(|it| interner.share(Arc::new(it))).collect();
        assert!(Arc::ptr_eq(&kept[7], &interner.share(Arc::new(7))));
        for other in 0..10 * MANY {
            interner.share(Arc::new(MANY + other));
            assert!(interner.known.len() <= 2 * MANY);
        }
        assert!(Arc::ptr_eq(&kept[7], &interner.share(Arc::new(7))));
    }
}
