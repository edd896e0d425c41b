//! The maps that the eBPF programs read, without the kernel.
//!
//! [`Maps`] is what the rest of the agent knows of them. The kernel's are behind it, and so are a
//! version in memory and a faulty one, which tests use. Every operation either happens whole or not at
//! all.

#[cfg(target_os = "linux")]
pub mod ebpf;
pub mod faulty;
pub mod layout;
pub mod memory;
pub mod reports;

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use crate::select::{Frontend, Without};

/// The number of a frontend's entry. Counters and sockets refer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// The number of a backend's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId(pub u32);

/// The number of a set of slots. It is unique among all services. So a program that reads an entry while it is
/// replaced finds no slot, and not a wrong one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

/// The entry of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The frontend's number.
    pub service: ServiceId,
    /// The slots in force.
    pub generation: Generation,
    /// The number of slots.
    pub slots: u32,
    /// The timeout of session affinity in seconds, or 0.
    pub affinity: u32,
    /// The error without slots.
    pub without: Without,
}

/// The key of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKey {
    /// The frontend's number.
    pub service: ServiceId,
    /// The set that the slot is of.
    pub generation: Generation,
    /// Its index in the set.
    pub index: u32,
}

/// One column of an alias table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The backend for a random number below the threshold.
    pub first: BackendId,
    /// The backend for any other number.
    pub second: BackendId,
    /// The share of `first` in 2^32 parts.
    pub threshold: u32,
}

/// A frontend and a backend of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The frontend's number.
    pub service: ServiceId,
    /// The backend's number.
    pub backend: BackendId,
}

/// The connections of a frontend to a backend, since the maps exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Connections that were sent to the backend.
    pub opened: u64,
    /// TCP connections that the backend accepted.
    pub established: u64,
    /// TCP connections that were never accepted.
    pub failed: u64,
    /// Connections that ended otherwise.
    pub closed: u64,
}

impl Counters {
    /// The connections that are open now.
    pub fn active(&self) -> u64 {
        self.opened.saturating_sub(self.failed + self.closed)
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.established += other.established;
        self.failed += other.failed;
        self.closed += other.closed;
    }
}

/// One change of one entry of one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes a backend.
    PutBackend(BackendId, SocketAddr),
    /// Deletes a backend.
    DeleteBackend(BackendId),
    /// Writes a slot.
    PutSlot(SlotKey, Slot),
    /// Deletes a slot.
    DeleteSlot(SlotKey),
    /// Lets clients return to a backend.
    PutMember(Pair),
    /// Lets clients return to a backend no more.
    DeleteMember(Pair),
    /// Switches a frontend to an entry.
    PutService(Frontend, Entry),
    /// Ends the routing of a frontend.
    DeleteService(Frontend),
    /// Forgets the counters of a pair.
    DeleteCounters(Pair),
}

/// All that the agent finds in the maps when it starts.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The frontends.
    pub services: Vec<(Frontend, Entry)>,
    /// The slots of all generations.
    pub slots: Vec<(SlotKey, Slot)>,
    /// The backends.
    pub backends: Vec<(BackendId, SocketAddr)>,
    /// The backends that clients may return to.
    pub members: Vec<Pair>,
    /// The counters.
    pub counters: Vec<(Pair, Counters)>,
}

/// Reads the counters, on whatever thread it is called.
pub type CounterReader = Box<dyn FnOnce() -> Result<Vec<(Pair, Counters)>, MapError> + Send>;

/// The maps.
pub trait Maps {
    /// Makes one change. To delete what is not there is no error.
    ///
    /// # Errors
    /// The change was not made.
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError>;

    /// Reads everything.
    ///
    /// # Errors
    /// A map cannot be read.
    fn dump(&self) -> Result<Dump, MapError>;

    /// Reads the counters.
    ///
    /// # Errors
    /// The map cannot be read.
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError>;

    /// A reader of the counters for another thread. Without one of their own, maps read them now.
    fn counter_reader(&self) -> CounterReader {
        let counters = self.counters();
        Box::new(move || counters)
    }

    /// True if the map has the entry that this operation writes. Maps that nobody else changes need not look.
    ///
    /// # Errors
    /// The map cannot be read.
    fn holds(&self, _: &Operation) -> Result<bool, MapError> {
        Ok(true)
    }

    /// Attaches the programs that somebody else has detached, and returns their names.
    ///
    /// # Errors
    /// A program cannot be attached. The reason names it.
    fn attach_again(&mut self) -> Result<Vec<&'static str>, MapError> {
        Ok(Vec::new())
    }

    /// The room of each map, if there is a limit.
    fn capacities(&self) -> Vec<(&'static str, u32)> {
        Vec::new()
    }
}

/// The reason why a map could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MapError {
    /// The name of the map.
    pub map: &'static str,
    /// True if it has no room for one more entry.
    pub is_full: bool,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_full {
            return write!(f, "the map `{}` is full", self.map);
        }
        write!(f, "map `{}`: {}", self.map, self.reason)
    }
}

impl Operation {
    /// The name of the map that it changes.
    pub fn map(&self) -> &'static str {
        match self {
            Self::PutBackend(..) | Self::DeleteBackend(_) => "backends",
            Self::PutSlot(..) | Self::DeleteSlot(_) => "slots",
            Self::PutMember(_) | Self::DeleteMember(_) => "members",
            Self::PutService(..) | Self::DeleteService(_) => "svc",
            Self::DeleteCounters(_) => "stats",
        }
    }
}
