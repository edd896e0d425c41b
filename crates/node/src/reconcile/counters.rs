//! The counters of connections: which backend they belong to, and when they are deleted.
//!
//! The counters of a backend that left stay until its connections have ended and are reported. The kernel counts those
//! connections there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

use super::Reconciler;
use crate::maps::{Counters, MapError, Maps, Operation, Pair};
use crate::select::Frontend;

impl<M: Maps> Reconciler<M> {
    /// The connections of a frontend by backend, with those of backends that left it, as far as they have a name.
    /// The second value is the sum of all others.
    pub fn totals(
        &self,
        frontend: &Frontend,
        counters: &HashMap<Pair, Counters>,
    ) -> (BTreeMap<SocketAddr, Counters>, Option<Counters>) {
        let mut totals: BTreeMap<SocketAddr, Counters> = BTreeMap::new();
        let Some(service) = self.service_of(frontend) else {
            return (totals, None);
        };
        let mut pairs = self.pairs(frontend);
        pairs.extend(self.departed.of(service));
        for (pair, address) in &pairs {
            if let Some(counters) = counters.get(pair) {
                *totals.entry(*address).or_default() += *counters;
            }
        }
        let addresses: BTreeSet<SocketAddr> = pairs.iter().map(|(_, address)| *address).collect();
        for address in addresses {
            if let Some(carried) = self.departed.carried(service, address) {
                *totals.entry(address).or_default() += carried;
            }
        }
        (totals, self.departed.gone(service))
    }

    /// The counters of each backend of a frontend.
    pub fn connections(
        &self,
        frontend: &Frontend,
        counters: &HashMap<Pair, Counters>,
    ) -> BTreeMap<SocketAddr, Counters> {
        let Some(programmed) = self.programmed.get(frontend) else {
            return BTreeMap::new();
        };
        let service = programmed.entry.service;
        let backends = programmed.backends.iter();
        backends
            .filter_map(|&backend| {
                let address = self.backends.held.get(&backend)?.address();
                let counters = counters.get(&Pair { service, backend });
                Some((address, counters.copied().unwrap_or_default()))
            })
            .collect()
    }

    /// Forgets the counters of pairs that get no more connections and have none, and frees their numbers.
    /// A pair must have been so at the last call as well, because a program under way may count for it.
    /// Counters of which `is_told` is false stay. Returns the pairs that are there still.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn prune_counters(
        &mut self,
        is_told: impl Fn(&Pair, &Counters) -> bool,
    ) -> Result<HashSet<Pair>, MapError> {
        let counters = self.maps.counters()?;
        Ok(self.prune_counters_with(&counters, is_told))
    }

    /// Prunes by counters that were read on another thread, and returns the pairs that are there still.
    pub(crate) fn prune_counters_with(
        &mut self,
        counters: &[(Pair, Counters)],
        is_told: impl Fn(&Pair, &Counters) -> bool,
    ) -> HashSet<Pair> {
        let mut live = self.live();
        let mut kept = Vec::new();
        let was_idle = std::mem::take(&mut self.idle);
        for &(pair, counters) in counters {
            let is_used = live.contains(&pair) || counters.active() > 0;
            if !is_used && was_idle.contains(&pair) && is_told(&pair, &counters) {
                match self.maps.apply(&Operation::DeleteCounters(pair)) {
                    Ok(()) => self.departed.forgotten(pair, counters),
                    Err(_) => kept.push(pair),
                }
                continue;
            }
            if !is_used {
                self.idle.insert(pair);
            }
            kept.push(pair);
        }
        self.free_numbers(&kept);
        let counted: HashSet<Pair> = kept.iter().copied().collect();
        let (owners, backends) = (&self.owners, &self.backends);
        self.departed.tidy(
            |service| owners.contains_key(&service),
            |pair| counted.contains(pair),
            |service, address| {
                let backend = backends.id_of(*address);
                backend.is_some_and(|backend| live.contains(&Pair { service, backend }))
            },
        );
        live.extend(kept);
        live
    }

    /// The pairs that get connections.
    fn live(&self) -> HashSet<Pair> {
        let all = self.programmed.values().flat_map(|programmed| {
            let service = programmed.entry.service;
            let backends = programmed.backends.iter();
            backends.map(move |&backend| Pair { service, backend })
        });
        all.collect()
    }

    /// Frees the numbers that neither the maps nor these counters have.
    fn free_numbers(&mut self, counted: &[Pair]) {
        let in_use = self.programmed.values().map(|it| it.entry.service.0);
        let in_use = in_use.chain(self.garbage.services());
        let in_use = in_use.chain(counted.iter().map(|pair| pair.service.0));
        self.services.retain(in_use.collect());
        let in_use = self.backends.held.keys().map(|id| id.0);
        let in_use = in_use.chain(counted.iter().map(|pair| pair.backend.0));
        let in_use = in_use.chain(self.garbage.members());
        self.backends.ids.retain(in_use.collect());
        let in_use = self.programmed.values().map(|it| it.entry.generation.0);
        let in_use = in_use.chain(self.garbage.generations());
        self.generations.retain(in_use.collect());
    }
}
