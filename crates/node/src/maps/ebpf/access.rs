//! The entries of the maps, by system calls of aya.
//!
//! An entry that is already gone is no error, because the kernel or another program may delete it during a reading.

use std::net::SocketAddr;
use std::sync::Arc;

use aya::maps::{HashMap, MapData};

use super::{EbpfMaps, InstallError};
use crate::maps::{
    BackendId, CounterReader, Counters, Dump, MapError, Maps, Operation, Pair, layout,
};

/// The value of a member, which no program reads.
const MEMBER: u32 = 1;

impl Maps for EbpfMaps {
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        let map = operation.map();
        let result = match operation {
            Operation::PutBackend(id, address) => {
                self.backends.insert(id.0, layout::backend(*address), 0)
            }
            Operation::PutSlot(key, slot) => {
                self.slots
                    .insert(layout::slot_key(key), layout::slot(slot), 0)
            }
            Operation::PutMember(pair) => self.members.insert(layout::pair(pair), MEMBER, 0),
            Operation::PutService(frontend, entry) => {
                self.services
                    .insert(layout::frontend(frontend), layout::entry(entry), 0)
            }
            Operation::DeleteBackend(id) => self.backends.remove(&id.0),
            Operation::DeleteSlot(key) => self.slots.remove(&layout::slot_key(key)),
            Operation::DeleteMember(pair) => self.members.remove(&layout::pair(pair)),
            Operation::DeleteService(frontend) => self.services.remove(&layout::frontend(frontend)),
            Operation::DeleteCounters(pair) => self.counters.remove(&layout::pair(pair)),
        };
        done(map, result)
    }

    fn dump(&self) -> Result<Dump, MapError> {
        let mut dump = Dump {
            counters: self.counters()?,
            ..Dump::default()
        };
        for (key, value) in entries("svc", self.services.iter())? {
            if let Some(frontend) = layout::read_frontend(&key) {
                dump.services.push((frontend, layout::read_entry(&value)));
            }
        }
        for (key, value) in entries("slots", self.slots.iter())? {
            let slot = layout::read_slot(&value);
            dump.slots.push((layout::read_slot_key(&key), slot));
        }
        for (key, value) in entries("backends", self.backends.iter())? {
            let address: SocketAddr = layout::read_address(&value);
            dump.backends.push((BackendId(key), address));
        }
        for (key, _) in entries("members", self.members.iter())? {
            dump.members.push(layout::read_pair(&key));
        }
        Ok(dump)
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        read_counters(&self.counters)
    }

    fn counter_reader(&self) -> CounterReader {
        let counters = Arc::clone(&self.counters_to_read);
        Box::new(move || read_counters(&counters))
    }

    fn holds(&self, operation: &Operation) -> Result<bool, MapError> {
        let is_same = match operation {
            Operation::PutBackend(id, address) => {
                let found = self.backends.get(&id.0, 0);
                found.map(|found| found == layout::backend(*address))
            }
            Operation::PutSlot(key, slot) => {
                let found = self.slots.get(&layout::slot_key(key), 0);
                found.map(|found| found == layout::slot(slot))
            }
            Operation::PutMember(pair) => {
                let found = self.members.get(&layout::pair(pair), 0);
                found.map(|found| found == MEMBER)
            }
            Operation::PutService(frontend, entry) => {
                let found = self.services.get(&layout::frontend(frontend), 0);
                found.map(|found| found == layout::entry(entry))
            }
            _ => return Ok(true),
        };
        match is_same.map_err(|error| map_error(operation.map(), &error)) {
            Ok(is_same) => Ok(is_same),
            Err(MapFailure::Missing) => Ok(false),
            Err(MapFailure::Failed(error)) => Err(error),
        }
    }

    fn attach_again(&mut self) -> Result<Vec<&'static str>, MapError> {
        let failed = |map, error: &InstallError| MapError {
            map,
            is_full: false,
            reason: reason(error),
        };
        // Maps first: an agent that finds links without maps would give them programs with empty ones.
        let pinned = self.pinned.pin_again();
        pinned.map_err(|error| failed("pins", &error))?;
        let Some(links) = &self.links else {
            return Ok(Vec::new());
        };
        let attached = links.attach_again();
        attached.map_err(|error| failed("links", &error))
    }

    fn capacities(&self) -> Vec<(&'static str, u32)> {
        self.pinned.capacities()
    }
}

pub(super) type CounterMap = HashMap<MapData, [u8; 8], [u64; 4]>;

/// The counters of all pairs.
pub(super) fn read_counters(map: &CounterMap) -> Result<Vec<(Pair, Counters)>, MapError> {
    let counters = entries("stats", map.iter())?.into_iter();
    let counters =
        counters.map(|(key, values)| (layout::read_pair(&key), layout::read_counters(&values)));
    Ok(counters.collect())
}

/// All entries of a map. One that vanishes meanwhile is left out.
pub(super) fn entries<K, V>(
    map: &'static str,
    entries: impl Iterator<Item = Result<(K, V), aya::maps::MapError>>,
) -> Result<Vec<(K, V)>, MapError> {
    let mut found = Vec::new();
    for entry in entries {
        match entry.map_err(|error| map_error(map, &error)) {
            Ok(entry) => found.push(entry),
            Err(MapFailure::Missing) => {}
            Err(MapFailure::Failed(error)) => return Err(error),
        }
    }
    Ok(found)
}

/// The result of a change. To delete what is not there is no error.
pub(super) fn done(
    map: &'static str,
    result: Result<(), aya::maps::MapError>,
) -> Result<(), MapError> {
    match result.map_err(|error| map_error(map, &error)) {
        Err(MapFailure::Missing) | Ok(()) => Ok(()),
        Err(MapFailure::Failed(error)) => Err(error),
    }
}

pub(super) enum MapFailure {
    /// There is no such entry.
    Missing,
    Failed(MapError),
}

pub(super) fn map_error(map: &'static str, error: &aya::maps::MapError) -> MapFailure {
    let number = match error {
        aya::maps::MapError::KeyNotFound | aya::maps::MapError::ElementNotFound => {
            return MapFailure::Missing;
        }
        aya::maps::MapError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    if number == Some(libc::ENOENT) {
        return MapFailure::Missing;
    }
    MapFailure::Failed(MapError {
        map,
        is_full: number == Some(libc::E2BIG),
        reason: reason(error),
    })
}

/// An error with its causes.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
