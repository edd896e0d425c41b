//! Several sources as one table.
//!
//! Sources may contradict each other: two of them define a service, or give one address to two
//! services. The result must not depend on the order of events, so the order of the sources
//! decides. Within one source the order of the keys decides.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Event, Status, Table};

/// The values of several sources, and for each claim the value that wins it.
///
/// `F` says what a value claims. It must depend on the value alone. A value may claim nothing, or
/// several keys, and may win some of them and not others.
///
/// ```
/// use crowfly_source::{Event, Merged};
///
/// // A service claims each of its addresses.
/// let mut merged = Merged::new(2, |addresses: &Vec<u32>| addresses.clone());
/// merged.handle(0, Event::Upsert("high", vec![1, 2]));
/// let changed = merged.handle(1, Event::Upsert("low", vec![2, 3]));
/// assert_eq!(changed, [3], "2 belongs to a higher source");
/// assert_eq!(merged.winner(&2).map(|claimant| *claimant.key), Some("high"));
/// assert_eq!(merged.claimants(&2).count(), 2, "the lower one is shadowed, not lost");
/// ```
pub struct Merged<K, V, C, F> {
    /// The highest source first.
    sources: Vec<Table<K, V>>,
    /// All that claim a key, the winner first: the rank of their source, and their key in it. They are a list,
    /// because nearly every key has one claimant, and a set would have room for eleven.
    claimants: BTreeMap<C, Vec<(usize, K)>>,
    claims: F,
}

/// A value that claims a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant<'a, K, V> {
    /// The rank of its source. 0 is the highest.
    pub source: usize,
    /// Its key in that source.
    pub key: &'a K,
    /// The value.
    pub value: &'a V,
}

/// The effect of an event.
///
/// ```
/// use crowfly_source::{Event, Merged};
///
/// let mut merged = Merged::new(2, |addresses: &Vec<u32>| addresses.clone());
/// merged.handle(0, Event::Upsert("high", vec![1]));
/// let effect = merged.apply(1, Event::Upsert("low", vec![1, 2]));
/// assert_eq!(effect.keys, ["low"]);
/// assert_eq!(Vec::from_iter(effect.winners), [2]);
/// assert_eq!(Vec::from_iter(effect.shadowed), [1], "it waits for the address");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect<K, C> {
    /// The keys of the source whose value is another one now.
    pub keys: Vec<K>,
    /// The claims whose winner is another one now, or has another value.
    pub winners: BTreeSet<C>,
    /// The other claims that have other claimants now, or of which a claimant has another value.
    pub shadowed: BTreeSet<C>,
}

impl<K, V, C, F> Merged<K, V, C, F>
where
    K: Clone + Ord,
    V: PartialEq,
    C: Clone + Ord,
    F: Fn(&V) -> Vec<C>,
{
    /// A table of so many sources. Their rank is their number: 0 is the highest.
    pub fn new(sources: usize, claims: F) -> Self {
        Self {
            sources: (0..sources).map(|_| Table::default()).collect(),
            claimants: BTreeMap::new(),
            claims,
        }
    }

    /// Takes an event of a source. Returns, in order, the claims whose winner is another one now or
    /// has another value. A reader that looks at those alone is up to date.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn handle(&mut self, source: usize, event: Event<K, V>) -> Vec<C> {
        self.apply(source, event).winners.into_iter().collect()
    }

    /// Takes an event of a source, as [`handle`](Self::handle) does. Returns all that it changed, for a
    /// reader that cares about values that win nothing as well.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn apply(&mut self, source: usize, event: Event<K, V>) -> Effect<K, C> {
        let mut effect = Effect {
            keys: Vec::new(),
            winners: BTreeSet::new(),
            shadowed: BTreeSet::new(),
        };
        for replaced in self.sources[source].handle(event) {
            effect.keys.push(replaced.key.clone());
            let after = self.sources[source].get(&replaced.key);
            let before = self.claims_of(replaced.before.as_ref());
            let after = self.claims_of(after);
            let claimant = (source, replaced.key);
            for claim in before.union(&after) {
                let held = self.is_first(claim, &claimant);
                if after.contains(claim) {
                    self.claim(claim, &claimant);
                } else {
                    self.withdraw(claim, &claimant);
                }
                if held || self.is_first(claim, &claimant) {
                    effect.winners.insert(claim.clone());
                } else {
                    effect.shadowed.insert(claim.clone());
                }
            }
        }
        let winners = &effect.winners;
        effect.shadowed.retain(|claim| !winners.contains(claim));
        effect
    }

    fn claim(&mut self, claim: &C, claimant: &(usize, K)) {
        if !self.claimants.contains_key(claim) {
            // `push` would make room for four.
            self.claimants.insert(claim.clone(), vec![claimant.clone()]);
        } else if let Some(all) = self.claimants.get_mut(claim)
            && let Err(place) = all.binary_search(claimant)
        {
            all.insert(place, claimant.clone());
        }
    }

    fn claims_of(&self, value: Option<&V>) -> BTreeSet<C> {
        let claims = value.map(|value| (self.claims)(value));
        claims.into_iter().flatten().collect()
    }
}

impl<K: Ord, V, C: Ord, F> Merged<K, V, C, F> {
    /// The value that wins a claim: of the highest source that claims it, the first by key.
    pub fn winner(&self, claim: &C) -> Option<Claimant<'_, K, V>> {
        self.claimants(claim).next()
    }

    /// All values that claim a key, the winner first, then those that it shadows.
    pub fn claimants(&self, claim: &C) -> impl Iterator<Item = Claimant<'_, K, V>> {
        let all = self.claimants.get(claim).into_iter().flatten();
        all.filter_map(|(source, key)| {
            let value = self.sources.get(*source)?.get(key)?;
            Some(Claimant {
                source: *source,
                key,
                value,
            })
        })
    }

    /// Every key that is claimed.
    pub fn claims(&self) -> impl Iterator<Item = &C> {
        self.claimants.keys()
    }

    /// The values of one source by key, shadowed or not.
    pub fn values(&self, source: usize) -> impl Iterator<Item = (&K, &V)> {
        self.sources.get(source).into_iter().flat_map(Table::iter)
    }

    /// The value of a key in one source, shadowed or not.
    pub fn get<Q: Ord + ?Sized>(&self, source: usize, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.sources.get(source)?.get(key)
    }

    /// The state of a source. One that does not exist is silent for ever.
    pub fn status(&self, source: usize) -> &Status {
        let table = self.sources.get(source);
        table.map_or(&Status::Silent, Table::status)
    }

    /// True once every source has completed a listing. Until then an absent claim may be one that was
    /// not told yet, so a reader should delete nothing.
    pub fn has_synced(&self) -> bool {
        self.sources.iter().all(Table::has_synced)
    }

    /// True once this source has completed a listing, even if it has failed since.
    pub fn has_listed(&self, source: usize) -> bool {
        self.sources.get(source).is_some_and(Table::has_synced)
    }

    fn is_first(&self, claim: &C, claimant: &(usize, K)) -> bool {
        let all = self.claimants.get(claim);
        all.and_then(|all| all.first()) == Some(claimant)
    }

    fn withdraw(&mut self, claim: &C, claimant: &(usize, K)) {
        if let Some(all) = self.claimants.get_mut(claim) {
            if let Ok(place) = all.binary_search(claimant) {
                all.remove(place);
            }
            if all.is_empty() {
                self.claimants.remove(claim);
            }
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug, C: fmt::Debug, F> fmt::Debug for Merged<K, V, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged")
            .field("sources", &self.sources)
            .field("claimants", &self.claimants)
            .finish_non_exhaustive()
    }
}
