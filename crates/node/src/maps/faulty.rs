//! Maps whose changes fail when a test says so.

use super::{Counters, Dump, MapError, Maps, Operation, Pair};

/// Maps that ask before each change whether it may happen, and show every state that they were in.
#[derive(Debug)]
pub struct FaultyMaps<M, F, W> {
    /// The maps behind.
    pub maps: M,
    /// True if the next change is to fail.
    pub fails: F,
    /// Sees the maps after each change.
    pub watch: W,
}

impl<M, F, W> Maps for FaultyMaps<M, F, W>
where
    M: Maps,
    F: FnMut(&Operation) -> bool,
    W: FnMut(&Operation, &M),
{
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        if (self.fails)(operation) {
            return Err(MapError {
                map: operation.map(),
                is_full: false,
                reason: "a fault of the test".to_owned(),
            });
        }
        self.maps.apply(operation)?;
        (self.watch)(operation, &self.maps);
        Ok(())
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.maps.dump()
    }

    fn holds(&self, operation: &Operation) -> Result<bool, MapError> {
        self.maps.holds(operation)
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        self.maps.counters()
    }
}
