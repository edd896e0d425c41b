//! The ring of `ring_hash`, which maps a hash to an endpoint.
//!
//! It is made once for each list of endpoints. It holds no states, because a change of state must
//! not move a hash.

use std::fmt::Write as _;

use xxhash_rust::xxh64::xxh64;

use crate::plan::{Endpoint, RingSize};

/// Hashes in ascending order, each with the index of its endpoint.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: Box<[(u64, u32)]>,
    /// The index of the first entry of each part of the ring, and the number of entries at the end. The parts have the
    /// same length, and hashes are spread evenly. So a pick looks at an entry or two, however many there are.
    starts: Box<[u32]>,
    /// The bits of a hash below those that number its part.
    shift: u32,
}

impl Ring {
    /// A ring on which each endpoint has entries by its weight (A42). The ring has at least `min`
    /// and at most `max` entries. The lightest endpoint gets a whole number of them, unless `max`
    /// is too small for that.
    ///
    /// An endpoint is placed by its hash key, or else by its first address (A76).
    pub(super) fn new<'a>(
        endpoints: impl Iterator<Item = &'a Endpoint> + Clone,
        size: RingSize,
    ) -> Self {
        let weights = endpoints
            .clone()
            .map(|endpoint| endpoint.weight.get() as f64);
        let total: f64 = weights.clone().sum();
        let lightest = weights.fold(f64::INFINITY, f64::min) / total;
        let scale = ((lightest * size.min() as f64).ceil() / lightest).min(size.max() as f64);

        let mut entries = Vec::new();
        let mut target = 0.0;
        let mut key = String::new();
        for (index, endpoint) in endpoints.enumerate() {
            target += scale * (endpoint.weight.get() as f64 / total);
            key.clear();
            endpoint.write_hash_key(&mut key);
            key.push('_');
            let prefix = key.len();
            let mut count = 0_u64;
            while (entries.len() as f64) < target {
                key.truncate(prefix);
                let _ = write!(key, "{count}"); // A String takes everything.
                entries.push((xxh64(key.as_bytes(), 0), index as u32));
                count += 1;
            }
        }
        entries.sort_unstable();
        Self::of(entries)
    }

    /// A ring of these entries, which are in ascending order.
    fn of(entries: Vec<(u64, u32)>) -> Self {
        // At least two, because a shift by all bits is none.
        let parts = entries.len().next_power_of_two().max(2);
        let shift = u64::BITS - parts.ilog2();
        let mut starts = vec![0; parts + 1];
        for (entry, _) in &entries {
            starts[(entry >> shift) as usize + 1] += 1;
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        Self {
            starts: starts.into(),
            entries: entries.into(),
            shift,
        }
    }

    /// Takes endpoints without an entry out of the list, and returns them. There are some if the
    /// ring is too small for all. They must not count for the state of the leaf, because no call
    /// ever comes to them.
    pub(super) fn take_unplaced(&mut self, endpoints: &mut Vec<Endpoint>) -> Vec<Endpoint> {
        let mut places: Vec<Option<u32>> = vec![None; endpoints.len()];
        for (_, index) in &self.entries {
            places[*index as usize] = Some(0);
        }
        for (place, number) in places.iter_mut().flatten().zip(0..) {
            *place = number;
        }
        for (_, index) in &mut self.entries {
            *index = places[*index as usize].unwrap_or_default();
        }
        let mut places = places.into_iter();
        let unplaced = endpoints.extract_if(.., |_| places.next().flatten().is_none());
        unplaced.collect()
    }

    /// The endpoints from the first entry that is not before the hash, once round the ring.
    #[inline] // Every pick calls it, and `Picker` is compiled in the crate of its user.
    pub(super) fn from(&self, hash: u64) -> impl Iterator<Item = usize> {
        let (before, after) = self.entries.split_at(self.first(hash));
        let entries = after.iter().chain(before);
        entries.map(|(_, index)| *index as usize)
    }

    /// The index of the first entry that is not before the hash.
    #[inline]
    fn first(&self, hash: u64) -> usize {
        let part = (hash >> self.shift) as usize;
        let [start, end] = [part, part + 1].map(|part| self.starts[part] as usize);
        let of_part = &self.entries[start..end];
        start + of_part.partition_point(|(entry, _)| *entry < hash)
    }

    /// The hash of every entry, with the share of all hashes that it is the first one for.
    pub(super) fn arcs(&self) -> impl Iterator<Item = (u64, f64)> {
        let last = self.entries.last().map_or(0, |(hash, _)| *hash);
        let mut before = last;
        let is_alone = self.entries.len() == 1;
        self.entries.iter().map(move |&(hash, _)| {
            let arc = hash.wrapping_sub(before);
            before = hash;
            let share = if is_alone {
                1.0
            } else {
                arc as f64 / 2_f64.powi(64)
            };
            (hash, share)
        })
    }

    #[cfg(test)]
    pub(super) fn counts(&self, endpoints: usize) -> Vec<usize> {
        let mut counts = vec![0; endpoints];
        for (_, index) in &self.entries {
            counts[*index as usize] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, num::NonZeroU64};

    use proptest::prelude::*;

    use super::*;

    fn endpoints(weights: &[u64]) -> Vec<Endpoint> {
        let weighted = weights.iter().zip(1..).map(|(weight, port)| {
            let mut endpoint = Endpoint::from(SocketAddr::from(([127, 0, 0, 1], port)));
            endpoint.weight = NonZeroU64::new(*weight).unwrap();
            endpoint
        });
        weighted.collect()
    }

    fn counts(weights: &[u64], min: u64, max: u64) -> Vec<usize> {
        let size = RingSize::new(min, max, RingSize::CAP);
        Ring::new(endpoints(weights).iter(), size).counts(weights.len())
    }

    /// The lightest endpoint has a whole number of entries, and the others by weight (A42).
    #[test]
    fn entries_follow_the_weights() {
        assert_eq!(counts(&[1, 1, 1], 10, 20), [4, 4, 4]);
        assert_eq!(counts(&[1, 2, 3], 10, 100), [2, 4, 6]);
        assert_eq!(counts(&[1, 1, 2], 1024, 4096), [256, 256, 512]);
        assert_eq!(counts(&[3], 1024, 4096), [1024]);
    }

    /// Beyond the greatest size, endpoints have less than one entry each.
    #[test]
    fn the_size_is_capped() {
        assert_eq!(counts(&[1; 8], 1, 4).iter().sum::<usize>(), 4);
        let capped = counts(&[1, 100_000], 8_000_000, 8_000_000);
        assert_eq!(capped.iter().sum::<usize>(), 4096);
    }

    /// Entries are XXH64 of `ADDRESS_INDEX`, as in every other gRPC client, so that they agree.
    #[test]
    fn places_are_those_of_other_clients() {
        let mut keyed = endpoints(&[1]);
        keyed[0].hash_key = Some("db-0".into());
        for (endpoints, name) in [(endpoints(&[1]), "127.0.0.1:1"), (keyed, "db-0")] {
            let ring = Ring::new(endpoints.iter(), RingSize::new(2, 2, 2));
            let mut expected = [0, 1].map(|i| xxh64(format!("{name}_{i}").as_bytes(), 0));
            expected.sort_unstable();
            let hashes: Vec<_> = ring.arcs().map(|(hash, _)| hash).collect();
            assert_eq!(hashes, expected);
        }
        // The reference value of the hash itself.
        assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
    }

    #[test]
    fn a_hash_finds_the_next_entry_and_wraps() {
        let ring = Ring::of(vec![(10, 0), (20, 1), (30, 2)]);
        let first = |hash| ring.from(hash).next();
        assert_eq!(
            (first(0), first(10), first(11)),
            (Some(0), Some(0), Some(1))
        );
        assert_eq!((first(30), first(31)), (Some(2), Some(0)));
        assert_eq!(ring.from(15).collect::<Vec<_>>(), [1, 2, 0]);
        let total: f64 = ring.arcs().map(|(_, share)| share).sum();
        assert!((total - 1.0).abs() < 1e-9);
    }

    proptest! {
        /// The parts of a ring change how an entry is found, and not which one.
        #[test]
        fn parts_find_the_entry_that_a_search_of_all_finds(
            hashes in prop::collection::vec(prop_oneof![any::<u64>(), 0..9_u64, u64::MAX - 9..], 0..70),
            wanted in prop::collection::vec(any::<u64>(), 0..9),
        ) {
            let mut entries: Vec<_> = hashes.iter().copied().zip(0..).collect();
            entries.sort_unstable();
            let ring = Ring::of(entries);
            let near = |hash: &u64| [hash.wrapping_sub(1), *hash, hash.wrapping_add(1)];
            for hash in hashes.iter().flat_map(near).chain(wanted) {
                let searched = ring.entries.partition_point(|(entry, _)| *entry < hash);
                prop_assert_eq!(ring.first(hash), searched);
            }
        }
    }
}
