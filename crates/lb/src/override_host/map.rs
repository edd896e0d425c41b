//! A map from addresses to endpoints that picks read while the balancer changes it.
//!
//! It is a hash table whose buckets are replaced one by one. So a change costs one small bucket, however many
//! endpoints there are, and a reader takes no lock.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

use super::Anchor;

/// For each address, the endpoints that have it. It is one, unless a plan gives an address twice.
#[derive(Debug)]
pub(crate) struct AddressMap<T> {
    /// A power of two of them.
    buckets: Box<[ArcSwapOption<Bucket<T>>]>,
}

type Bucket<T> = SmallVec<[(SocketAddr, Arc<Anchor<T>>); 1]>;

impl<T> AddressMap<T> {
    /// A map with room for this many addresses.
    pub(crate) fn with_room(addresses: usize) -> Self {
        let buckets = addresses.max(8).next_power_of_two();
        Self {
            buckets: (0..buckets).map(|_| ArcSwapOption::empty()).collect(),
        }
    }

    /// The number of addresses that it has room for. With more it is slow.
    pub(crate) fn room(&self) -> usize {
        self.buckets.len()
    }

    /// The first result for an endpoint with this address.
    pub(super) fn find<R>(
        &self,
        address: &SocketAddr,
        mut look: impl FnMut(&Anchor<T>) -> Option<R>,
    ) -> Option<R> {
        let bucket = self.bucket(address).load();
        let entries = bucket.as_ref()?.iter();
        let mut found = entries.filter(|(known, _)| known == address);
        found.find_map(|(_, anchor)| look(anchor))
    }

    pub(crate) fn insert(&self, address: SocketAddr, anchor: &Arc<Anchor<T>>) {
        self.replace(&address, |entries| {
            entries.push((address, anchor.clone()));
        });
    }

    pub(crate) fn remove(&self, address: &SocketAddr, anchor: &Arc<Anchor<T>>) {
        self.replace(address, |entries| {
            entries.retain(|(known, other)| known != address || !Arc::ptr_eq(other, anchor));
        });
    }

    /// A map with the same entries and more room.
    pub(crate) fn grown(&self, addresses: usize) -> Self {
        let grown = Self::with_room(addresses);
        for bucket in &self.buckets {
            for (address, anchor) in bucket.load().iter().flat_map(|bucket| bucket.iter()) {
                grown.insert(*address, anchor);
            }
        }
        grown
    }

    fn replace(&self, address: &SocketAddr, change: impl FnOnce(&mut Bucket<T>)) {
        let bucket = self.bucket(address);
        let mut entries = match &*bucket.load() {
            Some(known) => Bucket::clone(known),
            None => Bucket::new(),
        };
        change(&mut entries);
        bucket.store((!entries.is_empty()).then(|| Arc::new(entries)));
    }

    fn bucket(&self, address: &SocketAddr) -> &ArcSwapOption<Bucket<T>> {
        &self.buckets[hash(address) as usize & (self.buckets.len() - 1)]
    }
}

/// Mixes an address (the finalizer of SplitMix64). It does not prevent chosen collisions, because
/// the addresses come from a control plane that the channel trusts with all its calls.
fn hash(address: &SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits >> 64) as u64 ^ (bits as u64).rotate_left(29)
        }
    };
    let mixed = ip ^ (u64::from(address.port()) << 40);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndpointId, Health, override_host::AnchorState, slots::Slots};

    fn anchor() -> Arc<Anchor<()>> {
        let id = EndpointId(Slots::new().insert(()));
        Arc::new(Anchor::new(id, Health::Healthy, AnchorState::Connecting))
    }

    fn owners(map: &AddressMap<()>, address: &SocketAddr) -> usize {
        let mut owners = 0;
        map.find(address, |_| {
            owners += 1;
            None::<()>
        });
        owners
    }

    /// Every address leads to its endpoints, in a map of any size, until they are taken out.
    #[test]
    fn addresses_lead_to_their_endpoints() {
        let addresses: Vec<SocketAddr> = (0..500_u16)
            .map(|n| match n % 2 {
                0 => ([10, 0, (n / 256) as u8, n as u8], 80).into(),
                _ => ([0, 0, 0, 0, 0, 0, 0, n], n).into(),
            })
            .collect();
        let (map, one, two) = (AddressMap::with_room(3), anchor(), anchor());
        assert_eq!(map.room(), 8);
        for address in &addresses {
            map.insert(*address, &one);
        }
        let grown = map.grown(500);
        for map in [&map, &grown] {
            assert!(addresses.iter().all(|address| owners(map, address) == 1));
        }
        grown.insert(addresses[7], &two);
        assert_eq!(owners(&grown, &addresses[7]), 2);
        grown.remove(&addresses[7], &one);
        assert_eq!(owners(&grown, &addresses[7]), 1);
        grown.remove(&addresses[7], &two);
        assert_eq!(owners(&grown, &addresses[7]), 0);
        assert_eq!(owners(&grown, &addresses[8]), 1);
    }
}
