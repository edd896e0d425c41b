//! The start of an agent: the maps that a former agent left.
//!
//! The agent takes them over as they are, because connections are routed by them until the sources have listed
//! their services.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::garbage::Waste;
use super::{Programmed, Reconciler};
use crate::maps::{BackendId, Dump, Entry, Generation, Maps, Pair, ServiceId, Slot, SlotKey};

/// Members by service, as far as no entry had them yet.
type Members = HashMap<ServiceId, BTreeSet<BackendId>>;

/// Slots by generation, as far as no entry had them yet.
type Slots = HashMap<(ServiceId, Generation), BTreeMap<u32, Slot>>;

impl<M: Maps> Reconciler<M> {
    /// Takes the maps as they are. What no entry leads to is garbage.
    pub(super) fn take_over(&mut self, dump: Dump) {
        for (id, address) in &dump.backends {
            self.backends.found(*id, *address);
        }
        let counted: Vec<Pair> = dump.counters.iter().map(|(pair, _)| *pair).collect();
        self.found(&counted);
        let mut members = self.members_of(&dump.members);
        let mut slots = self.slots_of(dump.slots);
        for (frontend, entry) in dump.services {
            self.services.found(entry.service.0);
            self.generations.found(entry.generation.0);
            let programmed = self.programmed_by(entry, &mut slots, &mut members);
            self.owners.insert(entry.service, frontend);
            self.programmed.insert(frontend, programmed);
        }
        self.discard(slots, members);
    }

    fn members_of(&mut self, pairs: &[Pair]) -> Members {
        self.found(pairs);
        let mut members = Members::new();
        for pair in pairs {
            let of = members.entry(pair.service).or_default();
            of.insert(pair.backend);
        }
        members
    }

    fn slots_of(&mut self, found: Vec<(SlotKey, Slot)>) -> Slots {
        let mut slots = Slots::new();
        for (key, slot) in found {
            self.services.found(key.service.0);
            self.generations.found(key.generation.0);
            let of = slots.entry((key.service, key.generation)).or_default();
            of.insert(key.index, slot);
        }
        slots
    }

    /// A frontend with all that its entry leads to.
    fn programmed_by(
        &mut self,
        entry: Entry,
        slots: &mut Slots,
        members: &mut Members,
    ) -> Programmed {
        let found = slots.remove(&(entry.service, entry.generation));
        let found = found.unwrap_or_default();
        let is_whole = found.keys().copied().eq(0..entry.slots);
        let mut slots: Vec<Slot> = found.into_values().collect();
        let backends = self.backends.hold_known(&slots);
        if !is_whole {
            // The generation is in force, so what there is of it stays until it is written anew.
            slots.clear();
        }
        let mut members = members.remove(&entry.service).unwrap_or_default();
        members.retain(|&backend| {
            let is_member = entry.affinity > 0 && backends.contains(&backend);
            if !is_member {
                let service = entry.service;
                self.garbage.keep(Waste::Member(Pair { service, backend }));
            }
            is_member
        });
        Programmed {
            entry,
            slots,
            backends,
            members,
        }
    }

    /// Deletes later what belongs to no frontend.
    fn discard(&mut self, slots: Slots, members: Members) {
        for ((service, generation), slots) in slots {
            for index in slots.into_keys() {
                self.garbage.add(Waste::Slot(SlotKey {
                    service,
                    generation,
                    index,
                }));
            }
        }
        for (service, members) in members {
            for backend in members {
                self.garbage.add(Waste::Member(Pair { service, backend }));
            }
        }
        for id in self.backends.unheld() {
            self.garbage.add(Waste::Backend(id));
        }
    }
}
