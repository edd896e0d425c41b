//! The maps in memory, with room for as many entries as one says.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{BackendId, Counters, Dump, Entry, MapError, Maps, Operation, Pair, Slot, SlotKey};
use crate::select::Frontend;

/// Maps that no kernel reads: for tests, and for `--dry-run`.
#[derive(Clone, Debug)]
pub struct MemoryMaps {
    /// The frontends.
    pub services: BTreeMap<Frontend, Entry>,
    /// The slots of all generations.
    pub slots: BTreeMap<SlotKey, Slot>,
    /// The backends.
    pub backends: BTreeMap<BackendId, SocketAddr>,
    /// The backends that clients may return to.
    pub members: BTreeMap<Pair, ()>,
    /// The counters.
    pub counters: BTreeMap<Pair, Counters>,
    /// The room of each map.
    pub capacity: usize,
}

impl Default for MemoryMaps {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
            slots: BTreeMap::new(),
            backends: BTreeMap::new(),
            members: BTreeMap::new(),
            counters: BTreeMap::new(),
            capacity: usize::MAX,
        }
    }
}

impl MemoryMaps {
    /// The shares of a frontend's backends in 2^32 parts per slot, as a connection would see them now;
    /// `None` if the frontend is not routed.
    ///
    /// # Errors
    /// The frontend is not whole: this slot or backend of it is missing.
    pub fn shares(&self, frontend: &Frontend) -> Result<Option<Shares>, String> {
        let Some(entry) = self.services.get(frontend) else {
            return Ok(None);
        };
        let mut shares = BTreeMap::new();
        for index in 0..entry.slots {
            let key = SlotKey {
                service: entry.service,
                generation: entry.generation,
                index,
            };
            let slot = self.slots.get(&key);
            let slot = slot.ok_or_else(|| format!("{frontend}: no slot {key:?}"))?;
            let rest = (1 << 32) - u64::from(slot.threshold);
            for (id, share) in [(slot.first, slot.threshold.into()), (slot.second, rest)] {
                let address = self.backends.get(&id);
                let address = address.ok_or_else(|| format!("{frontend}: no backend {id:?}"))?;
                *shares.entry(*address).or_default() += share;
            }
        }
        shares.retain(|_, share| *share > 0);
        Ok(Some(Shares {
            entry: *entry,
            shares,
        }))
    }
}

/// A frontend as a connection sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Its entry.
    pub entry: Entry,
    /// The share of each backend: 2^32 for each slot of the frontend in all.
    pub shares: BTreeMap<SocketAddr, u64>,
}

impl Maps for MemoryMaps {
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        let capacity = self.capacity;
        let is_room = match *operation {
            Operation::PutBackend(id, address) => put(&mut self.backends, id, address, capacity),
            Operation::PutSlot(key, slot) => put(&mut self.slots, key, slot, capacity),
            Operation::PutMember(pair) => put(&mut self.members, pair, (), capacity),
            Operation::PutService(frontend, entry) => {
                put(&mut self.services, frontend, entry, capacity)
            }
            Operation::DeleteBackend(id) => delete(&mut self.backends, &id),
            Operation::DeleteSlot(key) => delete(&mut self.slots, &key),
            Operation::DeleteMember(pair) => delete(&mut self.members, &pair),
            Operation::DeleteService(frontend) => delete(&mut self.services, &frontend),
            Operation::DeleteCounters(pair) => delete(&mut self.counters, &pair),
        };
        if is_room {
            return Ok(());
        }
        Err(MapError {
            map: operation.map(),
            is_full: true,
            reason: format!("room for {capacity} entries"),
        })
    }

    fn holds(&self, operation: &Operation) -> Result<bool, MapError> {
        Ok(match operation {
            Operation::PutBackend(id, address) => self.backends.get(id) == Some(address),
            Operation::PutSlot(key, slot) => self.slots.get(key) == Some(slot),
            Operation::PutMember(pair) => self.members.contains_key(pair),
            Operation::PutService(frontend, entry) => self.services.get(frontend) == Some(entry),
            _ => true,
        })
    }

    fn dump(&self) -> Result<Dump, MapError> {
        Ok(Dump {
            services: pairs(&self.services),
            slots: pairs(&self.slots),
            backends: pairs(&self.backends),
            members: self.members.keys().copied().collect(),
            counters: pairs(&self.counters),
        })
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        Ok(pairs(&self.counters))
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V, capacity: usize) -> bool {
    let is_room = map.len() < capacity || map.contains_key(&key);
    if is_room {
        map.insert(key, value);
    }
    is_room
}

fn delete<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K) -> bool {
    map.remove(key);
    true
}

fn pairs<K: Copy, V: Copy>(map: &BTreeMap<K, V>) -> Vec<(K, V)> {
    map.iter().map(|(key, value)| (*key, *value)).collect()
}
