//! Finds the endpoints of a cluster by address.
//!
//! Session affinity looks endpoints up by one address (A75), and a plan by all of them (A61). One
//! index serves both, because a set of addresses is found among the owners of any of its members.

use std::{collections::HashMap, net::SocketAddr};

use super::EndpointId;

/// For each address, the endpoints that have it.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    by_address: ByAddress,
}

/// The number of addresses that are kept as a list.
const FEW: usize = 8;

/// A map. It begins as a list, because most clusters have few addresses, and a channel may have many
/// clusters.
#[derive(Debug)]
enum ByAddress {
    Few(Vec<(SocketAddr, Owners)>),
    #[expect(clippy::box_collection, reason = "a list is half the size of a table")]
    Many(Box<HashMap<SocketAddr, Owners>>),
}

/// The endpoints that have an address. It is one, unless a plan gives an address twice or an endpoint
/// with other addresses is about to take its place.
#[derive(Debug)]
enum Owners {
    One(EndpointId),
    Several(Vec<EndpointId>),
}

impl AddressIndex {
    pub(super) fn insert(&mut self, addresses: &[SocketAddr], id: EndpointId) {
        for &address in addresses {
            match self.by_address.get_mut(&address) {
                Some(owners) => owners.add(id),
                None => self.by_address.insert(address, Owners::One(id)),
            }
        }
    }

    pub(super) fn remove(&mut self, addresses: &[SocketAddr], id: EndpointId) {
        for address in addresses {
            if let Some(owners) = self.by_address.get_mut(address)
                && owners.remove(id)
            {
                self.by_address.remove(address);
            }
        }
    }

    /// The endpoints that have this address, in the order in which they came.
    pub(super) fn owners(&self, address: &SocketAddr) -> &[EndpointId] {
        self.by_address.get(address).map_or(&[], Owners::ids)
    }

    /// Every endpoint, once for each of its addresses, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = EndpointId> {
        let (few, many) = match &self.by_address {
            ByAddress::Few(list) => (list.as_slice(), None),
            ByAddress::Many(map) => (&[][..], Some(map.values())),
        };
        let few = few.iter().map(|(_, owners)| owners);
        let owners = few.chain(many.into_iter().flatten());
        owners.flat_map(Owners::ids).copied()
    }

    /// The endpoint of a set of addresses: one of the owners of each, for which `is_it` says so.
    ///
    /// It is looked for at the address with the fewest owners, because a control plane may give one
    /// address to every endpoint.
    pub(super) fn find(
        &self,
        addresses: &[SocketAddr],
        is_it: impl Fn(EndpointId) -> bool,
    ) -> Option<EndpointId> {
        let owners = addresses.iter().map(|address| self.owners(address));
        let fewest = owners.min_by_key(|owners| owners.len())?;
        fewest.iter().copied().find(|&id| is_it(id))
    }
}

impl ByAddress {
    fn get(&self, address: &SocketAddr) -> Option<&Owners> {
        match self {
            Self::Few(list) => {
                let found = list.iter().find(|(known, _)| known == address);
                found.map(|(_, owners)| owners)
            }
            Self::Many(map) => map.get(address),
        }
    }

    fn get_mut(&mut self, address: &SocketAddr) -> Option<&mut Owners> {
        match self {
            Self::Few(list) => {
                let found = list.iter_mut().find(|(known, _)| known == address);
                found.map(|(_, owners)| owners)
            }
            Self::Many(map) => map.get_mut(address),
        }
    }

    /// Adds an address that is not there.
    fn insert(&mut self, address: SocketAddr, owners: Owners) {
        if let Self::Few(list) = self
            && list.len() == FEW
        {
            *self = Self::Many(Box::new(std::mem::take(list).into_iter().collect()));
        }
        match self {
            Self::Few(list) => {
                // One at first: `push` would begin with four.
                list.reserve_exact(1);
                list.push((address, owners));
            }
            Self::Many(map) => _ = map.insert(address, owners),
        }
    }

    fn remove(&mut self, address: &SocketAddr) {
        match self {
            Self::Few(list) => list.retain(|(known, _)| known != address),
            Self::Many(map) => _ = map.remove(address),
        }
    }
}

impl Default for ByAddress {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Owners {
    fn ids(&self) -> &[EndpointId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Several(ids) => ids,
        }
    }

    fn add(&mut self, id: EndpointId) {
        match self {
            Self::One(first) => *self = Self::Several(vec![*first, id]),
            Self::Several(ids) => ids.push(id),
        }
    }

    /// Takes an endpoint out; whether none is left.
    fn remove(&mut self, id: EndpointId) -> bool {
        match self {
            Self::One(only) => *only == id,
            Self::Several(ids) => {
                ids.retain(|other| *other != id);
                if let [only] = ids[..] {
                    *self = Self::One(only);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;

    /// An address of several endpoints leads to each, until it is gone.
    #[test]
    fn an_address_may_have_several_owners() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut ids = Slots::new();
        let [x, y, z] = [(); 3].map(|()| EndpointId(ids.insert(())));
        let mut index = AddressIndex::default();
        index.insert(&[a, b], x);
        index.insert(&[b, c], y);
        index.insert(&[b], z);
        assert_eq!(index.owners(&a), [x]);
        assert_eq!(index.owners(&b), [x, y, z]);
        assert_eq!(index.find(&[b, c], |_| true), Some(y));
        assert_eq!(index.find(&[a, c], |id| id == z), None);

        index.remove(&[b, c], y);
        assert_eq!(index.owners(&b), [x, z]);
        assert!(index.owners(&c).is_empty());
        index.remove(&[a, b], x);
        assert_eq!(index.owners(&b), [z]);
        index.remove(&[b], z);
        assert!(index.owners(&b).is_empty());
    }

    /// A few addresses are a list, and more are a table. Both find the same.
    #[test]
    fn an_index_of_any_size_finds_its_addresses() {
        let mut ids = Slots::new();
        let mut index = AddressIndex::default();
        let added: Vec<_> = (1..=3 * FEW as u16)
            .map(|port| {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                let id = EndpointId(ids.insert(()));
                index.insert(&[address], id);
                (address, id)
            })
            .collect();
        for (address, id) in &added {
            assert_eq!(index.owners(address), [*id]);
            index.remove(&[*address], *id);
            assert!(index.owners(address).is_empty());
        }
    }
}
