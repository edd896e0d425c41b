//! The model's ring of `ring_hash` (A42, A76), written from the text of the gRFCs. It computes in
//! fractions as other clients do, because all clients must agree where rounding matters.

use crowfly_lb::{Endpoint, RingSize};
use xxhash_rust::xxh64::xxh64;

use super::{Name, name_of};

/// The hash of every entry, in order, with its endpoint.
#[derive(Default)]
pub(super) struct Ring(Vec<(u64, Name)>);

impl Ring {
    /// "The number of entries in the ring is equal to the smallest number greater than min_ring_size
    /// such that the subchannel with the smallest weight has a whole number of entries, clamped to
    /// max_ring_size." In fractions, as other clients do: where rounding matters they are to agree.
    pub(super) fn new(endpoints: &[Endpoint], size: RingSize) -> Self {
        let endpoints = merge(endpoints);
        let total: f64 = endpoints.iter().map(|(_, weight)| weight).sum();
        let parts = || endpoints.iter().map(|(_, weight)| weight / total);
        let least = parts().fold(1.0, f64::min);
        let whole = (least * size.min() as f64).ceil() / least;
        let scale = whole.min(size.max() as f64);
        let mut entries = Vec::new();
        let mut until = 0.0;
        for ((endpoint, _), part) in endpoints.iter().zip(parts()) {
            until += part * scale;
            let mut copy = 0;
            while (entries.len() as f64) < until {
                let key = format!("{}_{copy}", key(endpoint));
                entries.push((xxh64(key.as_bytes(), 0), name_of(endpoint)));
                copy += 1;
            }
        }
        entries.sort_unstable();
        Self(entries)
    }

    /// True if the ring has room for an endpoint.
    pub(super) fn has(&self, name: Name) -> bool {
        self.0.iter().any(|entry| entry.1 == name)
    }

    /// The endpoints from a hash on, once round.
    pub(super) fn from(&self, hash: u64) -> impl Iterator<Item = Name> {
        let first = self.0.iter().position(|entry| entry.0 >= hash);
        let entries = self.0.iter().cycle().skip(first.unwrap_or(0));
        entries.take(self.0.len()).map(|entry| entry.1)
    }

    /// The share of all hashes that each entry is the first one for, with the first endpoint from
    /// there on that is good.
    pub(super) fn arcs(&self, is_good: impl Fn(Name) -> bool) -> Vec<(f64, Name)> {
        let mut arcs = Vec::new();
        let mut before = self.0.last().map_or(0, |entry| entry.0);
        for (hash, _) in &self.0 {
            let share = match hash.wrapping_sub(before) {
                0 => 1.0, // There is no other entry.
                arc => arc as f64 / 2_f64.powi(64),
            };
            before = *hash;
            let taker = self.from(*hash).find(|name| is_good(*name));
            arcs.extend(taker.map(|taker| (share, taker)));
        }
        arcs
    }
}

/// The endpoints of a list. One that comes twice is in the result once, with both weights.
fn merge(endpoints: &[Endpoint]) -> Vec<(&Endpoint, f64)> {
    let mut merged: Vec<(&Endpoint, f64)> = Vec::new();
    for endpoint in endpoints {
        let weight = endpoint.weight.get() as f64;
        let name = name_of(endpoint);
        match merged.iter_mut().find(|(known, _)| name_of(known) == name) {
            Some((_, known)) => *known += weight,
            None => merged.push((endpoint, weight)),
        }
    }
    merged
}

/// Its hash key, or else its first address.
fn key(endpoint: &Endpoint) -> String {
    let key = endpoint.hash_key.as_deref();
    key.map_or_else(|| endpoint.addresses()[0].to_string(), str::to_owned)
}
