//! The backends in the map, each once for all frontends that lead to it.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use crowfly_lb::AliasTable;

use super::ids::Ids;
use crate::maps::{BackendId, Slot};
use crate::select::Route;

/// The backends, shared by all frontends.
#[derive(Debug, Default)]
pub(super) struct Backends {
    by_address: HashMap<At, BackendId>,
    /// Not an ordered map: numbers go up, which would leave its nodes half empty.
    pub(super) held: HashMap<BackendId, Held>,
    pub(super) ids: Ids,
}

/// An address and a port, in less memory than a [`SocketAddr`], because there are very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct At {
    ip: IpAddr,
    port: u16,
}

impl From<SocketAddr> for At {
    fn from(address: SocketAddr) -> Self {
        Self {
            ip: address.ip(),
            port: address.port(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Held {
    at: At,
    /// The number of frontends that hold it.
    pub(super) by: u32,
    /// False until the map has it.
    pub(super) is_written: bool,
    /// False until a frontend led to it.
    was_used: bool,
}

impl Held {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.at.ip, self.at.port)
    }
}

impl Backends {
    /// The number of an address.
    pub(super) fn id_of(&self, address: SocketAddr) -> Option<BackendId> {
        self.by_address.get(&address.into()).copied()
    }

    /// The slots of a route, and its backends, which are held from now on.
    pub(super) fn slots(&mut self, route: &Route) -> (BTreeSet<BackendId>, Vec<Slot>) {
        let mut held = BTreeSet::new();
        let mut ids = Vec::new();
        for target in &route.targets {
            let id = self.id(target.address);
            ids.push(id);
            if held.insert(id) {
                self.hold(id, target.address);
            }
        }
        let weights: Vec<_> = route.targets.iter().map(|target| target.weight).collect();
        let columns = AliasTable::new(&weights);
        let columns = columns.iter().flat_map(AliasTable::columns);
        let slots = columns.zip(&ids).map(|((threshold, alias), first)| Slot {
            first: *first,
            second: ids.get(alias).copied().unwrap_or(*first),
            threshold,
        });
        let slots = slots.collect();
        (held, slots)
    }

    fn id(&mut self, address: SocketAddr) -> BackendId {
        let ids = &mut self.ids;
        let entry = self.by_address.entry(address.into());
        *entry.or_insert_with(|| BackendId(ids.take()))
    }

    fn hold(&mut self, id: BackendId, address: SocketAddr) {
        let held = self.held.entry(id).or_insert_with(|| Held {
            at: address.into(),
            by: 0,
            is_written: false,
            was_used: false,
        });
        held.by += 1;
    }

    /// Takes note of a backend that the map has.
    pub(super) fn found(&mut self, id: BackendId, address: SocketAddr) {
        self.ids.found(id.0);
        self.by_address.insert(address.into(), id);
        let held = Held {
            at: address.into(),
            by: 0,
            is_written: true,
            was_used: true,
        };
        self.held.insert(id, held);
    }

    /// Holds the backends of slots, as far as the map has them.
    pub(super) fn hold_known(&mut self, slots: &[Slot]) -> BTreeSet<BackendId> {
        let mut ids = BTreeSet::new();
        for slot in slots {
            for id in [slot.first, slot.second] {
                self.ids.found(id.0);
                if let Some(held) = self.held.get_mut(&id)
                    && ids.insert(id)
                {
                    held.by += 1;
                }
            }
        }
        ids
    }

    /// True if nobody holds it any more.
    pub(super) fn release(&mut self, id: BackendId) -> bool {
        let Some(held) = self.held.get_mut(&id) else {
            return false;
        };
        held.by = held.by.saturating_sub(1);
        held.by == 0
    }

    pub(super) fn was_used(&self, id: BackendId) -> bool {
        self.held.get(&id).is_some_and(|held| held.was_used)
    }

    pub(super) fn use_all(&mut self, ids: &BTreeSet<BackendId>) {
        for id in ids {
            if let Some(held) = self.held.get_mut(id) {
                held.was_used = true;
            }
        }
    }

    pub(super) fn unheld(&self) -> Vec<BackendId> {
        let unheld = self.held.iter().filter(|(_, held)| held.by == 0);
        let mut unheld: Vec<_> = unheld.map(|(id, _)| *id).collect();
        unheld.sort_unstable();
        unheld
    }

    pub(super) fn forget(&mut self, id: BackendId) {
        if let Some(held) = self.held.remove(&id)
            && self.by_address.get(&held.at) == Some(&id)
        {
            self.by_address.remove(&held.at);
        }
    }
}
