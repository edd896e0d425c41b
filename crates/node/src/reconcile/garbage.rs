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

/// Entries to delete. The next sweep deletes those in `due`, and the sweep after it those in `new`.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    due: Vec<Waste>,
    new: Vec<Waste>,
}

impl Garbage {
    /// Adds what programs may be reading now.
    pub(super) fn add(&mut self, waste: Waste) {
        self.new.push(waste);
    }

    /// Adds what no program reads.
    pub(super) fn keep(&mut self, waste: Waste) {
        self.due.push(waste);
    }

    /// Takes the entries that this sweep deletes. The next sweep deletes the others.
    pub(super) fn take_due(&mut self) -> Vec<Waste> {
        let new = std::mem::take(&mut self.new);
        std::mem::replace(&mut self.due, new)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty() && self.new.is_empty()
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
        self.due.iter().chain(&self.new)
    }
}
