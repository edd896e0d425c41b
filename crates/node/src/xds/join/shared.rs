//! Equal values, kept once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Policy, PortName};

/// The number of values from which on those are looked for that nobody uses any more.
const MANY: usize = 64;

/// Parts that the services of a server have in common, because most of them have the same.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) policies: Shared<Policy>,
    /// The ports of backends.
    pub(super) ports: Shared<BTreeMap<PortName, u16>>,
}

/// Values that are shared by whoever has an equal one.
#[derive(Debug)]
pub(super) struct Shared<T> {
    known: BTreeSet<Arc<T>>,
    /// The number at which unused ones are forgotten.
    limit: usize,
}

impl<T: Ord> Shared<T> {
    /// The value that is known already and equal, or else this one.
    pub(super) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            // So that a value costs no more than two looks.
            self.limit = (2 * self.known.len()).max(MANY);
        }
        self.known.insert(Arc::clone(&value));
        value
    }
}

impl<T> Default for Shared<T> {
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
        let mut shared = Shared::default();
        let kept: Vec<_> = (0..MANY).map(|it| shared.share(Arc::new(it))).collect();
        assert!(Arc::ptr_eq(&kept[7], &shared.share(Arc::new(7))));
        for other in 0..10 * MANY {
            shared.share(Arc::new(MANY + other));
            assert!(shared.known.len() <= 2 * MANY);
        }
        assert!(Arc::ptr_eq(&kept[7], &shared.share(Arc::new(7))));
    }
}
