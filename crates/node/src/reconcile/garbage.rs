//! Entries that no frontend leads to any more, and that programs under way may still read.

use crate::maps::{BackendId, Operation, Pair, SlotKey};

/// An entry that may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waste {
    Slot(SlotKey),
    Backend(BackendId),
    Member(Pair),
}

impl Waste {
    pub(super) fn operation(&self) -> Operation {
        match *self {
            Self::Slot(key) => Operation::DeleteSlot(key),
            Self::Backend(id) => Operation::DeleteBackend(id),
            Self::Member(pair) => Operation::DeleteMember(pair),
        }
    }
}

/// Entries to delete. The next sweep deletes those in `ripe`, and the sweep after it those in `fresh`.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    ripe: Vec<Waste>,
    fresh: Vec<Waste>,
}

impl Garbage {
    /// Adds what programs may be reading now.
    pub(super) fn add(&mut self, waste: Waste) {
        self.fresh.push(waste);
    }

    /// Adds what no program reads.
    pub(super) fn keep(&mut self, waste: Waste) {
        self.ripe.push(waste);
    }

    /// Takes the entries that this sweep deletes. The next sweep deletes the others.
    pub(super) fn take_ripe(&mut self) -> Vec<Waste> {
        let fresh = std::mem::take(&mut self.fresh);
        std::mem::replace(&mut self.ripe, fresh)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ripe.is_empty() && self.fresh.is_empty()
    }

    /// The number of slots in it.
    pub(super) fn slots(&self) -> usize {
        let slots = self.all().filter(|waste| matches!(waste, Waste::Slot(_)));
        slots.count()
    }

    /// The numbers of services that it refers to.
    pub(super) fn services(&self) -> impl Iterator<Item = u32> {
        self.all().filter_map(|waste| match waste {
            Waste::Slot(key) => Some(key.service.0),
            Waste::Member(pair) => Some(pair.service.0),
            Waste::Backend(_) => None,
        })
    }

    /// The numbers of generations that it refers to.
    pub(super) fn generations(&self) -> impl Iterator<Item = u32> {
        self.all().filter_map(|waste| match waste {
            Waste::Slot(key) => Some(key.generation.0),
            Waste::Member(_) | Waste::Backend(_) => None,
        })
    }

    /// The numbers of backends that its members refer to.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        self.all().filter_map(|waste| match waste {
            Waste::Member(pair) => Some(pair.backend.0),
            Waste::Slot(_) | Waste::Backend(_) => None,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Waste> {
        self.ripe.iter().chain(&self.fresh)
    }
}
