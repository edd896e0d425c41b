//! A hash map that begins as a list.
//!
//! The map saves memory, because a process may have a thousand channels, each with one or two clusters and four
//! resources. A `HashMap` has room for three entries when it has one, and for seven when it has four.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// The number of entries up to which a list is used.
const FEW: usize = 8;

/// Entries in no particular order, which take no more memory than they need while they are few.
///
/// ```
/// let mut ports = crowfly_names::FewOrMany::default();
/// ports.insert("payments", 80);
/// assert_eq!(ports.get("payments"), Some(&80));
/// ```
#[derive(Clone, Debug)]
pub struct FewOrMany<K, V>(Entries<K, V>);

#[derive(Clone, Debug)]
enum Entries<K, V> {
    Few(Vec<(K, V)>),
    Many(HashMap<K, V>),
}

impl<K: Eq + Hash, V> FewOrMany<K, V> {
    /// The value of `key`.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Entries::Few(list) => {
                let found = list.iter().find(|(known, _)| known.borrow() == key);
                found.map(|(_, value)| value)
            }
            Entries::Many(map) => map.get(key),
        }
    }

    /// The value of `key`, to change it.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Entries::Few(list) => {
                let found = list.iter_mut().find(|(known, _)| (*known).borrow() == key);
                found.map(|(_, value)| value)
            }
            Entries::Many(map) => map.get_mut(key),
        }
    }

    /// Sets the value of `key`, and returns the value that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        self.get_or_insert_with(key, || value);
        None
    }

    /// The value of `key`, made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if let Entries::Few(list) = &mut self.0
            && list.len() == FEW
        {
            self.0 = Entries::Many(std::mem::take(list).into_iter().collect());
        }
        match &mut self.0 {
            Entries::Few(list) => {
                let known = list.iter().position(|(known, _)| *known == key);
                let place = known.unwrap_or_else(|| {
                    // One at a time: `push` would begin with four.
                    list.reserve_exact(1);
                    list.push((key, make()));
                    list.len() - 1
                });
                &mut list[place].1
            }
            Entries::Many(map) => map.entry(key).or_insert_with(make),
        }
    }

    /// Takes out the value of `key`.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Entries::Few(list) => {
                let place = list.iter().position(|(known, _)| known.borrow() == key)?;
                let (_, value) = list.swap_remove(place);
                list.shrink_to_fit();
                Some(value)
            }
            Entries::Many(map) => map.remove(key),
        }
    }

    /// Keeps the entries that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        match &mut self.0 {
            Entries::Few(list) => {
                list.retain_mut(|(key, value)| keep(key, value));
                list.shrink_to_fit();
            }
            Entries::Many(map) => map.retain(keep),
        }
    }
}

impl<K, V> FewOrMany<K, V> {
    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (list, map) = match &self.0 {
            Entries::Few(list) => (Some(list), None),
            Entries::Many(map) => (None, Some(map)),
        };
        let list = list.into_iter().flatten().map(|(key, value)| (key, value));
        list.chain(map.into_iter().flatten())
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Few(list) => list.len(),
            Entries::Many(map) => map.len(),
        }
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, V> Default for FewOrMany<K, V> {
    fn default() -> Self {
        Self(Entries::Few(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Insert(usize),
        Make(usize),
        Remove(usize),
        Retain(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let key = 0..2 * FEW;
        prop_oneof![
            6 => key.clone().prop_map(Act::Insert),
            6 => key.clone().prop_map(Act::Make),
            6 => key.prop_map(Act::Remove),
            1 => (2..5_usize).prop_map(Act::Retain),
        ]
    }

    proptest! {
        /// The map holds the same entries as a `HashMap` after the same operations, as a list and as a table.
        #[test]
        fn it_is_a_map(acts in prop::collection::vec(act(), 0..200)) {
            let (mut map, mut model) = (FewOrMany::default(), BTreeMap::new());
            for (i, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Insert(key) => prop_assert_eq!(map.insert(key, i), model.insert(key, i)),
                    Act::Make(key) => {
                        let made = *map.get_or_insert_with(key, || i);
                        prop_assert_eq!(made, *model.entry(key).or_insert(i));
                    }
                    Act::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    Act::Retain(part) => {
                        map.retain(|key, _| key % part == 0);
                        model.retain(|key, _| key % part == 0);
                    }
                }
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            }
            let held: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            for key in 0..2 * FEW {
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.get_mut(&key), model.get_mut(&key));
            }
            prop_assert_eq!(held, model);
        }
    }

    /// A few entries take the memory of as many, also after others have gone.
    #[test]
    fn a_few_entries_have_no_room_to_spare() {
        let mut map = FewOrMany::default();
        for key in 0..5 {
            map.insert(key, ());
        }
        map.remove(&1);
        map.retain(|key, ()| *key > 2);
        let Entries::Few(list) = &map.0 else {
            panic!("{} entries are many", map.len());
        };
        assert_eq!((list.len(), list.capacity()), (2, 2));
    }
}
