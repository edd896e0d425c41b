//! The connections of backends that left their frontend.
//!
//! The sum of connections over the backends of a frontend must not become smaller when a backend leaves. The same holds
//! for the sum of one backend that leaves and returns under another number. So [`Departed`] keeps the connections of an
//! address under that address while a backend or a counter has it. Then it adds them to those of all backends that are
//! gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use crate::maps::{BackendId, Counters, Pair, ServiceId};

/// Backends that left, by frontend.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// Those whose counters the kernel may have.
    addresses: BTreeMap<Pair, SocketAddr>,
    /// Those of them that left since names were last tidied. Their first connection may be later than the counters
    /// that were read for it.
    fresh: HashSet<Pair>,
    /// The counters that the kernel has forgotten, of addresses that are in use again.
    carried: BTreeMap<(ServiceId, SocketAddr), Counters>,
    /// The counters of all others.
    gone: HashMap<ServiceId, Counters>,
}

impl Departed {
    /// A backend left a frontend that goes on.
    pub(super) fn left(&mut self, pair: Pair, address: SocketAddr) {
        self.addresses.insert(pair, address);
        self.fresh.insert(pair);
    }

    /// A backend is there again, under its old number.
    pub(super) fn returned(&mut self, pair: Pair) {
        self.addresses.remove(&pair);
    }

    /// The kernel has forgotten these counters.
    pub(super) fn forgotten(&mut self, pair: Pair, counters: Counters) {
        match self.addresses.remove(&pair) {
            Some(address) => {
                let carried = self.carried.entry((pair.service, address));
                *carried.or_default() += counters;
            }
            None => *self.gone.entry(pair.service).or_default() += counters,
        }
    }

    /// Forgets frontends that are not `there`, and names that nothing has any more.
    pub(super) fn tidy(
        &mut self,
        is_there: impl Fn(ServiceId) -> bool,
        has_counters: impl Fn(&Pair) -> bool,
        is_backend: impl Fn(ServiceId, &SocketAddr) -> bool,
    ) {
        let fresh = std::mem::take(&mut self.fresh);
        self.addresses.retain(|pair, _| {
            is_there(pair.service) && (has_counters(pair) || fresh.contains(pair))
        });
        self.gone.retain(|service, _| is_there(*service));
        for ((service, address), counters) in std::mem::take(&mut self.carried) {
            let has_name = |(_, other): (Pair, SocketAddr)| other == address;
            if is_backend(service, &address) || self.of(service).any(has_name) {
                self.carried.insert((service, address), counters);
            } else if is_there(service) {
                *self.gone.entry(service).or_default() += counters;
            }
        }
    }

    /// The backends that left a frontend, and may have counters in the kernel.
    pub(super) fn of(&self, service: ServiceId) -> impl Iterator<Item = (Pair, SocketAddr)> {
        let [first, last] = [u32::MIN, u32::MAX].map(|backend| Pair {
            service,
            backend: BackendId(backend),
        });
        let of = self.addresses.range(first..=last);
        of.map(|(pair, address)| (*pair, *address))
    }

    /// The connections that the kernel has forgotten, of an address.
    pub(super) fn carried(&self, service: ServiceId, address: SocketAddr) -> Option<Counters> {
        self.carried.get(&(service, address)).copied()
    }

    /// The connections of all that are gone.
    pub(super) fn gone(&self, service: ServiceId) -> Option<Counters> {
        self.gone.get(&service).copied()
    }
}
