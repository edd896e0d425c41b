//! A sorted map that takes no more memory than its entries need.
//!
//! It exists because a process may have a thousand channels, each with a handful of resources. A
//! `BTreeMap` reserves room for eleven entries at once, and keeps it when the last one is removed.

use std::borrow::Borrow;
use std::slice;

/// The largest number of entries in a run, because an insertion may have to move all of them.
const RUN: usize = 64;
/// A run that is shorter than this grows by one entry at a time, so that small maps waste no
/// memory.
const SHORT: usize = 8;

/// Entries in the order of their keys, in runs of which none is empty.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V> {
    runs: Runs<(K, V)>,
}

/// A sorted set: a map whose values are empty.
pub(crate) type SortedSet<K> = Sorted<K, ()>;

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (run, at) = self.find(key).ok()?;
        let (_, value) = &self.runs.all()[run][at];
        Some(value)
    }

    /// The key that is equal to `key`, which may share its memory with others.
    pub(crate) fn key<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
    {
        let (run, at) = self.find(key).ok()?;
        let (key, _) = &self.runs.all()[run][at];
        Some(key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (run, at) = self.find(key).ok()?;
        let (_, value) = &mut self.runs.all_mut()[run][at];
        Some(value)
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets the value of `key`, and returns the value that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok((run, at)) => {
                let (_, known) = &mut self.runs.all_mut()[run][at];
                Some(std::mem::replace(known, value))
            }
            Err((run, at)) => {
                self.insert_at(run, at, (key, value));
                None
            }
        }
    }

    /// The value of `key`, made if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (run, at) = match self.find(&key) {
            Ok((run, at)) => (run, at),
            Err((run, at)) => self.insert_at(run, at, (key, make())),
        };
        &mut self.runs.all_mut()[run][at].1
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    pub(crate) fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let (run, at) = self.find(key).ok()?;
        Some(self.remove_at(run, at))
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        (!self.is_empty()).then(|| self.remove_at(0, 0))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for run in self.runs.all_mut() {
            run.retain_mut(|(key, value)| keep(key, value));
        }
        self.runs.drop_empty();
    }

    /// The run and the position in it where `key` is (`Ok`), or where it belongs (`Err`).
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<(usize, usize), (usize, usize)>
    where
        K: Borrow<Q>,
    {
        let runs = self.runs.all();
        let later = runs.partition_point(|run| run[0].0.borrow() <= key);
        let run = later.saturating_sub(1);
        let entries = runs.get(run).map_or(&[][..], Vec::as_slice);
        let found = entries.binary_search_by(|(other, _)| other.borrow().cmp(key));
        found.map(|at| (run, at)).map_err(|at| (run, at))
    }

    /// Inserts an entry, and returns the run and the position where it is now.
    fn insert_at(&mut self, run: usize, at: usize, entry: (K, V)) -> (usize, usize) {
        let Some(entries) = self.runs.all_mut().get_mut(run) else {
            self.runs = Runs::One(vec![entry]);
            return (0, 0);
        };
        if entries.len() == RUN {
            // Keys often come in order: then each run stays full.
            let middle = if at == RUN { RUN } else { RUN / 2 };
            let rest = entries.split_off(middle);
            self.runs.insert(run + 1, rest);
            return if at < middle {
                self.insert_at(run, at, entry)
            } else {
                self.insert_at(run + 1, at - middle, entry)
            };
        }
        if entries.len() < SHORT {
            entries.reserve_exact(1);
        }
        entries.insert(at, entry);
        (run, at)
    }

    fn remove_at(&mut self, run: usize, at: usize) -> (K, V) {
        let entries = &mut self.runs.all_mut()[run];
        let entry = entries.remove(at);
        if entries.is_empty() {
            self.runs.drop_empty();
        }
        entry
    }
}

impl<K, V> Sorted<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.all().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.all().iter().map(Vec::len).sum()
    }

    pub(crate) fn first(&self) -> Option<&K> {
        self.keys().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.runs.all().iter().flatten();
        entries.map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let entries = self.runs.all_mut().iter_mut().flatten();
        entries.map(|(key, value)| (&*key, value))
    }
}

impl<K: Ord> SortedSet<K> {
    /// Adds a key. Returns true if it was not there before.
    pub(crate) fn add(&mut self, key: K) -> bool {
        self.insert(key, ()).is_none()
    }

    /// The keys that `other` does not have. Both sets are in order, so one walk through them finds all.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a K> {
        let mut others = other.keys().peekable();
        self.keys().filter(move |key| {
            while others.next_if(|other| other < key).is_some() {}
            others.peek() != Some(key)
        })
    }
}

/// Entries are compared, and runs are not, because the order of insertions decides where runs end.
impl<K: PartialEq, V: PartialEq> PartialEq for Sorted<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self {
            runs: Runs::default(),
        }
    }
}

impl<K, V> IntoIterator for Sorted<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.into_vec().into_iter().flatten()
    }
}

impl<K: Ord, V> Extend<(K, V)> for Sorted<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut sorted = Self::default();
        sorted.extend(entries);
        sorted
    }
}

/// The runs of a map. Nearly every map has one, which needs no list of runs.
#[derive(Clone, Debug)]
enum Runs<E> {
    /// Empty if the map is.
    One(Vec<E>),
    Several(Box<[Vec<E>]>),
}

impl<E> Runs<E> {
    /// The runs, of which none is empty.
    fn all(&self) -> &[Vec<E>] {
        match self {
            Self::One(run) if run.is_empty() => &[],
            Self::One(run) => slice::from_ref(run),
            Self::Several(runs) => runs,
        }
    }

    fn all_mut(&mut self) -> &mut [Vec<E>] {
        match self {
            Self::One(run) if run.is_empty() => &mut [],
            Self::One(run) => slice::from_mut(run),
            Self::Several(runs) => runs,
        }
    }

    fn insert(&mut self, at: usize, run: Vec<E>) {
        self.change(|runs| runs.insert(at, run));
    }

    /// Takes out the runs that are empty, and frees their memory.
    fn drop_empty(&mut self) {
        match self {
            Self::One(run) if run.is_empty() => *run = Vec::new(),
            Self::One(_) => {}
            Self::Several(_) => self.change(|runs| runs.retain(|run| !run.is_empty())),
        }
    }

    fn into_vec(self) -> Vec<Vec<E>> {
        match self {
            Self::One(run) => vec![run],
            Self::Several(runs) => runs.into_vec(),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<Vec<E>>)) {
        let mut runs = std::mem::take(self).into_vec();
        change(&mut runs);
        *self = match runs.len() {
            0 | 1 => Self::One(runs.pop().unwrap_or_default()),
            _ => Self::Several(runs.into()),
        };
    }
}

impl<E> Default for Runs<E> {
    fn default() -> Self {
        Self::One(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u16),
        Drop(u16),
        DropFirst,
        Retain(u16),
    }

    fn act() -> impl Strategy<Value = Act> {
        let key = 0..400u16;
        prop_oneof![
            20 => key.clone().prop_map(Act::Insert),
            8 => key.prop_map(Act::Drop),
            2 => Just(Act::DropFirst),
            1 => (2..5u16).prop_map(Act::Retain),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(acts in prop::collection::vec(act(), 0..1_500)) {
            let (mut sorted, mut model) = (Sorted::default(), BTreeMap::new());
            for (i, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Insert(key) if i % 2 == 0 => {
                        prop_assert_eq!(sorted.insert(key, i), model.insert(key, i));
                    }
                    Act::Insert(key) => {
                        let made = *sorted.get_or_insert_with(key, || i);
                        prop_assert_eq!(made, *model.entry(key).or_insert(i));
                    }
                    Act::Drop(key) if i % 2 == 0 => {
                        prop_assert_eq!(sorted.remove_entry(&key), model.remove_entry(&key));
                    }
                    Act::Drop(key) => prop_assert_eq!(sorted.remove(&key), model.remove(&key)),
                    Act::DropFirst => {
                        prop_assert_eq!(sorted.first(), model.keys().next());
                        prop_assert_eq!(sorted.pop_first(), model.pop_first());
                    }
                    Act::Retain(part) => {
                        sorted.retain(|key, _| key % part == 0);
                        model.retain(|key, _| key % part == 0);
                    }
                }
                prop_assert!(sorted.runs.all().iter().all(|run| (1..=RUN).contains(&run.len())));
                prop_assert_eq!(sorted.len(), model.len());
            }
            prop_assert!(sorted.iter().eq(&model));
            for key in 0..400 {
                prop_assert_eq!(sorted.get(&key), model.get(&key));
                prop_assert_eq!(sorted.key(&key), model.get_key_value(&key).map(|(key, _)| key));
            }
            prop_assert!(sorted.into_iter().eq(model));
        }

        /// Runs differ with the order of insertions, and with what was removed.
        #[test]
        fn maps_with_the_same_entries_are_equal(
            (keys, shuffled) in prop::collection::btree_set(0..1_000u16, 1..400).prop_flat_map(|keys| {
                let keys: Vec<_> = keys.into_iter().collect();
                (Just(keys.clone()), Just(keys).prop_shuffle())
            }),
            gone in prop::collection::vec(0..1_000u16, 0..200),
        ) {
            let sorted: SortedSet<_> = keys.iter().map(|key| (*key, ())).collect();
            let mut other: SortedSet<_> = gone.into_iter().map(|key| (key, ())).collect();
            other.extend(shuffled.iter().map(|key| (*key, ())));
            other.retain(|key, ()| keys.contains(key));
            prop_assert_eq!(&sorted, &other);
            let last = shuffled.last().unwrap();
            other.remove(last);
            prop_assert_ne!(&sorted, &other);
            other.add(last + 1_000);
            prop_assert_ne!(sorted, other);
        }

        #[test]
        fn keys_without_those_of_another_set_are_the_difference(
            left in prop::collection::btree_set(0..400u16, 0..200),
            right in prop::collection::btree_set(0..400u16, 0..200),
        ) {
            let [some, others] = [&left, &right].map(|keys| {
                let mut sorted = SortedSet::default();
                keys.iter().for_each(|key| _ = sorted.add(*key));
                sorted
            });
            prop_assert!(some.without(&others).eq(left.difference(&right)));
        }
    }

    #[test]
    fn keys_in_order_fill_their_runs() {
        let mut sorted = SortedSet::default();
        for key in 0..10 * RUN {
            assert!(sorted.add(key));
        }
        assert_eq!(sorted.runs.all().len(), 10);
    }

    #[test]
    fn what_is_gone_takes_no_room() {
        let mut sorted = SortedSet::default();
        for key in 0..10 * RUN {
            sorted.add(key);
        }
        for key in 0..10 * RUN {
            sorted.remove(&key);
        }
        let room = |sorted: &SortedSet<usize>| match &sorted.runs {
            Runs::One(run) => run.capacity(),
            Runs::Several(runs) => panic!("{} runs", runs.len()),
        };
        assert_eq!(room(&sorted), 0);
        sorted.add(1);
        assert_eq!(room(&sorted), 1);
    }
}
