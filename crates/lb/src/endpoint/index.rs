//! Finds the endpoints of a cluster by address.
//!
//! Session affinity looks endpoints up by one address (A75), and a plan by all of them (A61). One
//! index serves both, because a set of addresses is found among the owners of any of its members.

use std::{collections::HashMap, net::SocketAddr};

use super::EndpointId;

/// For each address, the endpoints that have it.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    by_address: HashMap<SocketAddr, Owners>,
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
            let owners = self.by_address.entry(address);
            owners
                .and_modify(|owners| owners.add(id))
                .or_insert(Owners::One(id));
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
        match self.by_address.get(address) {
            None => &[],
            Some(Owners::One(id)) => std::slice::from_ref(id),
            Some(Owners::Several(ids)) => ids,
        }
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

impl Owners {
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
        assert!(index.by_address.is_empty());
    }
}
