//! A hash map that begins as a list.
//!
//! It exists because a process may have a thousand channels, each with four resources. A `HashMap` of
//! four entries has room for eight.

use std::collections::HashMap;
use std::hash::Hash;

/// The number of entries up to which a list is used.
const FEW: usize = 8;

/// Entries in no particular order.
#[derive(Clone, Debug)]
pub(crate) enum FewOrMany<K, V> {
    Few(Vec<(K, V)>),
    Many(HashMap<K, V>),
}

impl<K: Eq + Hash, V> FewOrMany<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Few(list) => {
                let found = list.iter().find(|(known, _)| known == key);
                found.map(|(_, value)| value)
            }
            Self::Many(map) => map.get(key),
        }
    }

    /// The value of `key`, made if there is none.
    pub(crate) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if let Self::Few(list) = self
            && list.len() == FEW
        {
            *self = Self::Many(std::mem::take(list).into_iter().collect());
        }
        match self {
            Self::Few(list) => {
                let known = list.iter().position(|(known, _)| *known == key);
                let place = known.unwrap_or_else(|| {
                    // One at a time: `push` would begin with four.
                    list.reserve_exact(1);
                    list.push((key, V::default()));
                    list.len() - 1
                });
                &mut list[place].1
            }
            Self::Many(map) => map.entry(key).or_default(),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        match self {
            Self::Few(list) => {
                list.retain(|(known, _)| known != key);
                list.shrink_to_fit();
            }
            Self::Many(map) => _ = map.remove(key),
        }
    }
}

impl<K, V> FewOrMany<K, V> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (list, map) = match self {
            Self::Few(list) => (Some(list), None),
            Self::Many(map) => (None, Some(map)),
        };
        let list = list.into_iter().flatten().map(|(key, value)| (key, value));
        list.chain(map.into_iter().flatten())
    }
}

impl<K, V> Default for FewOrMany<K, V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list and a table hold what a map of another kind holds.
        #[test]
        fn it_is_a_map(acts in prop::collection::vec((any::<bool>(), 0..2 * FEW), 0..200)) {
            let (mut map, mut model) = (FewOrMany::default(), BTreeMap::new());
            for (i, (inserts, key)) in acts.into_iter().enumerate() {
                if inserts {
                    *map.get_or_default(key) = i;
                    model.insert(key, i);
                } else {
                    map.remove(&key);
                    model.remove(&key);
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
            }
            let held: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(held, model);
        }
    }
}
